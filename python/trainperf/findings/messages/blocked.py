"""The words of TP301: what the training thread sleeps for, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trainperf.findings.messages.catalogue import Doubts, Message, Messages

_NO_LOCK: Final = "a larger batch, a faster GPU: the other thread sets the pace; holding a lock for less time"
_DDP: Final = "[[\n{ddp:\n}]]"
_OTHER_END: Final = "a larger batch, a faster GPU: the process at the other end sets the pace"
_FIND_RANK: Final = (
    "# one rank's file does not show whether a rank is late: trainperf show FOLDER, with all ranks' files\n"
)

# What it does, what to do, and what will not help. Of other threads and processes: TP701 says these of a callback, too.
_FOR_OTHERS: Final = {
    "lock": (
        "waits for a lock",
        "# hold the lock for less time: copy what you need under it, work outside of it",
        "more workers, a larger batch: it is not computing",
    ),
    "queue": (
        "waits for a queue",
        "{todo}",
        "a larger queue: it is empty; a larger batch, a faster GPU: the producer sets the pace",
    ),
    "signal": (
        "waits for another thread's signal[[timed? or a timeout]]",
        "# make what the other thread does before its signal faster, or ask for it a step earlier",
        _NO_LOCK,
    ),
    "thread_end": (
        "waits for a thread to end",
        "# join it, or leave the `with` of its pool, a step later or after the loop: it goes on meanwhile\n"
        "# if it computes, that needs a free CPU",
        _NO_LOCK,
    ),
    "full_queue": (
        "waits for room in a queue",
        "# make its consumer faster, or run several consumers",
        "a larger queue: it fills up again; a faster GPU: the consumer sets the pace",
    ),
    "future": ("waits for a future", "{todo}", "a larger batch, a faster GPU: the pool sets the pace"),
    "pipe": ("waits for a pipe from another process", "{todo}", _OTHER_END),
    "full_pipe": (
        "waits for room in a pipe to another process",
        "# make the process that reads from it faster, or send it less",
        _OTHER_END,
    ),
}
_VARIANTS: Final[Mapping[str, tuple[str, ...]]] = {
    **_FOR_OTHERS,
    "background_loader": ("waits for a queue that a background loader feeds", *_FOR_OTHERS["queue"][1:]),
    "queue_at_times": (
        "waits for a queue",
        "# let the producer run further ahead: a larger queue evens out what it takes long for now and then",
        "a larger batch, a faster GPU: the producer sets the pace",
    ),
    "sleep": ("sleeps", "# remove the sleep, or wait in another thread", "anything that makes the step itself faster"),
    "file": (
        "waits for a file[[or_pipe? or pipe]]",
        "# cache it after the first read, or prefetch it in a DataLoader worker"
        "[[opened?\n# if it is opened to be written anew: less often, or from a thread]]",
    ),
    "written_file": (
        "waits for a file[[or_pipe? or pipe]]",
        "# write or print less often, or from a thread: it waits for storage, or for the reader of the pipe",
    ),
    "socket": ("waits for a socket", "# send from a background thread with a queue; wait only at the end"),
    "http_server": (
        "waits for an HTTP server",
        "# send from a background thread with a queue, or several steps' data in one request",
    ),
    "database": (
        "waits for a database",
        "# write many rows in one statement and one transaction, or from a background thread with a queue",
    ),
    "event_loop": (
        "waits in asyncio's event loop",
        "# fetch ahead, by an event loop in a thread of its own (loop.run_forever): submit before the step\n"
        "future = asyncio.run_coroutine_threadsafe(fetch(), loop)  # and future.result() after it",
        "a faster GPU: the event loop waits; asyncio.create_task alone: no task goes on while a step runs",
    ),
    "process": (
        "waits for a child process",
        "# run it alongside {training} (subprocess.Popen, polled later), or less often",
    ),
    "workers": (
        "waits for a DataLoader's workers to stop",
        "DataLoader(..., persistent_workers=True)  # made once and kept: its workers go on",
        "more workers: each of them has to stop",
    ),
    "collective": (
        "waits for a collective (communication)",
        f"[[!known?{_FIND_RANK}]]"
        "# exchange less often (accumulate gradients over N steps), in 16 bits (tensor.bfloat16()), or all tensors in "
        f"one call (torch._utils._flatten_dense_tensors); with async_op=True computation goes on until wait(){_DDP}",
    ),
    "ranks": (
        "waits in backward for all ranks' gradients (all-reduce)",
        f"{_FIND_RANK}# if the ranks are even, exchange less:{_DDP}",
        "anything on this rank, if another one is late",
    ),
    "even_ranks": (
        "waits in backward for the other ranks",
        f"# exchange less: no rank is late on average; or even out the batches, if the ranks are late in turns{_DDP}",
        "looking for one rank that is always late: there is none",
    ),
    "late_ranks": (
        "waits in backward for the other ranks",
        "# the others wait for this rank longer still: make what it does itself faster\n"
        f"# if the exchange itself takes that long, exchange less:{_DDP}",
        "looking for a rank that is later: this one has the most work of its own",
    ),
    "other": (
        "is blocked",
        "# [[!unseen?move the call]][[unseen?run longer: samples then show which call to move]] out of the loop, or "
        "into a thread",
    ),
}
# What looks without waiting, of what may wait with a timeout.
_LOOKS: Final = {
    "lock": "acquire(blocking=False)",
    "queue": "get_nowait()",
    "full_queue": "put_nowait()",
    "signal": "is_set(), of a Condition by its own test,",
    "thread_end": "is_alive()",
    "future": "done()",
}


def _message(
    variant: str, does: str, fix: str, will_not_help: str = "a faster GPU: the training thread waits"
) -> Message:
    look = f"[[timed?# if its timeout ends the wait: a shorter one, or check by {_LOOKS.get(variant)} and go on\n]]"
    return Message(
        title=f"{{thread}} {does}",
        why=f"[[{{awaited}} is in {{awaited_at}} while ]]{{thread_name}} {does}[[ ({{call}})]]"
        "[[ for {share} of it]][[ in {place}]][[; its place is not known: {unseen}]][[; {computing}]]",
        evidence=(
            "it is asleep {each} of each step's {step}, not waiting for the GIL",
            "it is asleep in {few} of {steps} steps, {few_each} each, not waiting for the GIL",
            "{spots.share} of {samples:sample} in {spots.place}",
            "{dataset}[[ ({dataset_at})]] takes {batch} for a batch, in a thread",
            "meanwhile {beside.name} is in {beside.place} for {beside.share} of it[[; {beside.doubt}]]",
            "{load}; {room}",
            "{gradients} of gradients[[, and {buffers} of buffers broadcast before each forward]]: {rate}/s if every "
            "step that waits exchanges all of them",
        ),
        fix=f"{look if variant in _LOOKS else ''}{fix}",
        will_not_help=f"[[no_room?more workers: no CPU is free for them; ]]{will_not_help}",
    )


MESSAGES: Final[Messages] = {"TP301": {variant: _message(variant, *texts) for variant, texts in _VARIANTS.items()}}
_HOOKS: Final = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks"
TEXTS: Final = {
    **{f"{part}_{kind}": of[i] for i, part in enumerate(("does", "fix", "wont")) for kind, of in _FOR_OTHERS.items()},
    "ask_earlier": "# make what it waits for faster, or ask for it a step earlier",
    "no_sample_tells": "no sample in {steps:step}",
    "maybe_no_cpu": "it may have waited for a CPU in part of it: {off}",
    "place_off": "the time is exact, the place is not known: {off}",
    "background_slow": "the background loader[[workers?'s {workers:worker}]] [[!workers?is]][[workers?are]] too slow",
    "background_no_room": "# make one sample of {dataset} cheaper: the background loader's workers have all CPUs",
    # More of those that make what it waits for.
    "more_queue": "make the producer faster, or run several producers",
    "more_future": "submit further ahead than one batch, and give the pool more workers",
    "more_pipe": "send the next request before the step and receive after it, or run several such processes",
    "more_if_free": "# {more}[[threads?: threads if they wait, processes if they compute]]",
    "more_if_known": "# {more}: more of them help if they wait, or if CPUs are free, which is not known",
    "more_if_waiting": "# {more}: more of them help only if they wait, as no CPU is free",
    "computing": "{who} of this run compute meanwhile, on {used:.1f} of {room}: no CPU is free",
    "make_cheaper": "[[libraries?# if its libraries start threads of their own: OPENBLAS_NUM_THREADS=1, "
    "OMP_NUM_THREADS=1, or threadpoolctl\n]]"
    "# make that work cheaper, or do it once, before {training}: no CPU is free for more of it",
    # Of DistributedDataParallel.
    "no_sync": "with model.no_sync(): ...  # accumulate gradients: [[at_times?over more batches than now]]"
    "[[!at_times?exchange them in every Nth step only]]",
    "compress": f"model.register_comm_hook(None, {_HOOKS}.{{hook}})  # half the bytes",
    "no_buffers": "DistributedDataParallel(model, {option}=False)  # {buffers} of buffers go out before each forward",
    "larger_buckets": "DistributedDataParallel(model, bucket_cap_mb={mb})  # fewer, larger exchanges: now {buckets}",
    "smaller_buckets": "DistributedDataParallel(model, bucket_cap_mb={mb})  # several exchanges: backward hides most",
}
UNSURE: Final[Doubts] = {}
