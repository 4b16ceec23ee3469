"""The words of findings about the host's memory."""

from __future__ import annotations

from typing import Final

from trainperf.findings.messages.catalogue import Doubts, Message, Messages

_KEPT: Final = "something keeps what each step makes (what, was not seen): a list of tensors, a cache, a log"
_FIND: Final = (
    "# find what is kept from step to step, a list of tensors, a cache, a log:\n"
    "[[!inference?losses.append(loss.item())  # where it is losses: a kept loss keeps its whole graph]]"
    "[[inference?outputs.append(output.cpu())  # where it is outputs: a kept output keeps its memory]]"
)
_GROWS: Final = Message(
    title="the process' memory grows by {each} a step",
    why=_KEPT,
    evidence=(
        "from {before} to {after} in {seconds:.0f} s: {minute} a minute",
        "steady over {readings:reading} (the run's first quarter left out), mapped files not counted",
        "at this pace the {limit} that it may have are full in {left}",
    ),
    fix=_FIND,
    will_not_help="gc.collect(), torch.cuda.empty_cache(): what is referenced stays; more memory: it fills",
)
_RUN_ON: Final = f"# run for some minutes: what settles stops; where it grows on\n{_FIND}"

MESSAGES: Final[Messages] = {
    "TP601": {
        "leak": _GROWS,
        "with_work": _GROWS.but(
            title=f"{_GROWS.title}, as the steps' work does", why=f"the inputs grow, or {_KEPT}", fix=_RUN_ON
        ),
        "early": _GROWS.but(
            title=f"{_GROWS.title}, so far", why=f"the allocator still settles, or {_KEPT}", fix=_RUN_ON
        ),
    },
    "TP603": {
        "returned": Message(
            title="malloc returns memory to the OS and faults it back in every step",
            why="what {thread_name} frees is given back to the kernel, and the next step needs it again",
            evidence=(
                "{thread_name} takes {pages:page} ({taken}) a step from the kernel, which clears each: {page_us:.2g} "
                "us a page, measured as the watch began",
                "{kernel} of the time is all that the kernel does for this thread: it is no more",
                "private memory shrank by {returned} within a second (median of {seconds:second}, looked at several "
                "times in each)",
                "the cost is an upper bound of what is saved: in trials 50% to 95% of it was",
            ),
            fix="{command}  # glibc's malloc reads them as Python starts",
            will_not_help="MALLOC_TRIM_THRESHOLD_ alone: more tensors are then mapped anew each time; jemalloc as it "
            "comes: it gives back large blocks at once; a faster disk or more memory",
        )
    },
}

TEXTS: Final = {
    "readings": "{readings} readings",
    "grows_with_work": "the steps take {works:.1f} times the work by then: longer inputs may need more memory with "
    "nothing kept",
    "grows_early": "{readings} readings in {steps:step}: so early it may be the allocator, which settles",
    "by_pages": "pages times the cost of one",
}

UNSURE: Final[Doubts] = {
    "memory_of_trace": "a trace has no readings of memory",
    "memory_few_readings": "{readings:reading} of memory while steps ran, one a second, are too few: run longer",
    "heap_of_trace": "a trace has no page faults",
    "heap_old_file": "the run was written before page faults were read",
    "heap_no_cost": "what a page fault costs could not be measured",
    "heap_no_faults": "the kernel reported no page faults of the training thread",
    "heap_few_seconds": "page faults of {seconds:second} after the first are too few: run longer",
    "heap_not_returned": "{faults:page fault} a step, but memory was not seen to go back to the kernel: mapped files, "
    "shared batches or a fork may be why",
}
