"""The words of findings about the host's memory."""

from __future__ import annotations

from typing import Final

from trainperf.findings.messages.catalogue import Doubts, Message, Messages

_KEPT: Final = "something keeps each step's objects (not identified): a list of tensors, a cache, a log"
_FIND: Final = (
    "# find what is kept from step to step, a list of tensors, a cache, a log:\n"
    "[[!inference?losses.append(loss.item())  # if losses: a kept loss keeps its whole graph]]"
    "[[inference?outputs.append(output.cpu())  # if outputs: a kept output keeps its memory]]"
)
_GROWS: Final = Message(
    title="the process's memory grows by {each} a step",
    why=_KEPT,
    evidence=(
        "from {before} to {after} in {seconds:.0f} s: {minute} a minute",
        "steady over {readings:reading} without the run's first quarter and mapped files",
        "at this pace it hits its {limit} limit in {left}",
    ),
    fix=_FIND,
    will_not_help="gc.collect(), torch.cuda.empty_cache(): what is referenced stays; more memory: it fills",
)
_RUN_ON: Final = f"# run for a few minutes: settling stops; if it still grows:\n{_FIND}"

MESSAGES: Final[Messages] = {
    "TP601": {
        "leak": _GROWS,
        "with_work": _GROWS.but(
            title=f"{_GROWS.title}, along with the work per step", why=f"the inputs grow, or {_KEPT}", fix=_RUN_ON
        ),
        "early": _GROWS.but(title=f"{_GROWS.title}, so far", why=f"the allocator is settling, or {_KEPT}", fix=_RUN_ON),
    },
    "TP603": {
        "returned": Message(
            title="malloc returns memory to the OS and faults it back in every step",
            why="malloc returns what {thread_name} frees to the OS, and the next step needs it again",
            evidence=(
                "{thread_name} takes {pages:page} ({taken}) a step from the kernel, which zeroes each: {page_us:.2g} "
                "us a page, measured at start",
                "at most {kernel} of the time: that is all of this thread's kernel time",
                "private memory shrank by {returned} within a second (median of {seconds:second}, several "
                "readings in each)",
                "not in this cost: returning the pages, and caches that zeroing evicts; trials saved 50% to 160% of it",
            ),
            fix="{command}  # glibc's malloc reads them as Python starts",
            will_not_help="MALLOC_TRIM_THRESHOLD_ alone: more tensors are then mmapped anew each time; stock "
            "jemalloc: it returns large blocks at once; a faster disk or more memory",
        )
    },
}

TEXTS: Final = {
    "readings": "{readings} readings",
    "grows_with_work": "the steps take {works:.1f} times the work by then: longer inputs may need more memory with "
    "nothing kept",
    "grows_early": "{readings} readings in {steps:step}: so early it may be the allocator settling",
    "by_pages": "pages times the cost of one",
}

UNSURE: Final[Doubts] = {
    "memory_of_trace": "a trace has no readings of memory",
    "memory_few_readings": "{readings:memory reading} (one a second) during steps are too few: run longer",
    "heap_of_trace": "a trace has no page faults",
    "heap_old_file": "recorded by a version without page faults",
    "heap_no_cost": "what a page fault costs could not be measured",
    "heap_no_faults": "the kernel reported no page faults of the training thread",
    "heap_few_seconds": "{seconds:second} of page faults after the first are too few: run longer",
    "heap_not_returned": "{faults:page fault} a step, but memory was not seen to go back to the kernel: mapped files, "
    "shared batches or a fork may be why",
}
