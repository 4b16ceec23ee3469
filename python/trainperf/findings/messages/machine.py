"""The words of findings about the CPUs that a run gets, and about Python's own garbage collector."""

from __future__ import annotations

from typing import Final

from trainperf.findings.messages.catalogue import Doubts, Message, Messages

_WAITS: Final = "{each} of each step's {step} {thread} is ready and waits for a CPU"
_COMPETE: Final = "more threads or workers: they compete for the same CPUs"
# At the default priority a process takes the CPUs from training as a thread does.
_NICE: Final = "a process that yields the CPUs: os.nice(19) in it"
_LED: Final = "[[led?# stop the other processes, and see to this run's own threads:\n]]"

_UNCLEAR: Final = Message(
    title="{thread} waits for a CPU",
    brief="{thread} waits for a CPU",
    why="who else ran is not clear",
    evidence=(
        _WAITS,
        "{load}",
        "{shared} threads of torch share each operation: while one has no CPU the others wait for it, which counts as "
        "compute",
        "{cpus:CPU} usable[[ of the machine's {machine}]][[, threads of torch: {threads}]], {workers:worker}",
    ),
    fix="# look at what else runs:\ntop -H",
    will_not_help="a larger batch, pin_memory: the CPUs are short",
)
_CHILDREN: Final = _UNCLEAR.but(
    title="its own child processes use the CPUs",
    brief="its own child processes use the CPUs",
    why="processes that this one started (no DataLoader workers) use {children:.1f} CPUs",
    fix="# start them with `nice -n 19`, at another time, or fewer at once; `ps` lists them below this one:\n"
    "ps -e --forest -o pid,pcpu,args",
)
_BOTH: Final = _UNCLEAR.but(
    title="{thread} waits for a CPU: its {named: and } and other processes compete",
    brief="its {named: and } and other processes compete",
    why="{used:, }, other processes {others:.1f}[[elsewhere? or more]], of the {cpus} that it may use",
    fix="# stop the others, or run them at another time",
    will_not_help=_COMPETE,
)
_OWN: Final = _UNCLEAR.but(
    title="{thread} waits for a CPU: {compete}",
    brief="{compete}",
    why="{own}[[, other processes {others:.1f}]]",
    fix=f"{_LED}# start fewer of them, make them sleep between their turns, or move their work to {_NICE}\n"
    "top -H -p PID",
    will_not_help=_COMPETE,
)
_HOLDS: Final = "; most of their Python is {holder}[[ in {place}]]: it holds the GIL {gil} of the time"

_OVER: Final = Message(
    title="more threads and processes compute than there are CPUs: {wanted} on {have}",
    why="[[{ranks:rank} of ]]{threads:torch thread}[[ and {workers:worker}]] share {have}",
    evidence=(
        _WAITS,
        "{stopped} a step the container's quota stops it",
        "[[{ranks:rank} of ]]{threads:torch thread}[[ and {workers:worker}]] on {have}",
        "{load}",
    ),
    fix="[[torchrun?OMP_NUM_THREADS={fewer} torchrun ...  # or ]]torch.set_num_threads({fewer})",
    will_not_help=_COMPETE,
)
_PINNED: Final = Message(
    title="CPU affinity limits this process to {have} of {possible} CPUs, and it waits for them",
    why="the affinity was {have:CPU} when the watch began: by taskset, numactl, a job scheduler, or a library imported "
    "before",
    evidence=(
        _WAITS,
        "{for_data} of each step's {step} it waits for workers that share these CPUs",
        "allowed CPUs: {allowed:,}[[, {dots}]]; {idle:.1f} CPUs of the machine are idle on average",
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
_FREEZE: Final = (
    f"gc.collect(); gc.freeze(); gc.disable()  # once, when all is built; gc.collect() every 500 steps\n{_SELDOM}"
)
_GC: Final = Message(
    title="garbage collections stop {thread}",
    why="generation-2 collections walk every object that the program keeps alive, but what gc.freeze() set apart",
    evidence=(
        "{generations.name}: {generations.count:collection}, {generations.each} each",
        "the longest took {longest}",
        "{few} of {steps} steps have nearly all of it",
    ),
    fix=_FREEZE,
    will_not_help="gc.disable() alone: cycles then leak; gc.freeze() alone, where the loop itself makes the objects: "
    "those are walked all the same",
)
_YOUNG_FIX: Final = f"gc.disable()  # and in the loop, for cycles:\n{_SELDOM}"
_ASKED: Final = _GC.but(
    title="gc.collect() is called in the loop ({full:time}), which stops {thread}",
    why="{place} asks for full collections, which walk every object that the program keeps alive",
    fix="# remove gc.collect() from the loop (with gc enabled Python collects by itself), or call it every N steps:\n"
    f"{_SELDOM}",
    will_not_help="gc.disable(): the collections are asked for",
)

MESSAGES: Final[Messages] = {
    "TP303": {
        "generation_0": _GC.but(
            why="generation-0 collections walk what was made since the one before: the loop makes many objects",
            fix=_YOUNG_FIX,
        ),
        "generation_1": _GC.but(
            why="generation-1 collections walk what was made lately: the loop makes many objects that stay alive",
            fix=_YOUNG_FIX,
        ),
        "generation_2": _GC,
        "incremental": _GC.but(
            why="each collection walks what was made lately and a part of what lives long: the loop makes many objects"
        ),
        "asked": _ASKED,
        "asked_by_library": _ASKED.but(
            why="the loop, or a library in it, asks for full collections, which walk every object that the program "
            "keeps alive",
            fix=f"{_ASKED.fix}  # a library's: by an option of it",
        ),
    },
    "TP307": {
        "unclear": _UNCLEAR,
        "too_short": _UNCLEAR.but(why="the watch was too short to see who else ran"),
        "children": _CHILDREN,
        "children_and_threads": _CHILDREN.but(
            fix=f"torch.set_num_threads({{fewer}})  # leaves them their CPUs; or {_CHILDREN.fix.removeprefix('# ')}"
        ),
        "others": _UNCLEAR.but(
            title="other processes use the CPUs",
            brief="other processes use the CPUs",
            why="[[!elsewhere?other processes use {others:.1f} CPUs beside this one]]"
            "[[elsewhere?other processes use {others:.1f} or more of the CPUs that this one may use]]{beside}",
            fix="{fix}",
            will_not_help=_COMPETE,
        ),
        "both": _BOTH,
        "both_many_workers": _BOTH.but(fix="DataLoader(..., num_workers={cpus})  # and stop the others"),
        "own_native": _OWN.but(
            why="{own}, beside torch's[[, other processes {others:.1f}]]: libraries start them (OpenMP, OpenBLAS, "
            "tokenizers)[[torch_more?, or torch, where set_num_threads allows it more in a part of the run]]"
            "[[; {holder} may do so in {place}]]",
            fix=f"{_LED}{{limits}}",
        ),
        "own_threads": _OWN,
        "own_computing": _OWN.but(
            why=f"{_OWN.why}{_HOLDS}",
            fix=f"{_LED}# start fewer of them, or move {{work}} to {_NICE}; or after {{training}}",
        ),
        "own_polling": _OWN.but(
            why=f"{_OWN.why}{_HOLDS}",
            fix=f"{_LED}# make {{holder}} sleep between its turns, or move {{work}} to {_NICE}; or after {{training}}",
        ),
    },
    "TP308": {
        "quota": Message(
            title="the container's CPU quota stops {training}",
            why="the cgroup's quota is used up, and all threads wait for its next period",
            evidence=(
                "{each} of each step's {step} the kernel keeps the process off the CPU",
                "the process gets {used:.1f} CPUs[[; torch uses {threads} threads]]",
                "the quota is {quota}[[ since step {since}; before, {before}]]",
            ),
            fix="torch.set_num_threads({room})  # or raise the limit: docker run --cpus, resources.limits.cpu",
            will_not_help="more workers or more threads: they use the quota up sooner",
        )
    },
    "TP602": {
        "threads": _OVER,
        "cheaper_samples": _OVER.but(
            fix="[[torchrun?OMP_NUM_THREADS={fewer} torchrun ...  # or ]][[!torchrun?# ]]as the loop waits for its "
            "workers: more CPUs, or make their samples cheaper"
        ),
        "workers": _OVER.but(
            fix="[[torchrun?OMP_NUM_THREADS={fewer} torchrun ...  # or ]]DataLoader(..., num_workers={fewer_workers})"
            "[[both?\ntorch.set_num_threads({fewer})]]"
        ),
    },
    "TP604": {
        "call": _PINNED.but(
            why="{function} ({place}) called os.sched_setaffinity {when}: {have:CPU} left",
            fix=f"# remove the call at {{place}}, or undo it right after{_BEFORE_WORKERS}:\n{{widen}}",
        ),
        "narrowed_by_settings": _PINNED.but(why=f"{_NARROWED}; {{settings:,}} is set", fix=_UNSET),
        "narrowed": _PINNED.but(
            why=f"{_NARROWED}, or another process", fix=f"# after the imports{_BEFORE_WORKERS}:\n{{widen}}"
        ),
        "started_by_settings": _PINNED.but(
            why="the affinity was {have:CPU} when the watch began: {settings:,} is set", fix=_UNSET
        ),
        "started": _PINNED,
    },
}

TEXTS: Final = {
    "cpu_load": "in CPUs[[in_waits?, where it waits]]: this process {own:.1f}[[ ({own_threads:.1f} in own threads)]]"
    "[[, its workers {workers:.1f}{mean}]][[, the other ranks {ranks:.1f}{mean}]]"
    "[[, other child processes {children:.1f}{mean}]], others[[elsewhere? on these CPUs]] {others:.1f}"
    "[[at_least? or more]]",
    "on_average": " (on average)",
    "compete": "[[led?other processes and ]]this process' own[[native? native]] threads[[others? and other processes]] "
    "compete",
    "native_use": "{count:native thread} use[[!several?s]] {cpus:.1f} CPUs",
    "python_use": "{names:,}[[ and {more} more]] use[[!several?s]] {cpus:.1f} CPUs",
    "its_work": "its work",
    "own_use": "own threads (beside torch) use {cpus:.1f} CPUs",
    "limit_any": "# limit their number: OMP_NUM_THREADS=1, and torch.set_num_threads(1)",
    "limit_pools": "# limit their number; imported here, with threads of their own: {names:,}[[\n{command}]]"
    "[[\n{calls}]]",
    "both_workers": "workers",
    "both_children": "child processes",
    "both_ranks": "other ranks",
    "used_by_workers": "its {workers:worker} used {used:.1f} CPUs",
    "used_by_children": "its child processes used {used:.1f} CPUs",
    "used_by_ranks": "its other ranks used {used:.1f} CPUs",
    "beside_nothing": "; nothing in this program makes them do so",
    "beside_unknown": "; processes that this one started may be among them: it is known once a watch has ended",
    "beside_own": "; this run's own threads and processes, beside {training}, use {own:.1f}"
    "[[; of these {holder} holds the GIL most]][[ in {place}]]{unknown}",
    "who_unclear": "who else ran is not clear",
    "watch_short": "the watch was too short to see who else ran",
    "room_threads": "torch.set_num_threads({fewer})  # leaves the others their CPUs; or stop them",
    "room_cpus": "# stop them, or give this run its own CPUs:\n{command}",
    "room_none": "# stop them, or run them at another time",
    "have_cpus": "{cpus:CPU}",
    "have_quota": "a quota of {cpus:g} CPU[[!one?s]]",
    "quota_cpus": "{cpus:g} CPU[[!one?s]]",
    "no_quota": "there was none",
    "during_step": "during step {step}",
    "before_first_step": "before the first step",
    "gc_incremental": "incremental",
    "gc_generation": "generation {number}",
}

UNSURE: Final[Doubts] = {}
