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
    title="{thread} waits for the GIL, which {holder} holds",
    why="{holder} holds the GIL {at}",
    evidence=(_WAITING, _HELD, "it waits in {phases}", _AVERAGE, DEVICE_WAITS),
    fix="{fix}[[yields?\nsys.setswitchinterval(0.0005)  # until then: it gives the GIL up sooner]]",
    will_not_help=f"{WILL_NOT_HELP}[[keeps?; sys.setswitchinterval: the C call does not give the GIL up]]",
)
_MANY: Final = Message(
    title="{thread} waits for the GIL, shared with {holders_count:thread}",
    why="{names:,} take turns with the GIL[[, mostly {at}]]",
    evidence=(_WAITING, _HELD, _AVERAGE, DEVICE_WAITS),
    fix="# fewer threads, or processes instead:\nconcurrent.futures.ProcessPoolExecutor(2)",
    will_not_help=WILL_NOT_HELP,
)

MESSAGES: Final[Messages] = {
    "TP201": {
        "beside": _HOG,
        "fetching": _HOG.but(will_not_help=_HOG.will_not_help.replace(WILL_NOT_HELP, _FETCHES_WILL_NOT_HELP)),
        "feeding": _HOG.but(
            evidence=(
                *_HOG.evidence[:-1],
                "{holder} puts into a queue, and the loop takes from one: one process instead of it would be as slow",
                DEVICE_WAITS,
            ),
            will_not_help=_HOG.will_not_help.replace(
                WILL_NOT_HELP, "more threads that make batches; a larger queue; a faster GPU"
            ),
        ),
    },
    "TP202": {
        "beside": _MANY,
        "fetching": _MANY.but(
            fix="# make the batches in processes, where they wait for no thread; or use fewer threads\n"
            "DataLoader(..., num_workers=2)",
            will_not_help=_FETCHES_WILL_NOT_HELP,
        ),
        "unread": _MANY.but(title="{thread} waits for the GIL", why="who held the GIL could not be read"),
    },
}

TEXTS: Final = {
    "run_several": "# run {body} in several processes, as a DataLoader's workers do: threads share one GIL\n"
    "DataLoader(..., num_workers=2)",
    "run_package": "# the thread is {package}'s own: give it less to do, by fewer calls of {package} or smaller ones",
    "run_lambda": "# run what that lambda does in a process: threads share one GIL",
    "run_function": "# run {function} in a process: threads share one GIL\n"
    "concurrent.futures.ProcessPoolExecutor(1).submit({function}, ...)",
    "run_body": "# run {body} in a process: threads share one GIL\n"
    "multiprocessing.Process(target={name}, ...).start()  # and a multiprocessing.Queue to it",
    "run_class": "# run {body} in a process: threads share one GIL\n"
    "class {name}(multiprocessing.Process): ...  # and a multiprocessing.Queue to it",
    "that_thread": "that thread",
    "phase_share": "{phase} ({share})",
}

UNSURE: Final[Doubts] = {
    "gil_busy_only": "gil_waits: only who holds the GIL is known here, not who waits for it",
}
