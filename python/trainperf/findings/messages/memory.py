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
_KEEPS: Final = _GROWS.but(
    title="{keeper} keeps {kept} a step[[early?, so far]]: {held}",
    why="{thing} holds on to {held}, and is never cleared",
    evidence=(
        "in {apart:.1f} s {thing} got {more:element} longer in {in_steps:step}",
        "also {also.what}: {also.held}",
        *_GROWS.evidence,
        "looks at {objects:object} stopped the training thread for {pauses} ms, counted as trainperf's own",
    ),
    brief="{keeper} keeps {kept} a step[[early?, so far]]",
)
_RUN_ON: Final = f"# run for a few minutes: settling stops; if it still grows:\n{_FIND}"

MESSAGES: Final[Messages] = {
    "TP601": {
        "leak": _GROWS,
        "with_work": _GROWS.but(
            title=f"{_GROWS.title}, along with the work per step", why=f"the inputs grow, or {_KEPT}", fix=_RUN_ON
        ),
        "kept_graphs": _KEEPS.but(
            why="each tensor in {thing} keeps the graph that computed it",
            fix="[[{instead}]][[!instead?# keep .item() or .detach() of what is added: its graph can then go]]"
            "[[!scalar?\n# and bound {own}: the tensors themselves stay]]",
        ),
        "kept_sum": _KEEPS.but(why="each step adds its graph to all that came before", fix="{instead}"),
        "kept_chain": _KEEPS.but(
            why="each step goes on from the one before, and was never cut off from it",
            fix="{own} = {own}.detach()  # before the next step uses it",
        ),
        "kept_hooks": _KEEPS.but(
            fix="# register it once, before the loop; or after each step:\nhandle.remove()  # handle: what registering "
            "returned",
            why="{thing} has a hook more after each step, with all that its function can see",
        ),
        "kept_cache": _KEEPS.but(
            fix="@functools.lru_cache(maxsize=128)  # of {function}; the least recently used are forgotten"
        ),
        "kept_array": _KEEPS.but(
            fix="# keep a sum or a count in its place, or write it to a file in parts: {own} is copied in each step"
        ),
        "kept_elements": _KEEPS.but(
            fix="# write to a file what is not needed again, and clear {own}; or keep the last ones alone:\n"
            "collections.deque(maxlen=1000)  # the older ones are lost"
        ),
        "workers": Message(
            title="the DataLoader workers' memory grows by {each} a step[[early?, so far]]",
            why="[[`{text}` adds to the dataset in each worker, and each has a copy of its own]]"
            "[[!text?something in each worker is kept from batch to batch (not identified)]]",
            evidence=(
                "from {before} to {after} in {seconds:.0f} s, {workers:worker} together: {minute} a minute",
                "steady over {readings:reading} of these workers, without the first quarter and mapped files",
                "{text} is the only line of {dataset} that adds to what it has; workers themselves are not looked into",
            ),
            fix="# bound what the dataset[[ {dataset}]] keeps, or keep it in a file that workers share (numpy.memmap)",
            will_not_help="fewer workers: each keeps more then; persistent_workers=True: they never end",
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
                "capped at this thread's total system (kernel) time, {kernel}",
                "private memory shrank by {returned} within a second (median of {seconds:second}, several "
                "readings in each)",
                "excludes returning the pages, and cache lines that zeroing evicts; in trials the fix saved 50% to "
                "160% of it",
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
    "keeps_line": "`{text}`",
    "keeps_cache": "the lru_cache of `{function}`",
    "keeps_hooks": "a hook registered again and again",
    "keeps_local": "`{name}` ({type} in {owner})",
    "keeps_global": "`{name}` (global {type})",
    "keeps_attribute": "`{name}` of {owner} ({type})",
    "keeps_unnamed": "an unnamed {type}",
    "holds_graphs": "tensors with their graphs",
    "holds_tensors": "tensors",
    "holds_arrays": "arrays",
    "holds_objects": "Python objects",
    "holds_hooks": "functions and what they hold",
    "holds_results": "a result for each new argument",
    "holds_chain": "the graph of every step so far",
    "holds_array": "one {type} that gets larger",
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
