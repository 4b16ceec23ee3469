"""`trainperf lab`: one training as it is, under bf16 autocast, and compiled too; what the jumps mean.

The rule of thumb: where bf16 gains less than a fifth, precision is not the limit. What is, the run itself tells.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import trainperf
from trainperf.prove import measure
from trainperf.prove.changes import Change
from trainperf.prove.prover import First, Prover
from trainperf.prove.trial import Asked, Trial
from trainperf.runfile.schema import CAUSES

_AMP: Final = 0.20  # a gain by bf16 below which precision is not the limit
_NOTHING: Final = 0.05  # a difference that three trials may show by chance
_SHARE: Final = 0.6  # of a change, and what it may be more than that, of the cause that explains it
_TRIALS: Final = 3  # of each
_COMPILE_S: Final = 240.0  # that compiling may take

# What a cause means for somebody who looks for speed, where precision is not the limit.
_LIMITS: Final[Mapping[str, str]] = {
    "data_wait": "data loading",
    "h2d_copy": "copying batches to the GPU",
    "launch": "launching kernels",
    "cuda_alloc": "allocating GPU memory",
    "module_load": "loading GPU code",
    "collective": "communication between ranks",
    "gil_wait": "waiting for the GIL",
    "stop_the_world": "stopping all threads, by a free-threaded Python,",
    "object_lock": "waiting for another thread's lock",
    "gc": "garbage collection",
    "checkpoint": "saving checkpoints",
    "validation": "validation",
    "logging": "logging",
    "descheduled": "waiting for a CPU",
    "throttled": "the CPU limit of the container",
    "blocked_io": "waiting in blocking calls",
    "python": "Python code on the training thread",
    "unknown": "something that trainperf cannot name",
}
_ARITHMETIC: Final[Mapping[str, str]] = {"compute": "compute", "gpu_wait": "GPU work"}  # which bf16 may speed up


@dataclass(slots=True)
class Run:
    name: str
    change: Change
    rate: float | None = None  # per second, of Lab.counts
    step_ms: float | None = None
    peak_bytes: Mapping[str, int] = field(default_factory=dict)
    causes_ms: Mapping[str, float] = field(default_factory=dict)  # per step
    start_s: float = 0.0  # that the first steps took more than later ones: compiling
    problem: str = ""


@dataclass(slots=True)
class Lab:
    runs: list[Run]
    sentence: str = ""
    counts: str = "samples"  # or steps, where no loader says how many samples
    interrupted: bool = False
    seconds: float = 0.0


def lab(prover: Prover) -> Lab:
    """Raises TrainperfError where the script cannot be tried."""
    first = prover.watch()
    prover.say(first.verdict)
    result = Lab(
        [
            Run("as it is", Change()),
            Run("bf16", Change.parse("autocast=bfloat16")),
            Run("bf16 + compile", Change.parse("autocast=bfloat16,compile=default")),
        ],
        counts="steps" if first.trial.loader is None else "samples",
    )
    trials: dict[str, list[Trial]] = {run.name: [] for run in result.runs}
    try:
        for _ in range(_TRIALS):  # in turns, so that a drift of the machine meets all
            for run in result.runs:
                if not run.problem and (prover.left_s > first.trial_s or not trials[run.name]):
                    _run(prover, first, run, trials[run.name], result.counts)
    except KeyboardInterrupt:
        result.interrupted = True
    for run in result.runs:
        _summarize(first, run, trials[run.name])
    result.sentence = sentence(result.runs)
    result.seconds = time.monotonic() - prover.began
    return result


def _run(prover: Prover, first: First, run: Run, trials: list[Trial], counts: str) -> None:
    compiles = "compile" in dict(run.change.settings)
    timeout = 3 * first.trial_s + (_COMPILE_S if compiles else 30.0)
    timeout = min(timeout, max(5.0, prover.left_s))
    trial = prover.trials.run(Asked(run.change, first.trial.loader, first.plan.batches, timeout_s=timeout))
    if not trial.finished:
        run.problem = trial.error
    elif trial.record["unproven"]:
        run.problem = "; ".join(why.partition(": ")[2] for why in trial.record["unproven"])
    elif not measure.rate(trial.record, first.plan):
        run.problem = "it ended after fewer steps"
    else:
        trials.append(trial)
    said = run.problem or f"{measure.rate(trial.record, first.plan):.0f} {counts}/s"
    prover.say(f"{run.name}: {said}")


def _summarize(first: First, run: Run, trials: list[Trial]) -> None:
    if not trials:
        return
    rates = [measure.rate(t.record, first.plan) for t in trials]
    run.rate = statistics.median(rates)
    run.step_ms = measure.step_ms(trials[0].record, first.plan) * rates[0] / run.rate
    run.peak_bytes = {key: max(t.record["peak_bytes"][key] for t in trials) for key in trials[0].record["peak_bytes"]}
    run.causes_ms = _causes(trials[-1])
    run.start_s = max(measure.warm_up_s(t.record, first.plan) for t in trials)  # later ones find it compiled


def _causes(trial: Trial) -> dict[str, float]:
    """Of the steps after the warm-up."""
    with trainperf.open(trial.run_file) as run:
        steps = run.steps
        rows = slice(len(steps.count) // 3, None)
        count = max(1, int(steps.count[rows].sum()))
        return {c: float(steps.causes_ns[rows, i].sum()) / count / 1e6 for i, c in enumerate(CAUSES)}


def sentence(runs: Sequence[Run]) -> str:
    """What the jumps between the runs mean, with the numbers; "" where none was compared."""
    plain, amp, compiled = runs
    if plain.rate is None or amp.rate is None:
        failed = next((run for run in (plain, amp) if run.problem), None)
        return f"No comparison, as a run failed ({failed.name}): {failed.problem}" if failed else ""
    return f"{_of_bf16(plain, amp)}. {_of_compile(plain, amp, compiled)}".strip()


def _of_bf16(plain: Run, amp: Run) -> str:
    assert plain.rate and amp.rate
    gain = amp.rate / plain.rate - 1
    if gain >= _AMP:
        return f"bf16 gains {gain:.0%}{_because(plain, amp)}"
    limit = _limit(plain)
    if gain <= -_NOTHING:
        lost = f"bf16 loses {-gain:.0%}{_because(plain, amp)}: its conversions cost more than it saves"
        return lost if _largest(plain) in _ARITHMETIC else f"{lost}; {limit}"
    gained = f"only {gain:.0%}" if gain >= _NOTHING else f"nothing ({gain:+.0%})"
    return f"bf16 gains {gained}: {limit}"


def _largest(run: Run) -> str:
    return max(run.causes_ms, key=lambda c: run.causes_ms[c], default="compute")


def _limit(run: Run) -> str:
    """ "precision is not the limit, data loading is (61% of the step)"."""
    cause = _largest(run)
    share = f"{run.causes_ms.get(cause, 0.0) / (sum(run.causes_ms.values()) or 1.0):.0%}"
    if cause in _ARITHMETIC:
        return f"the step is {share} {_ARITHMETIC[cause]}, which bf16 does not speed up here"
    return f"precision is not the limit, {_LIMITS.get(cause, cause)} is ({share} of the step)"


def _because(before: Run, after: Run) -> str:
    """ ", as compute falls from 8.1 to 4.0 ms/step": the cause that changed by about as much as the whole."""
    if not (before.step_ms and after.step_ms):
        return ""
    change = after.step_ms - before.step_ms
    shares = {c: (after.causes_ms.get(c, 0.0) - ms) / change for c, ms in before.causes_ms.items()}
    cause = max(shares, key=lambda c: shares[c], default="")
    if not cause or not _SHARE <= shares[cause] <= 1 / _SHARE:
        return ""
    old, new = before.causes_ms[cause], after.causes_ms.get(cause, 0.0)
    return f", as {cause} {'rises' if change > 0 else 'falls'} from {old:.2g} to {new:.2g} ms/step"


def _of_compile(own: Run, before: Run, compiled: Run) -> str:
    """`own`: the script as it is; `before`: what is compiled."""
    if compiled.rate is None or before.rate is None or not (before.step_ms and compiled.step_ms):
        return f"Compiling: {compiled.problem}" if compiled.problem else ""
    gain = compiled.rate / before.rate - 1
    if gain <= -_NOTHING:
        return f"Compiling loses {-gain:.0%}{_because(before, compiled)}"
    if gain < _NOTHING:
        return f"Compiling gains nothing ({gain:+.0%})"
    cost_s = max(0.0, compiled.start_s - before.start_s)
    steps = float(f"{cost_s * 1e3 / (before.step_ms - compiled.step_ms):.2g}")
    because = _because(before, compiled)
    text = f"Compiling gains {gain:.0%} on that{because}"
    if own.rate is not None and compiled.rate < (1 + _NOTHING) * own.rate:
        slower = 1 - compiled.rate / own.rate
        than = f"are {slower:.0%} slower than" if slower > _NOTHING else "are as fast as"
        return f"{text}; both together {than} the script as it is"
    return f"{text}; its {cost_s:.0f} s pay off after {steps:,.0f} steps"
