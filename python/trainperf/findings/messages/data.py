"""The words of findings about data: DataLoaders, their workers, and what is fetched without them."""

from __future__ import annotations

from typing import Final

from trainperf.findings.messages.general import NOTHING
from trainperf.findings.text import Doubts, Message, Messages

_FILTER: Final = (
    "[[# if the loop drops batches (it fetches {each_backward:.0f} for each backward), filter their indices in the "
    "sampler\n]]"
)

# First where much more is read than batches have: workers would read as much.
_LEAD: Final = f"{_FILTER}[[times?{{cheaper}}\n]]"
_CHEAPER_CALL: Final = "[[!times?\n{cheaper}]]"

# -- batches that the training thread makes

_FETCHED: Final = (
    "{spots.share} of {samples:stack sample|stack samples} in {spots.place}",
    "other threads of this process (torch's excluded) use at least {busy:.1f} CPUs",
    "{helpers.said}",
    "meanwhile {beside.name} is in {beside.place} for {beside.share} of that time[[; {beside.doubt}]]",
)
_DISK: Final = (
    "meanwhile disk {disk} is busy {disk_busy} of the time, and reads {disk_moved}/s[[, {disk_own} of it for this run]]"
)
_RECEIVED: Final = (
    "meanwhile [[interface?interface {interface}]][[!interface?this run]] receives {received}/s"
    "[[!interface? over TCP]]: {received_each} a step[[interface? (of all programs)]]"
)
_READ: Final = (
    "{read_each} are read for each batch of {batch}: [[far_more?over 100 times]][[!far_more?{times:time}]] its size"
)
_STARVED: Final = Message(
    title="data loading runs in {process}",
    why="[[{awaited} is in {awaited_at} while ]]{at} {doing} on {thread}"
    "[[, mostly library code called by {library_by}]][[busy?, while other threads of this process compute]]",
    evidence=(
        "fetching takes {each} of each step's {step}[[; {on_cpu} of it on the CPU, {blocked} blocked]][[ in {call}]]",
        *_FETCHED,
        "num_workers=0, {usable:CPU} usable",
        _DISK,
        _RECEIVED,
        _READ,
    ),
    fix=f"{_LEAD}{{fix:\n}}{_CHEAPER_CALL}",
)
_MADE_HERE: Final = {
    "cheaper": _STARVED.but(
        will_not_help="DataLoader workers: getting a batch from one costs 1.2 to 1.9 ms, making it here {making}"
    ),
    "by_hand": _STARVED.but(
        will_not_help="num_workers, pin_memory, prefetch_factor: no DataLoader makes these batches"
    ),
    "by_hand_waiting": _STARVED.but(will_not_help="[[overlaps?a faster CPU: it waits, it does not compute]]"),
    "threads": _STARVED.but(will_not_help="more workers than CPUs: it waits for computation"),
    "one_cpu": _STARVED.but(will_not_help="num_workers: {training} and loading would share the one CPU"),
    "lock": _STARVED.but(
        will_not_help="forked workers: they inherit the lock as held, but not the thread that releases it"
    ),
    "waiting": _STARVED.but(
        will_not_help="[[overlaps?cheaper transforms or a faster CPU: the dataset waits, it does not compute]]"
    ),
    "computing": _STARVED.but(will_not_help="pin_memory or prefetch_factor: nothing is prefetched with num_workers=0"),
    "filling": _STARVED.but(
        why=f"{_STARVED.why}, mostly in the first {{few:step}}",
        will_not_help="DataLoader workers, if it is a cache in memory: each fills its own",
    ),
    "seldom": _STARVED.but(
        why=f"{_STARVED.why}, mostly in {{few:step}}",
        will_not_help="more workers alone: batches come in order, and prefetch_factor is 2 by default",
    ),
}
_SAMPLER: Final = Message(
    title="the loop waits for its sampler",
    why="{name} samples batch indices on {thread}[[, and waits ({call})]]",
    evidence=(
        "sampling batch indices takes {each} of each step's {step}, on {thread}",
        "the rest of the fetch takes {rest} a step",
        "{share} of {samples:stack sample|stack samples} in {place}",
        "blocked in system call {call}",
        "{workers:worker}, but the sampler does not run there",
    ),
    fix="# sample all indices of the {epoch} at once in __iter__, in torch or NumPy, and yield slices of them",
    will_not_help="more workers or a larger prefetch_factor: the sampler runs in {process}",
)
_DROPPED: Final = Message(
    title="{batches} batches were made and dropped before the first step",
    why="{batches} batches of {name} were made [[by {workers:worker}]][[!workers?on {thread}]] before the first step"
    "[[, fetched by {caller}]]",
    evidence=(
        "{batches} batches fetched in the first step, before its own, and not trained on: {all} in all, {each} each",
        "a usual step fetches {usual:batch|batches}",
        *_FETCHED,
    ),
    fix="[[in_trainer?TrainingArguments(ignore_data_skip=True)  # if {training} may see the first batches again; "
    "or:\n]]"
    "# skip indices, not batches: torchdata's StatefulDataLoader, accelerate.skip_first_batches(loader, n), "
    "or itertools.islice(sampler, seen, None) in the sampler's __iter__",
    will_not_help="more workers: they would make the dropped batches, too",
)

# -- workers that make batches too slowly

_WHO: Final = "[[{workers:worker}]][[!workers?the workers]] of {name}"
_COMPUTE: Final = f"{_WHO} [[one?computes]][[!one?compute]]"
_CHEAPER: Final = (
    f"{_FILTER}[[{{cheaper}}]][[!cheaper?# make samples of {{made}} cheaper: preprocess offline, or on the device]]"
)
_OR_STOP_OTHERS: Final = f"{_CHEAPER}[[stop_others?; or stop other processes]]"
_NO_ROOM: Final = (
    "no CPU is left for more: {workers:worker} and {training} share {cpus:CPU}"
    "[[, of which other processes use {others:.1f}]]"
)
_UNPIN: Final = (
    "# remove os.sched_setaffinity from worker_init_fn and the dataset; if a library pins its process, undo it, in "
    "worker_init_fn or the first __getitem__:\nos.sched_setaffinity(0, range(os.cpu_count()))"
)
_SAME_CPUS: Final = "more workers: they would wait for the same CPUs"

_NOT_SEEN: Final = "is not clear from so few snapshots"
_INSIDE: Final = (
    "{line_share} of the workers' busy time is [[calls?in {calls}, called at {line}]][[!calls?at {line}]] ({spent})"
)
_TOO_SLOW: Final = Message(
    title="the DataLoader's workers are too slow",
    why=f"{_WHO} [[one?is]][[!one?are]] too slow; whether [[one?it computes or waits]][[!one?they compute or wait]] "
    f"{_NOT_SEEN}",
    evidence=(
        "{total:fetch|fetches} took {unseen_each} each; whether a batch was ready was not seen",
        "{empty} of {total} fetches found no batch ready, and waited {empty_each} each",
        "{ready} of {total} fetches [[just_made?found a batch made only just before, and took]]"
        "[[!just_made?found a batch ready, and took]] {ready_each} each",
        "{lone:fetch|fetches} waited {lone_each} each [[while only {left} workers still read]]"
        "[[!left?for one worker, while the others were idle]]",
        "{lock_call} (a lock) was the system call in {locked} of snapshots",
        "unread?the workers' CPU time was not read[[looked? (they lived under two seconds)]]",
        "only {few_looks:snapshot} of the workers",
        "{count:worker}, [[several?each ]]on the CPU {cpu} of the time[[several? (the busiest {slowest})]], "
        "runnable in {running} of {looks:snapshot}",
        _INSIDE,
        "{thread} waits {kept_off} of each step for a CPU that the workers use",
        _DISK,
        _RECEIVED,
        _READ,
        "{usable:CPU} usable",
    ),
    fix=f"{_LEAD}{{fix:\n}}{_CHEAPER_CALL}",
    will_not_help="pin_memory[[further?: the wait is for a batch to be made]]"
    "[[!further?, or a larger prefetch_factor: the queue is empty]]",
)
_BY_CALL: Final = f"{_LEAD}{{call}}{_CHEAPER_CALL}"
# Of variants that say in the first sentence at which line their time goes.
_AT_LINE: Final = (
    "[[calls?; {line_share} of the busy time is in {calls}, called at {line}]]"
    "[[!calls?; {line_share} of the busy time is at {line}]]"
)
_BUSY: Final = _TOO_SLOW.but(evidence=tuple("at {line}: {spent}" if e == _INSIDE else e for e in _TOO_SLOW.evidence))
_BOUND: Final = _BUSY.but(title="the DataLoader's workers are CPU-bound")
_OF_WORKERS: Final = {
    "unseen": _TOO_SLOW,
    "untraced": _TOO_SLOW.but(
        why=_TOO_SLOW.why.replace(_NOT_SEEN, "was not recorded"),
        will_not_help=_TOO_SLOW.will_not_help.replace("the queue is empty", "workers make batches too slowly"),
    ),
    "busiest": _TOO_SLOW.but(
        why=f"the busiest of {_WHO} sets the pace (on the CPU {{slowest}} of the time, all on average {{cpu}})"
        "[[passes_on?: it has more to do than the others]][[!passes_on?: batches are returned in order]]",
        fix=f"{_FILTER}# balance the batches of {{name}} (mix long and short samples), make long samples cheaper"
        "[[\n{any_order}]]",
    ),
    "locked": _TOO_SLOW.but(
        title="the DataLoader's workers contend for a shared lock",
        why=f"{_WHO} wait for a lock shared by processes {{locked}} of the time: only one works at a time",
        fix=f"{_FILTER}# drop the lock, use one handle per worker: open the file in worker_init_fn or the first "
        "__getitem__\n# or split the data into one file per worker",
        will_not_help="more workers, or a larger prefetch_factor: one worker at a time gets the lock",
    ),
    "file_locked": _TOO_SLOW.but(
        title="the DataLoader's workers contend for a file lock",
        why=f"{_WHO} wait for a file lock ({{lock_call}}) {{locked}} of the time: only one works at a time",
        fix=f"{_FILTER}# drop the file lock, or hold it only while the file is written: reading needs none, or a "
        "shared one (fcntl.LOCK_SH)\n# or split the data into one file per worker",
        will_not_help="one handle per worker: all lock the same file; more workers, or a larger prefetch_factor",
    ),
    "waiting": _BUSY.but(
        title="the DataLoader's workers are blocked",
        why=f"{_WHO} [[one?is]][[!one?are]] blocked[[, mostly {{waits_by}}]]"
        f"[[!waits_by? by storage, network, a lock or a sleep]] (on the CPU only {{cpu}} of the time){_AT_LINE}",
        fix=_BY_CALL,
        will_not_help="cheaper transforms[[!few_are_late?, or a larger prefetch_factor]]: the workers do not compute, "
        "they wait",
    ),
    "partly": _BUSY.but(
        why=f"{_COMPUTE} for {{cpu}} of the time, and [[one?waits]][[!one?wait]] for the rest (for storage, network, "
        f"a lock, a CPU or the next request){_AT_LINE}",
        fix=_BY_CALL,
    ),
    "partly_no_room": _BUSY.but(
        why=f"{_COMPUTE} for {{cpu}} of the time, and {_NO_ROOM}{_AT_LINE}",
        fix=_OR_STOP_OTHERS,
        will_not_help=_SAME_CPUS,
    ),
    "computing": _BOUND.but(why=f"{_COMPUTE} all the time (on the CPU {{cpu}} of it){_AT_LINE}", fix=_BY_CALL),
    "no_room": _BOUND.but(
        why=f"{_COMPUTE} all the time (on the CPU {{cpu}} of it), and {_NO_ROOM}{_AT_LINE}",
        fix=_OR_STOP_OTHERS,
        will_not_help=_SAME_CPUS,
    ),
    "all_cpus": _BOUND.but(
        why=f"{_COMPUTE} [[short?whenever a CPU is free]][[!short?all the time]] (on the CPU {{cpu}} of the time), on "
        f"{{cpus:CPU}}{_AT_LINE}",
        fix=_CHEAPER,
        will_not_help="more workers: {workers:worker} and {training} already use all {cpus:CPU}",
    ),
    "crowded": _BOUND.but(
        why=f"{_COMPUTE}, but [[one?gets]][[!one?get]] a CPU only {{cpu}} of the time: other work occupies the CPUs"
        f"{_AT_LINE}",
        fix=f"{_LEAD}# free the CPUs: [[threads?fewer torch threads (torch.set_num_threads), ]]stop other processes"
        f"{_CHEAPER_CALL}",
        will_not_help=_SAME_CPUS,
    ),
    "pinned": _TOO_SLOW.but(
        title="the DataLoader's workers are pinned to too few CPUs",
        why="{workers:worker} of {name} may use only {have:CPU} (CPU {allowed:,}) of the {possible} that {thread} may "
        "use: they set their own affinity",
        fix=f"{_FILTER}{_UNPIN}",
        will_not_help="more workers: they would wait for the same [[several_cpus?CPUs]][[!several_cpus?CPU]]",
    ),
    "kept_off": _BOUND.but(
        why=f"{_COMPUTE}, but [[one?gets]][[!one?get]] a CPU only {{cpu}} of the time{_AT_LINE}",
        fix=f"{_LEAD}# check which CPUs they may use (taskset, a container's cpuset), and what else runs there"
        f"{_CHEAPER_CALL}",
        will_not_help=_SAME_CPUS,
    ),
    "unlike_parts": _TOO_SLOW.but(
        title="uneven shards: some DataLoader workers finish long before others",
        why="for {lone} of {of} batches only {left} workers of {name} still read: the others had finished their "
        "smaller or faster shards",
        fix=f"{_FILTER}# shard evenly: give each worker every n-th sample, or every n-th small file\n"
        "info = get_worker_info()  # in __iter__, before anything is read\n"
        "paths = itertools.islice(paths, info.id, None, info.num_workers)",
        will_not_help="more workers, unless they split the largest shard",
    ),
    "one_worker": _TOO_SLOW.but(
        title="one DataLoader worker is slower than the others",
        why="{own} of {of} batches wait for the worker with id {worker} ({name} has {workers}): the others are ahead",
        fix=f"{_FILTER}[[{{any_order}}\n]]# look for what is slow in [[stream?its shard of {{name}}: the samples, the "
        "file or disk]][[!stream?it: it makes every {workers}th batch, without shuffling always of the same samples]]",
        will_not_help="pin_memory, or a larger prefetch_factor: the others are ahead already",
    ),
    "long_batches": _TOO_SLOW.but(
        title="some batches take the DataLoader's workers longer than others",
        why="{lone} of {of} batches wait for one of {workers:worker} of {name}: the others are ahead, and batches are "
        "returned in order",
        fix=f"{_FILTER}[[{{any_order}}\n]][[DataLoader(..., prefetch_factor={{ahead}})  # the others go on while one "
        "makes a long batch\n]]# or balance the batches of {name}: mix long and short samples",
        will_not_help="pin_memory: the wait is for a batch to be made",
    ),
}

# -- batches that are ready

_NOT_DELIVERED: Final = Message(
    title="batches are ready but are not delivered",
    why="getting a ready batch of {name} from the queue is slow (large or many tensors)",
    evidence=(
        "{count:fetch|fetches} found a batch ready and still took {each} each (usual: 1 to 2 ms)",
        "{gil} of the {waited} is waiting for the GIL",
        "pin_memory={pinned}",
    ),
    fix="# return fewer, larger tensors per sample; collate each field into one tensor",
    will_not_help="more workers or a larger prefetch_factor: batches are ready already",
)
_UNPACKING: Final = Message(
    title="batch deserialization is significant at this step length",
    why="deserializing a ready batch takes {each}",
    evidence=(
        "{count:fetch|fetches} found a batch ready and took {each} each[[, not counting the {late} that busy workers "
        "add]]: deserialization, not starvation",
    ),
    fix="# larger batches, or fewer and larger tensors per batch[[\nDataLoader(..., num_workers=0)  # making a "
    "batch takes a worker {making} of CPU: faster, unless it also waits]]",
    will_not_help="more workers: batches are ready already",
)

# -- loaders that begin

_SLOWER_STARTS: Final = "more workers: each one makes start-up longer"
_OPTIONS: Final = "persistent_workers={persistent}[[, started by {method}]]"
_EACH_BATCH: Final = Message(
    title="iter(loader) is called for [[second?every second]][[!second?each]] batch ({starts:time} in {steps:step})",
    why="each iter(loader) starts {workers:worker}, stopped again after [[second?every second]][[!second?each]] "
    "batch: {starts:time}, {each} each",
    evidence=(
        "{starts:iterator} for {batches:batch|batches}, {each} each",
        "{drawing} of it to sample the indices, on {thread}",
        "{left} of it to [[workers?stop the workers]][[!workers?free the indices]]",
        "num_workers={workers}[[workers?, persistent_workers={persistent}]]",
        "!shuffles?without shuffling each iterator begins with the same batch",
    ),
    fix="[[anew?# make the loader once, too\n]]batches = iter(loader)  # once, before the loop\n"
    "batch = next(batches)  # at StopIteration: batches = iter(loader)",
    will_not_help="more workers, persistent_workers alone: each iterator still waits for its first batch",
)
_EACH_EPOCH: Final = Message(
    title="worker processes restart at every {epoch}",
    why="each iter(loader) starts {workers:worker}: {starts:time}, {each} each",
    evidence=(
        "{count} of {steps} steps wait for {workers:worker} to start: {starts:start}, {each} each",
        _OPTIONS,
        "the first took {first:s}, as the fork server imports the program then",
        "{stopping} of it to stop them at the end of the {epoch}",
        "the other {others:step} do not wait for it",
    ),
    fix="DataLoader(..., persistent_workers=True, num_workers={workers})[[imports?\n# or, if workers must restart: "
    "import once, in the fork server, before the first loader\n"
    'multiprocessing.set_forkserver_preload(["__main__", "torch"])]]'
    '[[by_spawn?\nDataLoader(..., multiprocessing_context="forkserver")]]',
    will_not_help=_SLOWER_STARTS,
)
_ONCE: Final = Message(
    title="worker start-up[[stopping? and stop]] took {cost:s} of this short run (longer runs pay it once)",
    why="{workers:worker} took {cost:s} to start and make the first batch[[stopping?, and to stop]]",
    evidence=(
        "stopping?{first:s} until the first batch",
        "{stopping:s} to stop them at the end of the {epoch}",
        _OPTIONS,
        "the other {others:step} do not wait for it",
    ),
    fix=NOTHING,
    will_not_help=_SLOWER_STARTS,
)
_EMPTY_QUEUE: Final = Message(
    title="the loop waits for the first batch of each {epoch}: none is prefetched",
    why="each {epoch} begins with an empty prefetch queue: {refills:time}, {each} each",
    evidence=(
        "{count} of {steps} steps wait for the first batch of a new {epoch}: {refills:time}, {each} each",
        "persistent_workers=True: the same {workers:worker} each time",
        "the other {others:step} do not wait for it",
    ),
    fix="# if each {epoch} may be longer, merge four into one:\n"
    "DataLoader(..., sampler=torch.utils.data.RandomSampler(dataset, num_samples=4 * len(dataset)))",
    will_not_help="more workers, or a larger prefetch_factor: one worker makes the first batch",
)

MESSAGES: Final[Messages] = {
    "TP101": _MADE_HERE,
    "TP102": _OF_WORKERS,
    "TP103": {
        "gil": _NOT_DELIVERED.but(why="{holder} holds the GIL[[ in {at}]]", fix="{fix}"),
        "pinning": _NOT_DELIVERED.but(why="the pin_memory thread holds batches up"),
        "queue": _NOT_DELIVERED,
        "busy": _NOT_DELIVERED.but(
            title="batches are ready, but busy workers hand them over late",
            why=f"{_COMPUTE} (on the CPU {{cpu}} of the time), and [[one?hands]][[!one?hand]] ready batches over only "
            "in between: getting one takes {each}",
            evidence=(
                "{count:fetch|fetches} found a batch ready and still took {each} each (usual: 1 to 2 ms)",
                "{workers:worker}[[!one?, each]] on the CPU {cpu} of the time, runnable in {running} of "
                "{looks:snapshot}",
                "the workers may use only {have:CPU} (CPU {allowed:,}) of the {possible} that {thread} may use",
            ),
            fix=f"[[roomy?{_UNPIN}\n]]# make samples of {{made}} cheaper: preprocess offline, or on the device\n"
            f"# return fewer, larger tensors per sample: each is handed over by itself[[tight?\n{_UNPIN}]]",
        ),
    },
    "TP104": {
        "each_batch": _EACH_BATCH,
        "each_batch_kept": _EACH_BATCH.but(
            why="each iter(loader) drops the prefetched batches, and starts with an empty queue: {starts:time}, {each} "
            "each",
            will_not_help="more workers, a larger prefetch_factor: prefetched batches are dropped with the iterator",
        ),
        "each_batch_in_process": _EACH_BATCH.but(
            why="each iter(loader) draws all indices again ({sampler}[[ of {length}]]): {starts:time}, {each} each",
            will_not_help="more workers, persistent_workers alone: {process} redraws the indices each time",
        ),
        "each_epoch": _EACH_EPOCH,
        "anew": _EACH_EPOCH.but(
            why=_EACH_EPOCH.why.replace("iter(loader)", "new DataLoader"),
            evidence=tuple(
                line.replace(_OPTIONS, f"each for a new DataLoader; {_OPTIONS}") for line in _EACH_EPOCH.evidence
            ),
            fix=f"# make the loader once, before {{training}}:\n{_EACH_EPOCH.fix}",
        ),
        "once": _ONCE,
        "empty_queue": _EMPTY_QUEUE,
        "empty_queue_of_stream": _EMPTY_QUEUE.but(
            fix="# if each {epoch} may be longer, let __iter__ loop over the data several times"
        ),
    },
    "TP105": {"unpacking": _UNPACKING},
    "TP106": {
        "by_scores": _SAMPLER.but(fix="# sample the indices of N batches at a time by the scores, in torch or NumPy"),
        "reading": _SAMPLER.but(
            why="the sampler reads data in {name}, on {thread}[[, and waits ({call})]]",
            fix="# once, before {training}, read what it selects by (length, label, size) into an array or file, and "
            "sample from that",
        ),
        "waiting": _SAMPLER.but(fix="# take the wait out of the sampler: read what it needs once, before {training}"),
        "computing": _SAMPLER,
    },
    "TP107": {
        "resumed": _DROPPED,
        "resumed_stream": _DROPPED.but(
            fix=_DROPPED.fix.partition("# skip indices")[0]
            + "# skip at the source: let {name}.__iter__ begin at sample n without making those before, "
            "or use torchdata's StatefulDataLoader and a dataset with state_dict()"
        ),
        "later": _DROPPED.but(
            title="{steps:step} fetched {batches} batches and did not train on them",
            why=_DROPPED.why.replace("before the first step", "in {steps:step}"),
            evidence=tuple(
                line.replace("in the first step, before its own,", "in {steps:step}") for line in _DROPPED.evidence
            ),
            fix="# if they are filtered out: filter indices in the sampler, or precompute the indices to keep, once\n"
            "# if this is validation: call model.eval() first, so that it counts as validation",
        ),
    },
}

TEXTS: Final = {
    "with_workers": "[[stream?# num_workers={workers}, once __iter__ reads only its worker's shard (get_worker_info): "
    "else each worker repeats the whole stream\n]]"
    "DataLoader(..., num_workers={workers}[[, prefetch_factor={ahead}]][[persistent?, persistent_workers=True]]"
    '[[spawn?, multiprocessing_context="spawn"]])[[  # {notes}]]',
    # Behind such code.
    "of_data": "of {name}",
    "once_free": "once CPUs are free: other processes use {others:.1f} of the {cpus}",
    "waits_then_overlap": "so waits overlap",
    "forked_wait": "fork could deadlock",
    "waits_overlap": "so their waits overlap",
    "cpus_here": "{cpus} CPUs here",
    # What the training thread does.
    "the_data": "the data",
    "is_read": "is read",
    "waits_in_call": "waits[[ ({call})]]",
    "computes": "computes",
    "library_code": "library code",
    "not_awaited": "not waited for: it did not run when waits ended",
    "maybe_awaited": "whether it is waited for is not known",
    "the_sampler": "the sampler",
    # Fixes for it.
    "begin_once": "# call iter(loader) once, before the loop; if it still waits, use workers:",
    "index_arrays": "# make the batch without a loop over samples: keep the data in tensors or arrays, and index them "
    "once:\nbatch = {{name: kept[indices] for name, kept in data.items()}}\n"
    "# if it must be read or decoded, and needs nothing that {training} changes: a Dataset, by DataLoader workers",
    "fetch_ahead": "# fetch the next batch in a thread while this one is computed:\n"
    "pool = concurrent.futures.ThreadPoolExecutor(1)\n"
    "coming = pool.submit(fetch)  # before the loop, and once coming.result() has given a batch",
    "compute_once": "# precompute what {work} makes, once, before {training}, or make it cheaper",
    "compute_once_or_in_workers": "# precompute what {work} makes, once, before {training}; or use workers, if CPUs "
    "are free:",
    "cheaper_helpers": "# make [[{work}]][[!work?the processes' work]] cheaper, or do it once, before {training}: it "
    "runs in processes already",
    "compute_awaited_once": "# precompute what it waits for, once, before {training}, or make it cheaper",
    "feed_faster": "# speed up the thread that feeds it",
    "feed_faster_in_each": "# speed up the thread that feeds it; with workers, start it in each of them (a fork "
    "copies no threads):",
    "hold_for_less": "# hold the lock for less time[[ in {awaited_at}]]",
    "hold_for_less_or_own": "# hold the lock for less time[[ in {awaited_at}]], or use one lock per worker:",
    "fill_before": "# if a cache fills in the first {few} steps: fill it before {training}, or keep it on disk\n"
    "# if files are read for the first time: let workers do it",
    "see_long_ones": "# {few:batch is|batches are} slow: inspect their samples",
    "see_long_ones_or_run_ahead": "# {few:batch is|batches are} slow: inspect their samples, or let workers prefetch "
    "them",
    "cheaper_sample": "# make samples of {name} cheaper: preprocess offline",
    "cheaper_batch": "# make batches of {name} cheaper: preprocess offline",
    "cheaper_collate": "# make {collate} cheaper: do its work on each sample offline",
    "yield_batches": "# yield whole batches in {name}.__iter__, with DataLoader(..., batch_size=None)",
    "make_batch_at_once": "# give class {own} a __getitems__(indices) that returns the list of samples, read at "
    "once:\nclass {own}:\n    def __getitems__(self, indices): ...",
    "wrap_data": "# read a whole batch at once: wrap {name} in your own class with __getitems__(self, indices), which "
    "returns the list of samples",
    "by_batch_sampler": "# fetch a whole batch by one indexing: a BatchSampler (torch.utils.data) as sampler, and "
    "batch_size=None:\n"
    "DataLoader(dataset, sampler=BatchSampler({sampler}, {size}, drop_last=False), batch_size=None)",
    # Who holds the GIL while batches are ready, and what to do about the thread that pins them.
    "pin_thread": "the pin_memory thread",
    "pin_less": "# give the pin_memory thread less work: fewer, larger tensors per batch; other work in collate_fn, "
    "which runs in workers",
    # Fixes for workers.
    "more_than_now": "DataLoader(..., num_workers=...)  # more than it has now",
    "look_longer": "# run longer to see whether the workers compute or wait\n# if they wait, or CPUs are free:",
    "run_ahead": "# let the workers prefetch more (prefetch_factor); if they wait, or CPUs are free, also add workers:",
    "any_order": "DataLoader(..., in_order=False)  # a batch comes as soon as it is ready: "
    "[[stream?faster workers return more, ]]the order varies between runs",
    "its_sampler": "its sampler",
    # By the kind of library that takes most of it.
    "cheaper_images": "# images: resize them once on disk; of a JPEG, image.draft('RGB', size) after Image.open "
    "decodes a smaller one",
    "cheaper_transforms": "# transforms: shrink first, then augment; or torchvision.transforms.v2 on whole batches "
    "of tensors, on the device",
    "cheaper_sound": "# audio: decode and resample once, and keep arrays: numpy.save, then numpy.load(path, "
    "mmap_mode='r')",
    "cheaper_text": "# text formats: parse once, and keep arrays (numpy.save, then numpy.load(path, "
    "mmap_mode='r')) or an Arrow table",
    "cheaper_table": "# pandas: take the columns out once in __init__ (df['x'].to_numpy()): a DataFrame builds "
    "each row anew",
    "cheaper_rows": "# rows of a table: [[!times?read many at once (dataset[indices], dataset.with_format('torch')), "
    "and only the columns that are used]][[times?if most of what is read is not used, use all rows of a row group "
    "before the next, or write smaller ones (row_group_size), and read only the columns that are used]]",
    "cheaper_chunks": "# chunked files: [[times?if most of what is read is not used, ]]write one chunk for each sample "
    "or batch, or keep chunks in a larger cache (h5py.File(path, rdcc_nbytes=...))",
    "cheaper_archive": "# compressed files: unpack them once before training; or a codec that decodes faster "
    "(zstd, lz4)",
    "cheaper_remote": "# remote files: copy them to a local disk once[[!times?; or read larger pieces (fsspec: "
    "block_size, cache_type='readahead')]][[times?; or, if most of what is read is not used, read less at a time "
    "(fsspec: a smaller block_size, or cache_type='none')]]",
    "cheaper_tokens": "# tokens: tokenize once before training; dataset.map(tokenize, batched=True) keeps the result",
    "cheaper_tensors": "# arrays: [[!times?many samples in one file, opened once: ]][[times?if most of what is read is "
    "not used: ]]numpy.load(path, mmap_mode='r'), or torch.load(path, mmap=True)[[times?, which read what is indexed]]",
    # Which of a loader's workers still read.
    "so_many": "{fewest} of {workers}",
    "from_to": "{fewest} to {most} of {workers}",
    # Why the confidence is what it is.
    "threads_inferred": "that it waits for those threads is inferred",
    "other_use": "whether something else uses them, such as statistics of the data, is not measured",
    "looks": "{steps:step}, {looks:snapshot} of the workers",
    "few_looks": "{steps:step}, {looks:snapshot} of the workers: too few",
    "workers_untraced": "what the workers do was not recorded",
}

UNSURE: Final[Doubts] = {
    "one_start": "one worker start-up in {steps:step}: too few steps to judge",
}
