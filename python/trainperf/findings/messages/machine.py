"""The words of findings about the CPUs that a run gets, Python's garbage collector, and memory."""

from __future__ import annotations

from typing import Final

from trainperf.findings.text import Doubts, Message, Messages

# -- CPUs

_WAITS: Final = "for {each} of each step's {step} {thread} is runnable but has no CPU"
_COMPETE: Final = "more threads or workers: they compete for the same CPUs"
# At the default priority a process takes the CPUs from training as a thread does.
_NICE: Final = "a process that calls os.nice(19)"
_LED: Final = "[[led?# stop the other processes, and fix this run's own threads:\n]]"

_UNCLEAR: Final = Message(
    title="{thread} waits for a CPU",
    brief="{thread} waits for a CPU",
    why="who else ran is not clear",
    evidence=(
        _WAITS,
        "{load}",
        "{kids.said}",
        "{shared} torch threads share each operation: while one has no CPU the others wait for it, which counts as "
        "compute",
        "{cpus:CPU} usable[[ of the machine's {machine}]][[; torch threads: {threads}]]; DataLoader workers: {workers}",
    ),
    fix="# look at what else runs:\ntop -H",
    will_not_help="a larger batch, pin_memory: too few CPUs are free",
)
_CHILDREN: Final = _UNCLEAR.but(
    title="child processes use up the CPUs",
    brief="child processes use up the CPUs",
    why="[[{kid}]][[!kid?child processes use {children:.1f} CPUs]]",
    fix="# start them with `nice -n 19`, at another time, or fewer at once; `ps` lists them below this process:\n"
    "ps -e --forest -o pid,pcpu,args",
)
_BOTH: Final = _UNCLEAR.but(
    title="{thread} waits for a CPU: its {named: and } and other processes compete",
    brief="its {named: and } and other processes compete",
    why="of {cpus:usable CPU}, {used:, }, other processes {others:.1f}[[elsewhere? or more]]",
    fix="# stop the others, or run them at another time",
    will_not_help=_COMPETE,
)
_OWN: Final = _UNCLEAR.but(
    title="{thread} waits for a CPU: {compete}",
    brief="{compete}",
    why="{own}[[, other processes {others:.1f}]]",
    fix=f"{_LED}# start fewer threads, make them sleep between polls, or move their work to {_NICE}\n"
    "top -H -p PID  # lists them",
    will_not_help=_COMPETE,
)
_HOLDS: Final = "; most of their Python runs in {holder}[[, in {place}]], which holds the GIL {gil} of the time"

_OVER: Final = Message(
    title="CPU oversubscription: {wanted} threads and processes on {have}",
    why="[[{ranks:rank} with ]]{threads:torch thread}[[ and {workers:worker}]][[ranks? each]] share {have}",
    evidence=(
        _WAITS,
        "layers that took {many_took} were run again on {few:thread}: {few_took}",
        "for {stopped} a step the container's quota throttles it",
        "{load}",
        "{kids.said}",
    ),
    fix="[[torchrun?OMP_NUM_THREADS={fewer} torchrun ...  # or ]][[threaded?torch.set_num_threads({fewer})]]"
    "[[!threaded?# add CPUs or raise the quota]][[ranks?, or start fewer ranks]]",
    will_not_help=_COMPETE,
)
_PINNED: Final = Message(
    title="CPU affinity limits this process to {have} of {possible} CPUs, so it waits for a CPU",
    why="the affinity was {have:CPU} when the watch began: by taskset, numactl, a job scheduler, or a library imported "
    "before",
    evidence=(
        _WAITS,
        "for {for_data} of each step's {step} it waits for workers that share these CPUs",
        "allowed CPU IDs: {allowed:,}[[, {dots}]]; {idle:.1f} CPUs of the machine are idle on average",
        "{inherited:worker} inherited the affinity",
        "{load}",
    ),
    fix="# start it with more CPUs (taskset -c, numactl, --cpus-per-task), or at its start:\n{widen}",
    will_not_help="more threads or workers: they get the same CPUs",
)
_BEFORE_WORKERS: Final = "[[with_workers?, before the DataLoader starts its workers]]"
_UNSET: Final = "{command}  # or, after the imports:\n{widen}"
_NARROWED: Final = "the affinity was narrowed to {have:CPU} {when}: by a native library"

_SELDOM: Final = "if step % 500 == 0: gc.collect()"
_FREEZE: Final = f"gc.collect(); gc.freeze(); gc.disable()  # once, after setup\n{_SELDOM}"
_GC: Final = Message(
    title="garbage collections stop {thread}",
    why="generation-2 collections scan every live object, except those frozen by gc.freeze()",
    evidence=(
        "{generations.name}: {generations.count:collection}, {generations.each} each",
        "the longest took {longest}",
        "{few} of {steps} steps have nearly all of it",
    ),
    fix=_FREEZE,
    will_not_help="gc.disable() alone: cycles leak; gc.freeze() alone: objects made in the loop are still scanned",
)
_YOUNG_FIX: Final = f"gc.disable()  # and in the loop, for cycles:\n{_SELDOM}"
_ASKED: Final = _GC.but(
    title="gc.collect() in the loop ({full:time}) stops {thread}",
    why="{place} calls gc.collect(), a full collection, which scans every live object",
    fix="# remove gc.collect() from the loop (with gc enabled Python collects by itself), or call it every N steps:\n"
    f"{_SELDOM}",
    will_not_help="gc.disable(): these calls are explicit",
)

# -- memory

_KEPT: Final = "something keeps each step's objects (not identified): a list of tensors, a cache, a log"
_FIND: Final = (
    "# find what is kept from step to step, a list of tensors, a cache, a log:\n"
    "[[!inference?losses.append(loss.item())  # if losses: a kept loss keeps its whole graph]]"
    "[[inference?outputs.append(output.cpu())  # if outputs: a kept output keeps its memory]]"
)
_GROWS: Final = Message(
    title="[[!on_gpu?the process's memory]][[{on_gpu}'s memory]] grows by {each} a step",
    why=_KEPT,
    evidence=(
        "from {before} to {after}[[ on {on_gpu}]] in {seconds:.0f} s: {minute} a minute",
        "steady over {readings:reading}: the run's first quarter[[!on_gpu? and mapped files are]][[on_gpu? is]] not "
        "counted",
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
        "looking at {objects:object} stopped the training thread for {pauses} ms, counted as trainperf's own cost",
    ),
    brief="{keeper} keeps {kept} a step[[early?, so far]]",
)
_RUN_ON: Final = f"# run for a few minutes: settling stops; if it still grows:\n{_FIND}"

MESSAGES: Final[Messages] = {
    "TP303": {
        "generation_0": _GC.but(
            why="generation-0 collections scan objects made since the last one: the loop makes many objects",
            fix=_YOUNG_FIX,
        ),
        "generation_1": _GC.but(
            why="generation-1 collections scan young objects: the loop makes many that stay alive",
            fix=_YOUNG_FIX,
        ),
        "generation_2": _GC,
        "incremental": _GC.but(
            why="each collection scans the young generation and a part of the old one: the loop makes many objects"
        ),
        "asked": _ASKED,
        "asked_by_library": _ASKED.but(
            why="the loop, or a library in it, calls gc.collect(), a full collection, which scans every live object",
            fix=f"{_ASKED.fix}  # in a library: find its option",
        ),
    },
    "TP307": {
        "unclear": _UNCLEAR,
        "too_short": _UNCLEAR.but(why="the watch was too short to see who else ran"),
        "children": _CHILDREN,
        "children_and_threads": _CHILDREN.but(
            fix=f"torch.set_num_threads({{fewer}})  # leaves them their CPUs; or {_CHILDREN.fix.removeprefix('# ')}"
        ),
        "children_start": _CHILDREN.but(
            title="child processes use up the CPUs as they start",
            brief="child processes use up the CPUs as they start",
            fix="# start them earlier, and wait for a first result before {training}\n"
            "# or make their start cheaper: a spawned process imports all that the main module imports",
            will_not_help="cheaper tasks, a larger batch: the start takes the CPUs, and a longer run pays it once",
        ),
        "others": _UNCLEAR.but(
            title="other processes use the CPUs",
            brief="other processes use the CPUs",
            why="[[!elsewhere?other processes use {others:.1f} CPUs]]"
            "[[elsewhere?other processes use {others:.1f} or more of the CPUs that this one may use]]{beside}",
            fix="{fix}",
            will_not_help=_COMPETE,
        ),
        "both": _BOTH,
        "both_many_workers": _BOTH.but(fix="DataLoader(..., num_workers={cpus})  # and stop the others"),
        "own_native": _OWN.but(
            why="{own}[[, other processes {others:.1f}]]: from libraries (OpenMP, OpenBLAS, tokenizers)"
            "[[torch_more?, or from torch if set_num_threads is higher in a part of the run]]"
            "[[; {holder} may start them in {place}]]",
            fix=f"{_LED}{{limits}}",
        ),
        "own_threads": _OWN,
        "own_computing": _OWN.but(
            why=f"{_OWN.why}{_HOLDS}",
            fix=f"{_LED}# start fewer threads, move {{work}} to {_NICE}, or run it after {{training}}",
        ),
        "own_polling": _OWN.but(
            why=f"{_OWN.why}{_HOLDS}",
            fix=f"{_LED}# make {{holder}} sleep between polls, move {{work}} to {_NICE}, or run it after {{training}}",
        ),
    },
    "TP308": {
        "quota": Message(
            title="the container's CPU quota throttles {training}",
            why="the cgroup's quota is used up, so all threads wait for its next period",
            evidence=(
                "for {each} of each step's {step} the kernel keeps the process off the CPU",
                "the process gets {used:.1f} CPUs[[; torch uses {threads} threads]]",
                "quota: {quota}[[ since step {since}, {before} before]]",
            ),
            fix="[[threaded?torch.set_num_threads({room})  # or ]][[!threaded?# ]]raise the limit: docker run --cpus, "
            "resources.limits.cpu",
            will_not_help="more workers or more threads: they use the quota up sooner",
        )
    },
    "TP602": {
        "threads": _OVER,
        "cheaper_samples": _OVER.but(fix="# the loop waits for its workers: add CPUs, or make their samples cheaper"),
        "workers": _OVER.but(
            fix="DataLoader(..., num_workers={fewer_workers})[[threaded?\ntorch.set_num_threads({fewer})]]"
            "[[torchrun?  # or OMP_NUM_THREADS={fewer} torchrun ...]]"
        ),
    },
    "TP604": {
        "call": _PINNED.but(
            why="{function} ({place}) called os.sched_setaffinity {when}: {have:CPU} left",
            fix=f"# remove the call at {{place}}, or undo it right after{_BEFORE_WORKERS}:\n{{widen}}",
        ),
        "narrowed_by_settings": _PINNED.but(why=f"{_NARROWED}; {{settings:,}} is set", fix=_UNSET),
        "narrowed": _PINNED.but(
            why=f"{_NARROWED}, or another process",
            fix=f"# widen it again after the imports{_BEFORE_WORKERS}:\n{{widen}}",
        ),
        "started_by_settings": _PINNED.but(
            why="the affinity was {have:CPU} when the watch began: {settings:,} is set", fix=_UNSET
        ),
        "started": _PINNED,
    },
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
        "kept_sum": _KEEPS.but(why="each step adds its graph to those of all earlier steps", fix="{instead}"),
        "kept_chain": _KEEPS.but(
            why="each step goes on from the one before, and was never cut off from it",
            fix="{own} = {own}.detach()  # before the next step uses it",
        ),
        "kept_hooks": _KEEPS.but(
            fix="# register it once, before the loop; or after each step:\nhandle.remove()  # handle: what registering "
            "returned",
            why="{thing} gains a hook at each step, which keeps all that its function refers to",
        ),
        "kept_cache": _KEEPS.but(
            fix="@functools.lru_cache(maxsize=128)  # of {function}; the least recently used are forgotten"
        ),
        "kept_array": _KEEPS.but(
            fix="# keep a sum or a count instead, or write it to a file in parts: {own} is copied in each step"
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
                "steady over {readings:reading} of these workers: the first quarter and mapped files are not counted",
                "read in the code: {text} is the only line of {dataset} that adds to it; the workers' memory was not "
                "inspected",
            ),
            fix="# bound what the dataset[[ {dataset}]] keeps, or keep it in a file that workers share (numpy.memmap)",
            will_not_help="fewer workers: each keeps more then; persistent_workers=True: they never end",
        ),
        "early": _GROWS.but(title=f"{_GROWS.title}, so far", why=f"the allocator is settling, or {_KEPT}", fix=_RUN_ON),
    },
    "TP603": {
        "returned": Message(
            title="malloc returns memory to the OS and faults it back in every step",
            why="when {thread_name} frees memory, malloc returns it to the OS, and the next step faults it in again",
            evidence=(
                "{thread_name} takes {pages:page} ({taken}) a step from the kernel, which zeroes each: {page_us:.2g} "
                "us a page, measured at start",
                "capped at this thread's total system (kernel) time, {kernel}",
                "private memory shrank by {returned} within a second (median of {seconds:second}, several "
                "readings in each)",
                "an estimate: returning the pages, and cache lines that zeroing evicts, are not counted",
            ),
            fix="{command}  # glibc's malloc reads them as Python starts",
            will_not_help="MALLOC_TRIM_THRESHOLD_ alone: more tensors are then mmapped anew each time; stock "
            "jemalloc: it returns large blocks at once; a faster disk or more memory",
        )
    },
}

TEXTS: Final = {
    # A GPU's memory, as PyTorch's allocator counts it.
    "memory_counted": (
        "at most {allocated} allocated, {reserved} reserved[[; the peak rose last in {rose}]]"
        "[[; grows by {each} a step]][[settled?; no steady growth]]"
        "[[; allocation retried {retries:time}]][[; {ooms:out-of-memory error}]]"
    ),
    "memory_steps": "[[!several?step {first}]][[several?steps {first} to {last}]][[validation?, with validation]]",
    "memory_needed": "the peak needed nearly all that is reserved",
    "memory_validation": "another phase: {reserved} of what is reserved was taken in {steps_of_it}",
    "memory_fragmented": (
        "fragmentation: {spare} more than was allocated at once is reserved, much of it free pieces of blocks in use"
    ),
    "memory_cache": "a normal cache: {spare} more than was allocated at once is reserved, for reuse",
    "cpu_load": "CPUs used[[in_waits? meanwhile]]: this process {own:.1f}"
    "[[ (of which {own_threads:.1f} by its other threads)]]"
    "[[, its workers {workers:.1f}{mean}]][[, the other ranks {ranks:.1f}{mean}]]"
    "[[, {other}child processes {children:.1f}{children_mean}]][[, others{on_these} {others:.1f}{or_more}]]",
    "on_these_cpus": " on these CPUs",
    "or_more": " or more",
    "on_average": " (on average)",
    "beside_workers": "other ",
    "compete": "[[led?other processes and ]]the process's own[[native? native]] threads[[others? and other processes]] "
    "compete",
    "native_use": "{count:native thread} besides torch's use[[!several?s]] {cpus:.1f} CPUs",
    "python_use": "[[!several?thread]][[several?threads]] {names:,}[[ and {more} more]] use[[!several?s]] "
    "{cpus:.1f} CPUs",
    "its_work": "its work",
    "own_use": "own threads (besides torch's) use {cpus:.1f} CPUs",
    "limit_any": "# limit their number: OMP_NUM_THREADS=1, and torch.set_num_threads(1)",
    "limit_pools": "# limit their number; imported here, with threads of their own: {names:,}[[\n{command}]]"
    "[[\n{calls}]]",
    "both_workers": "workers",
    "both_children": "child processes",
    "both_ranks": "other ranks",
    "used_by_workers": "its {workers:worker} used {used:.1f}",
    "used_by_children": "its child processes used {used:.1f}",
    "used_by_ranks": "its other ranks used {used:.1f}",
    "beside_nothing": "; this run uses hardly any CPU besides {training}",
    "beside_unknown": "; child processes may be among them: that is known once the watch ends",
    "beside_own": "; this run's own threads and processes, besides {training}, use {own:.1f}"
    "[[; of these {holder} holds the GIL most]][[ in {place}]]{unknown}",
    # Processes that the run started, beside workers.
    "children_library": "{count}[[rests? idle]] [[one?process]][[!one?processes]] of {called}"
    "[[ ({resting} more idle)]]",
    "children_named": "[[one?process '{called}']][[!one?{count:process|processes} named '{called}']]",
    "children_command": "[[one?'{called}']][[!one?{count:process|processes} of '{called}']]",
    "children_at": "[[{calls}, called at ]]{place}",
    "children_use": "{who} use[[one?s]] {cpus:.1f} CPUs[[or_more? or more]][[, {share} of it in {at}]]",
    "children_start": "{who} use[[one?s]] {seconds:.1f} s of CPU time, most of it as [[one?it starts]]"
    "[[!one?they start]]",
    "children_work": "{who} spend[[one?s]] {share} of [[one?its]][[!one?their]] work in {at}: {spent}"
    "[[; {without} of what is CPU here is waiting for a free one]]",
    "who_unclear": "who else ran is not clear",
    "watch_short": "the watch was too short to see who else ran",
    "room_threads": "torch.set_num_threads({fewer})  # leaves the other processes their CPUs; or stop those",
    "room_cpus": "# stop the other processes, or give this run its own CPUs:\n{command}",
    "room_none": "# stop the other processes, or run them at another time",
    "have_cpus": "{cpus:CPU}",
    "have_quota": "a quota of {cpus:g} CPU[[!one?s]]",
    "quota_cpus": "{cpus:g} CPU[[!one?s]]",
    "no_quota": "none",
    "during_step": "during step {step}",
    "before_first_step": "before the first step",
    "gc_incremental": "incremental",
    "gc_generation": "generation {number}",
    "readings": "{readings} readings",
    "grows_with_work": "the steps take {works:.1f} times the work by then: longer inputs may need more memory with "
    "nothing kept",
    "grows_early": "{readings} readings in {steps:step}: so early it may be the allocator settling",
    "keeps_line": "`{text}`",
    "keeps_cache": "the lru_cache of `{function}`",
    "keeps_hooks": "a hook that each step registers again",
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
    "memory_of_gpu_off": "memory of GPUs was not read: {why}",
    "memory_few_readings": "only {readings:memory reading} (one a second) during steps: run longer",
    "heap_of_trace": "a trace has no page faults",
    "heap_old_file": "recorded by a version without page faults",
    "heap_no_cost": "what a page fault costs could not be measured",
    "heap_no_faults": "the kernel reported no page faults of the training thread",
    "heap_few_seconds": "only {seconds:second} of page faults after the first second: run longer",
    "heap_not_returned": "{faults:page fault} a step, but memory was not seen to return to the OS: mapped files, "
    "shared batches or a fork may be why",
}
