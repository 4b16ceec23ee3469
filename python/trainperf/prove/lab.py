"""`trainperf lab`: one training as it is, under bf16 autocast, and compiled too; what the jumps mean.

The rule of thumb: where bf16 gains less than a fifth, precision is not the limit. What is, the run itself tells.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import trainperf
from trainperf.findings.vocabulary import CAUSES
from trainperf.prove import measure
from trainperf.prove.changes import Change
from trainperf.prove.prover import First, Prover
from trainperf.prove.trial import Asked, Trial

_AMP: Final = 0.20  # a gain by bf16 below which precision is not the limit
_COMPILE: Final = 0.10  # a gain by compiling that is worth its time
_TRIALS: Final = 3  # of each
_COMPILE_S: Final = 240.0  # that compiling may take

# What a cause means for somebody who looks for speed, where precision is not the limit.
_LIMITS: Final[Mapping[str, str]] = {
    "data_wait": "data loading",
    "gil_wait": "GIL contention",
    "python": "Python code on the training thread",
    "launch": "kernel launch overhead",
    "checkpoint": "saving checkpoints",
    "validation": "validation",
    "logging": "logging",
    "descheduled": "CPU contention",
    "blocked_io": "blocking calls",
    "gc": "garbage collection",
    "compute": "computing, which bf16 does not speed up here,",
    "gpu_wait": "the GPU's work that bf16 does not speed up",
}


@dataclass(slots=True)
class Run:
    name: str
    change: Change
    samples_per_s: float | None = None
    step_ms: float | None = None
    peak_bytes: Mapping[str, int] = field(default_factory=dict)
    causes_ms: Mapping[str, float] = field(default_factory=dict)  # per step
    start_s: float = 0.0  # that the first steps took more than later ones: compiling
    problem: str = ""


@dataclass(slots=True)
class Lab:
    runs: list[Run]
    sentence: str = ""
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
        ]
    )
    trials: dict[str, list[Trial]] = {run.name: [] for run in result.runs}
    try:
        for _ in range(_TRIALS):  # in turns, so that a drift of the machine meets all
            for run in result.runs:
                if not run.problem and (prover.left_s > first.trial_s or not trials[run.name]):
                    _run(prover, first, run, trials[run.name])
    except KeyboardInterrupt:
        result.interrupted = True
    for run in result.runs:
        _summarize(first, run, trials[run.name])
    result.sentence = sentence(result.runs)
    result.seconds = time.monotonic() - prover.began
    return result


def _run(prover: Prover, first: First, run: Run, trials: list[Trial]) -> None:
    compiles = "compile" in dict(run.change.settings)
    timeout = 3 * first.trial_s + (_COMPILE_S if compiles else 30.0)
    timeout = min(timeout, max(5.0, prover.left_s))
    trial = prover.trials.run(Asked(run.change, first.trial.loader, first.plan.batches, timeout_s=timeout))
    if not trial.finished or trial.record["unproven"]:
        run.problem = trial.error or "; ".join(trial.record["unproven"])
    elif not measure.rate(trial.record, first.plan):
        run.problem = "it ended before as many steps"
    else:
        trials.append(trial)
    said = run.problem or f"{measure.rate(trial.record, first.plan):.0f} samples/s"
    prover.say(f"{run.name}: {said}")


def _summarize(first: First, run: Run, trials: list[Trial]) -> None:
    if not trials:
        return
    rates = [measure.rate(t.record, first.plan) for t in trials]
    run.samples_per_s = statistics.median(rates)
    run.step_ms = measure.step_ms(trials[0].record, first.plan) * rates[0] / run.samples_per_s
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


def sentence(runs: list[Run]) -> str:
    """What the jumps between the runs mean, with the numbers."""
    plain, amp, compiled = runs
    if plain.samples_per_s is None or amp.samples_per_s is None:
        return f"no comparison: {plain.problem or amp.problem}" if plain.problem or amp.problem else ""
    gain = amp.samples_per_s / plain.samples_per_s - 1
    if gain >= _AMP:
        text = f"bf16 gains {gain:.0%}: arithmetic and memory traffic are the limit"
    elif gain <= -_AMP / 4:
        text = f"bf16 loses {-gain:.0%}: converting tensors costs more than the smaller ones save; {_limit(plain)}"
    else:
        text = f"bf16 gains {gain:+.0%}: precision is not the limit, {_limit(plain)}"
    return f"{text}. {_of_compile(amp, compiled)}".strip()


def _limit(run: Run) -> str:
    """ "data loading is: 61% data_wait"."""
    cause = max(run.causes_ms, key=lambda c: run.causes_ms[c], default="compute")
    whole = sum(run.causes_ms.values()) or 1.0
    return f"{_LIMITS.get(cause, cause)} is: {run.causes_ms.get(cause, 0.0) / whole:.0%} {cause}"


def _of_compile(before: Run, compiled: Run) -> str:
    if compiled.samples_per_s is None or before.samples_per_s is None or not (before.step_ms and compiled.step_ms):
        return f"Compiling: {compiled.problem}" if compiled.problem else ""
    gain = compiled.samples_per_s / before.samples_per_s - 1
    saved_ms = before.step_ms - compiled.step_ms
    cost_s = max(0.0, compiled.start_s - before.start_s)
    if gain < _COMPILE:
        return f"Compiling gains {gain:+.0%}: it does not pay"
    steps = cost_s * 1e3 / saved_ms
    return f"Compiling gains {gain:.0%} more, and pays for its {cost_s:.0f} s after {steps:,.0f} steps"
