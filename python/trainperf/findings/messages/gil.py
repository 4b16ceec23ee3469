"""The words of findings about the GIL."""

from __future__ import annotations

from typing import Final

from trainperf.findings.messages.catalogue import Doubts, Message, Messages

WILL_NOT_HELP: Final = "more DataLoader workers, a larger batch, a faster GPU"
# Where the training thread makes the batches, and waits there.
_FETCHES_WILL_NOT_HELP: Final = "a larger batch, a faster GPU"
DEVICE_WAITS: Final = (
    "{gpu} waited {device_wait} a step for {device_holder}[[ ({device_share} of it)]], "
    "which held the GIL[[ {device_at}]]"
)
_HELD: Final = "{holders.name} held it for {holders.share} of the wait[[, {holders.at}]]"
_WAITING: Final = "{each} of each step's {step} is waiting for the GIL ({losing} of {steps} steps lose 10% or more)"
_AVERAGE: Final = "{waits:wait} of {wait} on average"

_HOG: Final = Message(
    title="{thread} waits for the GIL, held by {holder}",
    why="{holder} holds the GIL {at}",
    evidence=(_WAITING, _HELD, "it waits in {phases}", _AVERAGE, DEVICE_WAITS),
    fix="{fix}[[yields?\nsys.setswitchinterval(0.0005)  # stopgap: it releases the GIL sooner]]",
    will_not_help=f"{WILL_NOT_HELP}[[keeps?; sys.setswitchinterval: the C call does not release the GIL]]",
)
_MANY: Final = Message(
    title="{thread} waits for the GIL, shared with {holders_count:thread}",
    why="[[named?threads ]][[same?threads named ]][[{names:,} and {rest:other}]][[!rest?{names}]] take turns with the "
    "GIL[[, mostly {at}]]",
    evidence=(_WAITING, _HELD, _AVERAGE, DEVICE_WAITS),
    fix="# fewer threads, or processes instead:\npool = concurrent.futures.ProcessPoolExecutor(2)  # once, before the "
    "loop\npool.submit({function}, ...)",
    will_not_help=WILL_NOT_HELP,
)

MESSAGES: Final[Messages] = {
    "TP201": {
        "beside": _HOG,
        "fetching": _HOG.but(will_not_help=_HOG.will_not_help.replace(WILL_NOT_HELP, _FETCHES_WILL_NOT_HELP)),
        "feeding": _HOG.but(
            evidence=(
                *_HOG.evidence[:-1],
                "{holder} fills a queue that the loop drains: moving it to one process would not be faster",
                DEVICE_WAITS,
            ),
            will_not_help=_HOG.will_not_help.replace(
                WILL_NOT_HELP, "more batch-making threads; a larger queue; a faster GPU"
            ),
        ),
    },
    "TP202": {
        "beside": _MANY,
        "fetching": _MANY.but(
            fix="# make the batches in processes, each with its own GIL; or use fewer threads\n"
            "DataLoader(..., num_workers=2)",
            will_not_help=_FETCHES_WILL_NOT_HELP,
        ),
        "unread": _MANY.but(title="{thread} waits for the GIL", why="the holder of the GIL could not be read"),
    },
}

TEXTS: Final = {
    "run_several": "# do the work of {body} in DataLoader workers: threads share one GIL\n"
    "DataLoader(..., num_workers=2)",
    "run_package": "# this thread belongs to {package}: give it less work, with fewer or smaller calls of {package}",
    "run_lambda": "# run what that lambda does in a process: threads share one GIL",
    "run_function": "# run {function} in a process: threads share one GIL\n"
    "pool = concurrent.futures.ProcessPoolExecutor(1)  # once, before the loop\npool.submit({function}, ...)",
    "run_body": "# run {body} in a process: threads share one GIL\n"
    "multiprocessing.Process(target={name}, ...).start()  # and a multiprocessing.Queue to it",
    "run_class": "# run {body} in a process: threads share one GIL\n"
    "class {name}(multiprocessing.Process): ...  # and a multiprocessing.Queue to it",
    "that_thread": "that thread",
    "named_threads": "{count:thread} named '{name}'",
    "phase_share": "{phase} ({share})",
}

UNSURE: Final[Doubts] = {
    "gil_busy_only": "gil_waits: this run shows who holds the GIL, not who waits (busy-only: see `trainperf doctor`)",
}
