"""The words of findings about data: DataLoaders, their workers, and what is fetched without them."""

from __future__ import annotations

from typing import Final

from trainperf.findings.messages.catalogue import Doubts, Message, Messages
from trainperf.findings.messages.general import NOTHING

_FILTER: Final = (
    "[[# {each_backward:.0f} batches are fetched for each backward: if the loop drops some, filter before they are "
    "made, in the sampler or by an index\n]]"
)

# -- batches that the training thread makes

_FETCHED: Final = (
    "{spots.share} of its {samples:sample} are in {spots.place}",
    "other threads of this process use {busy:.1f} CPUs or more, beside torch's",
    "meanwhile {beside.name} is in {beside.place} for {beside.share} of it[[; {beside.doubt}]]",
)
_STARVED: Final = Message(
    title="data loading runs in {process}",
    why="[[{awaited} is in {awaited_at} while ]]{at} {doing} on {thread}"
    "[[: most of it library code, called by {library_by}]][[busy?, while other threads of this process compute]]",
    evidence=(
        "fetching takes {each} of each step's {step}[[; {on_cpu} of it on the CPU, {blocked} blocked]][[ in {call}]]",
        *_FETCHED,
        "num_workers=0, {usable:CPU} usable",
    ),
    fix=f"{_FILTER}{{fix:\n}}",
)
_MADE_HERE: Final = {
    "cheaper": _STARVED.but(
        will_not_help="workers: to pass on a ready batch costs 1.2 to 1.9 ms, [[small?more than]][[!small?much of]] "
        "this wait"
    ),
    "ahead": _STARVED,
    "threads": _STARVED.but(will_not_help="more workers than CPUs: what it waits for computes"),
    "one_cpu": _STARVED.but(will_not_help="num_workers: there is one CPU, which {training} and loading would share"),
    "lock": _STARVED.but(
        will_not_help="workers by fork: a lock stays as it was held, and this process' threads are in none of them"
    ),
    "waiting": _STARVED.but(
        will_not_help="[[overlaps?cheaper transforms or a faster CPU: the dataset waits, it does not compute]]"
    ),
    "computing": _STARVED.but(will_not_help="pin_memory or prefetch_factor: nothing is prefetched with num_workers=0"),
    "filling": _STARVED.but(will_not_help="workers, where a cache fills: each has its own, and fills it anew"),
    "seldom": _STARVED.but(
        will_not_help="more workers alone: batches come in order, and each worker is only two ahead"
    ),
}
_SAMPLER: Final = Message(
    title="the loop waits for its sampler",
    why="{name} draws the batches' indices on {thread}[[, and waits ({call})]]",
    evidence=(
        "drawing the batches' indices takes {each} of each step's {step}, on {thread}",
        "the rest of the fetches takes another {rest} a step",
        "{share} of its {samples:sample} are in {place}",
        "it waits: the system call is {call}",
        "{workers:worker}, which read the data and draw no indices",
    ),
    fix="# draw all indices of the {epoch} at once in __iter__, by torch or NumPy, and yield slices of them",
    will_not_help="more workers or a larger prefetch_factor: the sampler runs in {process}",
)
_DROPPED: Final = Message(
    title="{batches} batches were made and dropped before the first step",
    why="{batches} batches of {name} were made [[by {workers:worker}]][[!workers?on {thread}]] before the first step"
    "[[, fetched by {caller}]]",
    evidence=(
        "{batches} batches fetched before the first step and not trained on: {all} in all, {each} each",
        "a usual step fetches {usual:batch|batches}",
        *_FETCHED,
    ),
    fix="[[in_trainer?TrainingArguments(ignore_data_skip=True)  # if {training} may see the first batches again; "
    "or:\n]]"
    "# skip indices, not batches: torchdata's StatefulDataLoader, accelerate.skip_first_batches(loader, n),\n"
    "# or itertools.islice(sampler, seen, None) in the sampler's __iter__",
    will_not_help="more workers: they would make the dropped batches, too",
)

# -- workers that make batches too slowly

_WHO: Final = "[[{workers:worker}]][[!workers?the workers]] of {name}"
_COMPUTE: Final = f"{_WHO} [[one?computes]][[!one?compute]]"
_CHEAPER: Final = f"{_FILTER}# make one sample of {{made}} cheaper: decode ahead of {{training}}, or on the device"
_OR_STOP_OTHERS: Final = f"{_CHEAPER}[[stop_others?; or stop what else runs]]"
_NO_ROOM: Final = (
    "there is no CPU for more of them: {cpus:CPU}[[, of which other processes use {others:.1f},]] for "
    "{workers:worker} and {training}"
)
_SAME_CPUS: Final = "more workers: they would wait for the same CPUs"

_TOO_SLOW: Final = Message(
    title="the DataLoader's workers are too slow",
    why=f"{_WHO} [[one?is]][[!one?are]] too slow; whether [[one?it computes or waits]][[!one?they compute or wait]] "
    "was not seen for long enough",
    evidence=(
        "{total:fetch|fetches} took {unseen_each} each; whether a batch was ready was not seen",
        "{empty} of {total} fetches found no batch ready, and waited {empty_each} each",
        "{ready} of {total} fetches [[just_made?took a batch that had only just been made, which took]]"
        "[[!just_made?found a batch ready, and took]] {ready_each} each",
        "{lone:fetch|fetches} waited {lone_each} each [[while {left} workers still read]]"
        "[[!left?for one worker, as the others had nothing left to do]]",
        "{locked} of the looks at the workers' system calls: a futex, flock or fcntl lock",
        "unread?the workers' CPU time was not seen[[looked? (they lived under two seconds)]]",
        "only {few_looks:look} at the workers: too few to tell whether they compute or wait",
        "{count:worker}, [[several?each ]]on the CPU {cpu} of the time[[several? (the busiest {slowest})]], ready to "
        "run at {running} of {looks:look} at the workers",
        "{kept_off} of each step {thread} is ready to run, and waits for a CPU that the workers have",
        "{usable:CPU} usable",
    ),
    fix=f"{_FILTER}{{fix:\n}}",
    will_not_help="pin_memory[[further?: the wait is for a batch to be made]]"
    "[[!further?, or a larger prefetch_factor: the queue is empty]]",
)
_BY_CALL: Final = f"{_FILTER}{{call}}"
_BOUND: Final = _TOO_SLOW.but(title="the DataLoader's workers are CPU-bound")
_OF_WORKERS: Final = {
    "unseen": _TOO_SLOW,
    "untraced": _TOO_SLOW.but(why=_TOO_SLOW.why.replace("was not seen for long enough", "is in no trace")),
    "busiest": _TOO_SLOW.but(
        why=f"{_WHO} wait for the busiest of them, which computes all the time (on the CPU {{slowest}}, all of them "
        "{cpu} on average)[[passes_on?, as it has more to do than they have]]"
        "[[!passes_on?: batches are passed on in order]]",
        fix=f"{_FILTER}# make the batches of {{name}} cost alike (mix long and short samples), and its long ones "
        "cheaper[[\n{any_order}]]",
    ),
    "locked": _TOO_SLOW.but(
        title="the DataLoader's workers wait for one another, at a lock that they share",
        why=f"{_WHO} are in a wait for a lock of several processes {{locked}} of the time: one at a time works",
        fix=f"{_FILTER}# one handle for each worker, without the lock: open the file in worker_init_fn, or at the "
        "first __getitem__\n# or split the data into a file for each worker",
        will_not_help="more workers, or a larger prefetch_factor: one worker at a time gets the lock",
    ),
    "waiting": _TOO_SLOW.but(
        title="the DataLoader's workers wait for something",
        why=f"{_WHO} [[one?waits itself]][[!one?wait themselves]] (on the CPU only {{cpu}} of the time: storage, "
        "network or a lock)",
        fix=_BY_CALL,
        will_not_help="cheaper transforms[[!few_are_late?, or a larger prefetch_factor]]: the workers do not compute, "
        "they wait",
    ),
    "partly": _TOO_SLOW.but(
        why=f"{_COMPUTE} for {{cpu}} of the time, and [[one?waits]][[!one?wait]] for the rest (for storage, network, "
        "a lock or a CPU, or to be asked for more)",
        fix=_BY_CALL,
    ),
    "partly_no_room": _TOO_SLOW.but(
        why=f"{_COMPUTE} for {{cpu}} of the time, and {_NO_ROOM}", fix=_OR_STOP_OTHERS, will_not_help=_SAME_CPUS
    ),
    "computing": _BOUND.but(why=f"{_COMPUTE} all the time (on the CPU {{cpu}})", fix=_BY_CALL),
    "no_room": _BOUND.but(
        why=f"{_COMPUTE} all the time (on the CPU {{cpu}}), and {_NO_ROOM}",
        fix=_OR_STOP_OTHERS,
        will_not_help=_SAME_CPUS,
    ),
    "all_cpus": _BOUND.but(
        why=f"{_COMPUTE} [[short?whenever they get one]][[!short?all the time]] (on the CPU {{cpu}}), on {{cpus:CPU}}",
        fix=_CHEAPER,
        will_not_help="more workers: {cpus:CPU} for {workers:worker} and {training} are all in use",
    ),
    "crowded": _BOUND.but(
        why=f"{_COMPUTE}, but [[one?gets]][[!one?get]] a CPU only {{cpu}} of the time: the CPUs are busy with others",
        fix=f"{_FILTER}# free the CPUs: [[threads?fewer torch threads (torch.set_num_threads), ]]stop what else runs",
        will_not_help=_SAME_CPUS,
    ),
    "kept_off": _BOUND.but(
        why=f"{_COMPUTE}, but [[one?gets]][[!one?get]] a CPU only {{cpu}} of the time",
        fix=f"{_FILTER}# see which CPUs they may use (taskset, a container's cpuset), and what else runs there",
        will_not_help=_SAME_CPUS,
    ),
    "unlike_parts": _TOO_SLOW.but(
        title="some DataLoader workers have read their parts long before the others",
        why="for {lone} of {of} batches only {left} workers of {name} still read: the others had read their parts, "
        "which are smaller, or quicker to read",
        fix=f"{_FILTER}# give each worker an even part: every n-th sample, or one of many small files\n"
        "info = get_worker_info()  # in __iter__\n"
        "samples = itertools.islice(samples, info.id, None, info.num_workers)",
        will_not_help="more workers, unless they split the largest part",
    ),
    "one_worker": _TOO_SLOW.but(
        title="one DataLoader worker is slower than the others",
        why="{own} of {of} batches wait for worker {worker} of {workers} of {name}: the others are ahead",
        fix=f"{_FILTER}[[{{any_order}}\n]]# see what is slow in [[stream?its part of {{name}}: the samples, the file "
        "or disk]][[!stream?it: each {workers}th batch is its, and where nothing shuffles of the same samples]]",
        will_not_help="pin_memory, or a larger prefetch_factor: the others are ahead already",
    ),
    "long_batches": _TOO_SLOW.but(
        title="some batches take the DataLoader's workers longer than others",
        why="{lone} of {of} batches wait for one of {workers:worker} of {name}: the others are ahead, and batches are "
        "passed on in order",
        fix=f"{_FILTER}[[{{any_order}}\n]][[DataLoader(..., prefetch_factor={{ahead}})  # the others go on while one "
        "makes a long batch\n]]# or make the batches of {name} cost alike: mix long and short samples",
        will_not_help="pin_memory: the wait is for a batch to be made",
    ),
}

# -- batches that are ready

_NOT_DELIVERED: Final = Message(
    title="batches are ready but are not delivered",
    why="taking a batch of {name} out of its queue is slow (large or many tensors)",
    evidence=(
        "{count:fetch|fetches} found a batch ready and still took {each} each (usual: 1 to 2 ms)",
        "{gil} of {waited} is waiting for the GIL",
        "pin_memory={pinned}",
    ),
    fix="# return fewer, larger tensors per sample; collate into one tensor",
    will_not_help="more workers or a larger prefetch_factor: batches are ready already",
)
_UNPACKING: Final = Message(
    title="batch deserialization is significant at this step length",
    why="deserialising a ready batch takes {each}",
    evidence=("{count:fetch|fetches} found a batch ready and took {each} each: deserialising, not starvation",),
    fix="# larger batches, or fewer and larger tensors per batch[[\nDataLoader(..., num_workers=0)  # to make a batch "
    "takes a worker {making} of CPU; if it waits for nothing, this is faster]]",
    will_not_help="more workers: batches are ready already",
)

# -- loaders that begin

_SLOWER_STARTS: Final = "more workers: each one makes the start longer"
_OPTIONS: Final = "persistent_workers={persistent}[[, started by {method}]]"
_EACH_BATCH: Final = Message(
    title="the DataLoader begins again for [[second?every second]][[!second?each]] batch ({starts:time} in "
    "{steps:step})",
    why="each iter(loader) starts {workers:worker}, to be stopped again after [[second?every second]][[!second?each]] "
    "batch: {starts:time}, {each} each",
    evidence=(
        "{starts:start} for {batches:batch|batches}, {each} each",
        "{drawing} of it to draw the indices, on {thread}",
        "{left} of it to [[workers?stop the workers]][[!workers?free the indices]]",
        "num_workers={workers}[[workers?, persistent_workers={persistent}]]",
        "!shuffles?a loader that does not shuffle begins with the same batch each time",
    ),
    fix="[[anew?# make the loader once, too\n]]batches = iter(loader)  # once, before the loop\n"
    "batch = next(batches)  # at StopIteration: batches = iter(loader)",
    will_not_help="more workers, persistent_workers alone: each start would still wait for its first batch",
)
_EACH_EPOCH: Final = Message(
    title="worker processes start again at every {epoch}",
    why="each iter(loader) starts {workers:worker}: {starts:time}, {each} each",
    evidence=(
        "{count} of {steps} steps wait for {workers:worker} to start: {starts:start}, {each} each",
        _OPTIONS,
        "the first took {first:s}, as the fork server imports the program then",
        "{stopping} of it to stop them at the end of the {epoch}",
        "the other {others:step} do not wait for it",
    ),
    fix="DataLoader(..., persistent_workers=True, num_workers={workers})[[imports?\n# or, where workers must start "
    "again: import once, in the fork server, before the first loader\n"
    'multiprocessing.set_forkserver_preload(["__main__", "torch"])]]'
    '[[by_spawn?\nDataLoader(..., multiprocessing_context="forkserver")]]',
    will_not_help=_SLOWER_STARTS,
)
_ONCE: Final = Message(
    title="worker start-up[[stopping? and stop]] took {cost:s} of this short run (longer runs pay it once)",
    why="the first batch came after {first:s}, which {workers:worker} took to start and make it",
    evidence=(
        "{first:s} until the first batch: {workers:worker} start, import, and make it",
        "{stopping:s} to stop them at the end of the {epoch}",
        _OPTIONS,
        "the other {others:step} do not wait for it",
    ),
    fix=NOTHING,
    will_not_help=_SLOWER_STARTS,
)
_EMPTY_QUEUE: Final = Message(
    title="the first batch of each {epoch} waits, as the prefetch queue starts empty",
    why="each {epoch} begins with an empty prefetch queue: {refills:time}, {each} each",
    evidence=(
        "{count} of {steps} steps wait for the first batch of a new {epoch}: {refills:time}, {each} each",
        "persistent_workers=True: the same {workers:worker} each time",
        "the other {others:step} do not wait for it",
    ),
    fix="# make each {epoch} longer, where it need not be short; four in one:\n"
    "DataLoader(..., sampler=torch.utils.data.RandomSampler(dataset, num_samples=4 * len(dataset)))",
    will_not_help="more workers, or a larger prefetch_factor: one worker makes the first batch",
)

MESSAGES: Final[Messages] = {
    "TP101": _MADE_HERE,
    "TP102": _OF_WORKERS,
    "TP103": {
        "gil": _NOT_DELIVERED.but(
            why="{holder} holds the GIL[[ in {at}]]",
            fix="# move that thread's work into a process:\nconcurrent.futures.ProcessPoolExecutor(1).submit(work)",
        ),
        "pinning": _NOT_DELIVERED.but(why="the pin-memory thread has not passed it on"),
        "queue": _NOT_DELIVERED,
    },
    "TP104": {
        "each_batch": _EACH_BATCH,
        "each_batch_kept": _EACH_BATCH.but(
            why="each iter(loader) begins with an empty prefetch queue, and throws away what is in it: {starts:time}, "
            "{each} each",
            will_not_help="more workers, a larger prefetch_factor: no batch is made ahead of an iterator that is "
            "thrown away",
        ),
        "each_batch_in_process": _EACH_BATCH.but(
            why="each iter(loader) draws all indices again ({sampler}[[ of {length}]]): {starts:time}, {each} each",
            will_not_help="more workers, persistent_workers alone: {process} draws the indices, again at each start",
        ),
        "each_epoch": _EACH_EPOCH,
        "anew": _EACH_EPOCH.but(
            why=_EACH_EPOCH.why.replace("iter(loader)", "new DataLoader"),
            evidence=tuple(
                line.replace(_OPTIONS, f"each time of a new loader; {_OPTIONS}") for line in _EACH_EPOCH.evidence
            ),
            fix=f"# make the loader once, before {{training}}:\n{_EACH_EPOCH.fix}",
        ),
        "once": _ONCE,
        "empty_queue": _EMPTY_QUEUE,
        "empty_queue_of_stream": _EMPTY_QUEUE.but(
            fix="# make each {epoch} longer, where it need not be short: __iter__ reads the data several times"
        ),
    },
    "TP105": {"unpacking": _UNPACKING},
    "TP106": {
        "by_scores": _SAMPLER.but(
            fix="# choose by scores of {training} for many batches at a time: again every N batches, by torch or NumPy"
        ),
        "reading": _SAMPLER.but(
            fix="# what it decides by (length, label, size): read it once, before {training}, into an array or a "
            "file, and choose by that"
        ),
        "waiting": _SAMPLER.but(fix="# take the wait out of the sampler: read what it needs once, before {training}"),
        "computing": _SAMPLER,
    },
    "TP107": {
        "resumed": _DROPPED,
        "resumed_stream": _DROPPED.but(
            fix=_DROPPED.fix.partition("# skip indices")[0]
            + "# skip at the source: let {name}.__iter__ begin at sample n without making those before,\n"
            "# or torchdata's StatefulDataLoader and a dataset with state_dict()"
        ),
        "later": _DROPPED.but(
            title="{batches} batches were fetched and not trained on in {steps:step}",
            why=_DROPPED.why.replace("before the first step", "in {steps:step}"),
            evidence=tuple(line.replace("before the first step", "in {steps:step}") for line in _DROPPED.evidence),
            fix="# if they are dropped: do so before they are made, in the sampler, or by an index of the data made "
            "once\n# if they validate: call model.eval() before, so that they count as validation",
        ),
    },
}

TEXTS: Final = {
    "with_workers": "[[stream?# num_workers={workers}, once __iter__ reads only its worker's part (get_worker_info): "
    "else each repeats the whole stream\n]]"
    "DataLoader(..., num_workers={workers}[[, prefetch_factor={ahead}]][[persistent?, persistent_workers=True]]"
    '[[spawn?, multiprocessing_context="spawn"]])[[  # {notes}]]',
    # Behind such code.
    "of_data": "of {name}",
    "once_free": "once CPUs are free: others use {others:.1f} of the {cpus}",
    "waits_then_overlap": "its waits then overlap",
    "forked_wait": "forked, they would wait for ever",
    "waits_overlap": "their waits overlap",
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
    "begin_once": "# batches = iter(loader) once, before the loop; if it waits then, workers that start once:",
    "make_ahead": "# make batches ahead: {name} as an IterableDataset[[several?, of which each worker reads its "
    "own part (get_worker_info)]], in a DataLoader(..., num_workers={workers})",
    "compute_once": "# compute what {work} makes once, before {training}, or make it cheaper",
    "compute_once_or_in_workers": "# compute what {work} makes once, before {training}, or in workers, as far as CPUs "
    "are free:",
    "compute_awaited_once": "# compute what it waits for once, before {training}, or make it cheaper",
    "feed_faster": "# make what feeds it faster",
    "feed_faster_in_each": "# make what feeds it faster; in workers, make it in each of them: a fork takes no threads "
    "along:",
    "hold_for_less": "# hold the lock for less[[ in {awaited_at}]]",
    "hold_for_less_or_own": "# hold the lock for less[[ in {awaited_at}]], or give each worker its own:",
    "fill_before": "# if a cache fills in the first {few} steps: fill it before {training}, or keep it on disk\n"
    "# if files are read for the first time: by workers, ahead",
    "see_long_ones": "# {few:batch takes|batches take} long: see what their samples have",
    "see_long_ones_or_run_ahead": "# {few:batch takes|batches take} long: see what their samples have, or let workers "
    "run ahead of them",
    "cheaper_sample": "# make one sample of {name} cheaper, or decode ahead of {training}",
    "cheaper_batch": "# make a batch of {name} cheaper, or do ahead of {training} what it does",
    "cheaper_collate": "# make {collate} cheaper: do ahead of {training} what it does for each sample",
    "yield_batches": "# yield whole batches in {name}.__iter__, with DataLoader(..., batch_size=None)",
    "make_batch_at_once": "# give class {own} a __getitems__(indices) that makes a whole batch at once, by one "
    "indexing:\nclass {own}:\n    def __getitems__(self, indices): ...",
    "wrap_data": "# index a whole batch at once: wrap {name} in a class of yours with __getitems__(self, indices)",
    "by_batch_sampler": "# fetch a whole batch by one indexing: a BatchSampler (torch.utils.data) as sampler, and "
    "batch_size=None:\n"
    "DataLoader(dataset, sampler=BatchSampler({sampler}, {size}, drop_last=False), batch_size=None)",
    # Fixes for workers.
    "more_than_now": "DataLoader(..., num_workers=...)  # more than it has now",
    "look_longer": "# run longer to see whether the workers compute or wait\n# if they wait, or CPUs are free:",
    "run_ahead": "# let the workers run further ahead (prefetch_factor); if they wait, or CPUs are free, also more:",
    "any_order": "DataLoader(..., in_order=False)  # [[stream?take batches as they are made: the faster workers' come "
    "more often]][[!stream?a batch is passed on when it is made]]",
    "its_sampler": "its sampler",
    # Which of a loader's workers still read.
    "so_many": "{fewest} of {workers}",
    "from_to": "{fewest} to {most} of {workers}",
    # Why the confidence is what it is.
    "threads_inferred": "that it waits for those threads is inferred",
    "other_use": "whether something else uses them, such as statistics of the data, is not measured",
    "looks": "{steps:step}, {looks:look} at the workers",
    "few_looks": "{steps:step}, {looks:look} at the workers: too few",
    "workers_untraced": "what the workers do was not seen",
}

UNSURE: Final[Doubts] = {
    "one_start": "one worker start-up in {steps:step}: run longer to tell",
}
