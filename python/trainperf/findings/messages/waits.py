"""The words of findings about waits: for the GIL, for an object's lock or a stop of all threads, asleep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trainperf.findings.text import Doubts, Message, Messages

# -- the GIL

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

# -- free-threaded Pythons

_COLLECT_RARELY: Final = (
    "gc.collect(); gc.freeze(); gc.disable()  # once, after setup: live objects are not scanned again\n"
    "if step % 500 == 0: gc.collect()  # on {thread}, between two steps"
)
_STOPS: Final = Message(
    title="{stopper} stops the world, {thread} included",
    why="{stopper} stops all threads for garbage collections[[, {at}]]",
    evidence=(
        "{thread} is stopped for {each} of each step's {step}",
        "{pauses:pause} of {pause} on average",
        "{stoppers.name} caused {stoppers.share} of that time[[, {stoppers.at}]]",
    ),
    fix=f"{_COLLECT_RARELY}[[\n# gc.disable() stops only automatic collections: if {{stopper}} calls gc.collect(), "
    "remove that call]]",
    will_not_help="more threads: every pause stops all of them",
)
_LOCK: Final = Message(
    title="{thread} waits for the per-object lock of a shared object",
    why="threads change the same dict, list or other object[[ {at}]], one at a time",
    evidence=("{waits:wait} of {wait} on average", "{holders.name} held it for {holders.share} of the wait"),
    fix="# give each thread its own object, and merge them once at the end:\nresults[thread_index].append(value)",
    will_not_help="a threading.Lock around it: one more lock to wait for; more threads",
)

# -- asleep

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
    "future": ("waits for a task's result", "{todo}", "a larger batch, a faster GPU: the pool sets the pace"),
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
        "# let the producer run further ahead: a larger queue evens out its slow moments",
        "a larger batch, a faster GPU: the producer sets the pace",
    ),
    "sleep": ("sleeps", "# remove the sleep, or wait in another thread", "anything that makes the step itself faster"),
    "file": (
        "waits for a file[[or_pipe? or pipe]]",
        "# cache it after the first read, or prefetch it in a DataLoader worker"
        "[[opened?\n# if it is opened to rewrite it: do that less often, or from a thread]]",
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
        "# the other ranks wait for this one even longer: make its own work faster\n"
        f"# if the exchange itself takes that long, exchange less:{_DDP}",
        "looking for a rank that is later: this one has the most work of its own",
    ),
    "other": (
        "is blocked",
        "# [[!unseen?move the call]][[unseen?run longer: samples then show which call to move]] out of the loop, or "
        "into a thread",
    ),
}
_KNOWN_WAITS: Final = {
    *_FOR_OTHERS, "background_loader", "queue_at_times", "collective", "ranks", "even_ranks", "late_ranks",
}  # fmt: skip
# What looks without waiting, of what may wait with a timeout.
_LOOKS: Final = {
    "lock": "acquire(blocking=False)",
    "queue": "get_nowait()",
    "full_queue": "put_nowait()",
    "signal": "is_set(), of a Condition by its own test,",
    "thread_end": "is_alive()",
    "future": "done()",
}


def _message(variant: str, does: str, fix: str, will_not_help: str = "a faster GPU: {thread} waits") -> Message:
    look = f"[[timed?# if its timeout ends the wait: set a shorter one, or check by {_LOOKS.get(variant)} and go on\n]]"
    call = "" if variant in _KNOWN_WAITS else "[[ ({call})]]"  # "futex" says less than what it waits for
    return Message(
        title=f"{{thread}} {does}",
        why=f"[[{{awaited}} is in {{awaited_at}} while ]]{{thread_name}} {does}{call}"
        "[[, {share} of that time]][[ in {place}]][[; its place is not known: {unseen}]][[; {computing}]]",
        evidence=(
            "!few?it is asleep {each} of each step's {step}, not waiting for the GIL",
            "it is asleep in {few} of {steps} steps, {few_each} each, not waiting for the GIL",
            "{spots.share} of {samples:sample} in {spots.place}",
            "{dataset}[[ ({dataset_at})]] takes {batch} for a batch, in a thread",
            "meanwhile {beside.name} is in {beside.place} for {beside.share} of that time[[; {beside.doubt}]]",
            "{helpers.said}",
            "{load}; {room}",
            "{gradients} of gradients[[, and {buffers} of buffers broadcast before each forward]]: {rate}/s if every "
            "step that waits exchanges all of them",
        ),
        fix=f"{look if variant in _LOOKS else ''}{fix}",
        will_not_help=f"[[no_room?more workers: no CPU is free for them; ]]{will_not_help}",
    )


_HOOKS: Final = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks"

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
    "TP203": {
        "collects": _STOPS,
        "traces": _STOPS.but(
            why="{stopper} stops all threads to set a tracer[[, {at}]]",
            fix="# set tracers and profile functions once, before {training}: each call stops every thread",
        ),
        "unread": _STOPS.but(
            title="another thread stops the world, {thread} included",
            why="that thread, and why it stops the others, could not be read",
            fix=f"# most often these are garbage collections; if so:\n{_COLLECT_RARELY}",
        ),
    },
    "TP204": {
        "held": _LOCK,
        "unread": _LOCK.but(
            evidence=(*_LOCK.evidence, "the holder is not known: CPython records it for some locks only")
        ),
    },
    "TP301": {variant: _message(variant, *texts) for variant, texts in _VARIANTS.items()},
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
    **{f"{part}_{kind}": of[i] for i, part in enumerate(("does", "fix", "wont")) for kind, of in _FOR_OTHERS.items()},
    "ask_earlier": "# make what it waits for faster, or ask for it a step earlier",
    "no_sample_tells": "no sample in {steps:step}",
    "maybe_no_cpu": "it may have waited for a CPU in part of it: {off}",
    "place_off": "the time is exact, the place is not known: {off}",
    "background_slow": "the background loader[[workers?'s {workers:worker}]] [[!workers?is]][[workers?are]] too slow",
    "background_no_room": "# make one sample of {dataset} cheaper: the background loader's workers have all CPUs",
    # More of those that make what it waits for.
    "more_queue": "run several producers, or make the producer faster",
    "more_future": "give the pool more workers, and submit further ahead than one batch",
    "more_pipe": "run several such processes, or send the next request before the step and receive after it",
    "more_of_waiting": "# {more}\n# {work} mostly waits: more at a time need no more CPUs; or ask for less, in fewer "
    "and larger requests",
    "more_if_free": "# [[make {work} cheaper, or ]]{more}[[; {free:.1f} CPUs are free]]"
    "[[threads?: threads if they wait, processes if they compute]]",
    "more_if_known": "# [[make {work} cheaper, or ]]{more}: more of them help [[!computes?if they wait, or ]]if CPUs "
    "are free, which is not known",
    "more_if_waiting": "# [[make {work} cheaper, or ]]{more}: this helps if they wait; if they compute, all CPUs are "
    "in use already",
    "computing": "{who} use {used:.1f} of {room} meanwhile[[, {rest_of} {rest:.1f}]][[, others {others:.1f}]]",
    "rest_of_threads": "the rest of this process",
    "rest_of_process": "this process",
    "make_cheaper": "[[libraries?# if its libraries start threads of their own: OPENBLAS_NUM_THREADS=1, "
    "OMP_NUM_THREADS=1, or threadpoolctl\n]]"
    "[[# stop the other programs, which use {others:.1f} CPUs\n]]"
    "# make [[{work}]][[!work?that work]] cheaper, or do it once, before {training}",
    # Of DistributedDataParallel.
    "no_sync": "with model.no_sync(): ...  # accumulate gradients: [[at_times?over more batches than now]]"
    "[[!at_times?exchange them in every Nth step only]]",
    "compress": f"model.register_comm_hook(None, {_HOOKS}.{{hook}})  # half the bytes",
    "no_buffers": "DistributedDataParallel(model, {option}=False)  # {buffers} of buffers go out before each forward",
    "larger_buckets": "DistributedDataParallel(model, bucket_cap_mb={mb})  # fewer, larger exchanges: now {buckets}",
    "smaller_buckets": "DistributedDataParallel(model, bucket_cap_mb={mb})  # several exchanges: backward hides most",
}

UNSURE: Final[Doubts] = {
    "gil_busy_only": "gil_waits: this run shows who holds the GIL, not who waits (busy-only: see `trainperf doctor`)",
}
