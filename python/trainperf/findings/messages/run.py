"""The words of findings about the run as a whole: what is slower in a part of it, or grows, or is done once."""

from __future__ import annotations

from typing import Final

from trainperf.findings.messages.general import NOTHING
from trainperf.findings.text import Doubts, Message, Messages

# To a file that is rewritten whole.
APPEND: Final = (
    "# append the new row instead of rewriting the whole file each time; or write every N steps:\n"
    'with open(path, "a") as file: file.write(json.dumps(row) + "\\n")  # CSV: csv.writer(file).writerow(row)'
)

_UNEVEN: Final = Message(
    title="{part} is {ratio:.1f} times slower than the rest[[mostly?, because of {cause}]]"
    "[[!mostly?; {cause} is {share} of the difference]]",
    why="in steps {first} to {last} {cause}[[ (for {holder} in {place})]] takes {cause_inside} a step, "
    "elsewhere {cause_outside}",
    evidence=(
        "steps {first} to {last}: median {inside}; the rest: {outside}",
        "{cause} is {share} of the difference",
        "other processes used {cpus:.1f} CPUs then, and {cpus_elsewhere:.1f} in the rest of the run",
        "at the pace of the rest the run would take {excess} less ({excess_share})",
    ),
    fix="# {hint}",
    will_not_help="speeding up all steps equally: that part stays slower than the rest",
)

_HISTORY: Final = (
    "total += value; best = min(best, value)  # a running result, instead of a pass over the history\n"
    "recent = collections.deque(maxlen=100)  # drops older steps: only if they are not needed"
)
_IN_PLACE: Final = (
    "rows = np.empty((capacity, width), np.float32)  # once, before the loop; when full, one of twice the size\n"
    "rows[n : n + len(new)] = new; n += len(new)  # writes in place, and rows[:n] is no copy\n"
    "# or append to a list, and join it once when it is read (np.concatenate, torch.cat, pandas.concat)"
)
_GRAPH: Final = (
    "total += loss.detach()  # summed or listed losses keep every graph; recurrent state: state = "
    "state.detach()\n"
    "# search the loop for register_hook, retain_graph=True, and ops on weights or losses with grad enabled"
)
_GROWS: Final = Message(
    title="{phase} grows by {rise_ms:.2g} ms a step: something is added at each step",
    why="each step adds to a list, table or buffer that {phase} goes through",
    evidence=(
        "{phases.name}: {phases.first} a step at first, {phases.last} at the end; means of the run's thirds: "
        "{phases.thirds}[[phases.bends?; growth accelerates]]",
        "the rest of the step, {rest}, does not grow",
        "at the first steps' pace the run would take {excess} less ({excess_share})",
    ),
    fix="{fix}",
    will_not_help="torch.compile, a faster CPU, fewer samples a batch: step time keeps growing",
)
_FUNCTION_GROWS: Final = "{place_and_caller} takes longer at each step: the data that it processes grows"

_COMPILED: Final = Message(
    title="torch.compile warmed up",
    why="compiling took {total} in {compiled} of {steps} steps",
    evidence=(
        "{total} of compiling in {compiled} of {steps} steps: {share} of step time",
        "first compiled in step {first}",
        "recompiled later: {late_ns} in {listed}",
        "compiling steps are excluded from the median",
    ),
    fix=f"{NOTHING}; between runs the cache helps: TORCHINDUCTOR_CACHE_DIR",
    will_not_help="faster data or a larger batch",
)
_SAYS_WHY: Final = "{command}  # says why"
_DYNAMIC: Final = (
    "model = torch.compile(model, dynamic=True)  # where shapes vary\n"
    "torch._dynamo.mark_dynamic(inputs, 1)  # or only the dimension that varies, on each batch\n"
    f"{_SAYS_WHY}"
)
_OFTEN: Final = "torch.compile keeps recompiling"

MESSAGES: Final[Messages] = {
    "TP401": {
        "mostly": _UNEVEN,
        "partly": _UNEVEN,
        "busier": _UNEVEN.but(fix="# stop the other processes, which may slow the CPUs (caches, clock), or {hint}"),
    },
    "TP402": {
        "warm_up": _COMPILED,
        "late": _COMPILED.but(title="torch.compile recompiles in {listed}", fix=_DYNAMIC),
        "often": _COMPILED.but(title=_OFTEN, fix=f"{_SAYS_WHY}; then: torch.compile(model, dynamic=True)"),
        "often_late": _COMPILED.but(title=_OFTEN, fix=_DYNAMIC),
    },
    "TP403": {
        "slower": Message(
            title="{slower} slower than the last {runs} runs",
            why="{cause} takes {more} a step more than it used to",
            evidence=(
                "median step {median}; last {runs} runs named {name} on this host: {earlier}",
                "{cause} takes {takes} a step; usually {usually}",
            ),
            fix="# what changed since then?\ntrainperf compare {last_file} {this_file}",
        )
    },
    "TP404": {
        "phase": _GROWS,
        "function": _GROWS.but(
            title="{function} takes {rise_ms:.2g} ms longer at each step: its data grows", why=_FUNCTION_GROWS
        ),
        "function_in_phase": _GROWS.but(why=_FUNCTION_GROWS),
        "rewritten_log": _GROWS.but(
            title="{function} takes {rise_ms:.2g} ms longer at each step: it rewrites its whole log",
            why="{place_and_caller} rewrites every row so far, not just the new one",
            fix=APPEND,
        ),
        "copied_to_grow": _GROWS.but(
            title="{function} takes {rise_ms:.2g} ms longer at each step: it copies all of its data to add to it",
            why="{place_and_caller} copies the whole array, tensor or table to add to it, and it grows",
            fix=_IN_PLACE,
        ),
        "function_in_backward": _GROWS.but(
            why="{place} runs in backward, more often or for longer at each step",
            fix="# register {function}() once, before the loop: each register_hook call adds another\n{fix}",
        ),
        "suspect": _GROWS.but(
            why="{suspect} may add to the graph: a call on weights that require grad leaves a hook at each step",
            fix=f"with torch.no_grad():  # around the calls in {{suspect}}\n    update(model)\n{_GRAPH}",
        ),
        "graph": _GROWS.but(
            why="each step adds to the autograd graph (a hook, a kept graph), and backward goes through all of it"
        ),
        "inputs": _GROWS.but(
            title="the model's work grows with the steps: longer inputs, or a history that it keeps",
            why="forward and backward grow together, as they do with longer sequences or larger batches",
            fix="# no action needed if the inputs grow on purpose (a curriculum); else print their shapes:\n"
            "print(step, inputs.shape)",
            will_not_help="less logging or faster data: the model itself takes longer",
        ),
    },
}

TEXTS: Final = {
    "first_part": "the first {of} of the run",
    "last_part": "the last {of} of the run",
    "stretch": "the stretch of steps {first} to {last}",
    "may_be_the_machine": "it may be the machine",
    "late_steps": "[[!several?step]][[several?steps]] [[!more?{late}]][[{late:,} and {more} more]]",
    "no_input_sizes": "the sizes of the inputs are not recorded",
    # Phases that grow, and what to do about them.
    "phase_fetch": "data loading",
    "phase_transfer": "the transfer to the GPU",
    "phase_optimizer": "the optimizer's step",
    "phase_checkpoint": "writing checkpoints",
    "phase_forward": "forward (with what runs before it)",
    "phase_other": "code outside forward, backward and optimizer",
    "growth_fix_backward": "with torch.no_grad():  # around all non-training use of the weights, or use "
    f"weight.detach() there\n    update(model)\n{_GRAPH}",
    "growth_fix_optimizer": "optimizer.add_param_group(group)  # once, before the loop; and add each weight once",
    "growth_fix_logging": "file.write(line)  # open(path, 'a'): append the new row, instead of rewriting the "
    f"whole table\n{_HISTORY}",
    "growth_fix_checkpoint": "# save the weights and the optimizer's state; append histories to a file of their own",
    "growth_fix_validation": f"metric.reset()  # after each validation\n{_HISTORY}",
    "growth_fix_fetch": "# keep what __getitem__ and the sampler search or copy from growing with the samples served\n"
    f"{_HISTORY}",
    "growth_fix_other": _HISTORY,
    # What to look for in a slower part, by cause.
    "uneven_gil_wait": "[[stop {holder} in that part, or run {place} in a process]]"
    "[[!holder?look for a thread that runs Python in that part: a prefetch, a preload, an upload]]",
    "uneven_data_wait": "warm the cache, or shuffle: caches are cold in that part, or samples larger",
    "uneven_descheduled": "look for what else used the CPUs then: a start-up, a preprocessing job",
    "uneven_throttled": "raise the CPU quota: it was used up then",
    "uneven_python": "look for what the loop's own code does more of then",
    "uneven_blocked_io": "look for what blocked the loop then: another thread or process, a file or the network",
    "uneven_gpu_wait": "look for more work on the GPU then (longer inputs, larger batches), or for a lower clock of it",
    "uneven_compute": "look for more work then (longer inputs or lists, larger batches), or for slower CPUs (clock, "
    "caches)",
    "uneven_other": "look at {cause} in steps {first} to {last}",
}

UNSURE: Final[Doubts] = {
    "uneven_few_steps": "{steps:step} [[several?are]][[!several?is]] too few to compare parts of the run",
    "uneven_by_chance": "shuffled steps differ as much: steps {first} to {last} may be slower by chance",
    "uneven_unexplained": "no cause explains why steps {first} to {last} are slower",
    "growth_few_steps": "{steps:step} [[several?are]][[!several?is]] too few to see a trend",
    "growth_short": "the steps get longer, but the run lasts less than a second: run longer",
    "history_few_runs": "{runs:earlier run} named {name} on this host[[ (and {others} with another batch size)]]: "
    "at least {least} needed",
    "history_few_steps": "{steps:step} besides warm-up: too few",
    "history_varies": "its steps vary too much to call it slower than the earlier runs",
    "history_clock": "the shortest run lasted {seconds:.1f} s: CPU clock or a noisy neighbor can do this",
    "uneven_short": "steps {first} to {last} are slower for {seconds:.1f} s only: it may be the machine, run longer",
}
