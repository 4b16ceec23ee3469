"""`trainperf sweep`: the best setting of the loader that trains. First how much there is to gain at most.

1. Headroom: the loop with batches that take no time, the first ones again and again.
2. Prediction: from what each batch takes, on the CPU and asleep, the step for each number of workers.
3. Screening: the few that are predicted best, and more as long as that helps.
4. Proof: the cheapest within 2 % of the best, in pairs with what the script has now.

1 is measured at the end of the first run, and 3 and 4 in one process (turns.py); where that cannot be, in trials of
each setting.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import trainperf
from trainperf.errors import TrainperfError
from trainperf.prove import measure
from trainperf.prove.changes import Change
from trainperf.prove.prover import First, Outcome, Prover
from trainperf.prove.sequential import ALPHA, LEAST_GAIN, judge
from trainperf.prove.trial import Asked, Trial
from trainperf.prove.turns import logs_of
from trainperf.runfile.schema import MECHANISMS, PHASES

_WATCH_S = 2.5  # of the loop, in the first run
_CACHED = 8  # batches
_WORTH = 0.05  # of the step: less headroom is not looked into
WORKERS = (0, 1, 2, 3, 4, 6, 8, 12, 16)
_SCREENED = 3  # settings that are tried at first
_DELIVERY_S = 1.3e-3  # to take a ready batch out of the workers' queue, where it is not measured: 1.2 to 1.9 ms
_START_UP = 0.02  # of an epoch: workers that start anew for each one are worth keeping
_READ_S = 1.5
_PREFETCH = 2  # batches of each worker, by default
# Of CPUs that loop and workers all want, what they get: while the loop waits for a worker's turn to end, another CPU
# may be idle. 0.79 to 0.86 on two CPUs with 2 to 8 workers.
_OF_WANTED_CPUS = 0.84
_LONG_S = 5.0  # an epoch in which it does not count that none is ready at first
_SIMULATED = 400  # batches


@dataclass(frozen=True, slots=True)
class Costs:
    """Of a batch that the training process makes itself, in seconds."""

    cpu: float
    blocked: float
    rest: float  # of the step, with batches that take no time
    delivered: float | None = None  # of it, with batches that workers have at hand; None: not measured
    each: Sequence[float] = (1.0,)  # of some in turn, what it takes in means of all
    epoch: int | None = None  # batches, where workers begin with none ready so often that it counts


@dataclass(slots=True)
class Point:
    """A setting of the loader."""

    workers: int
    predicted_ms: float | None = None  # of a step
    measured_ms: float | None = None
    samples_per_s: float | None = None  # of the loader alone, with --data-only
    problem: str = ""  # why it was not measured


@dataclass(slots=True)
class Sweep:
    step_ms: float
    headroom_ms: float | None = None  # that a loader which takes no time saves; None: not measured
    grid: list[Point] = field(default_factory=list)
    outcome: Outcome | None = None  # of the best, against what the script has
    reason: str = ""  # why nothing is proven
    loader: Mapping[str, Any] | None = None
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def floor(self) -> str:
        """What the headroom is, in words; "" where it was not measured."""
        if self.headroom_ms is None:
            return ""
        least = self.step_ms - self.headroom_ms
        return (
            f"a step takes {least:.1f} ms with batches already in memory, {self.step_ms:.1f} with this loader: "
            f"no loader can save more than {self.headroom_ms:.1f} ms/step ({self.headroom_ms / self.step_ms:.0%})"
        )

    @property
    def best(self) -> Change | None:
        proven = self.outcome is not None and self.outcome.verdict == "proven"
        return self.outcome.change if self.outcome is not None and proven else None


def sweep(prover: Prover, *, data_only: bool = False) -> Sweep:
    """Raises TrainperfError where the script cannot be tried, or has no DataLoader."""
    first = prover.watch(_WATCH_S, turns={"policy": {"floor": True}, "epochs": {}})
    if first.trial.loader is None:
        raise TrainperfError("this training uses no DataLoader: there is nothing to sweep")
    prover.say(first.verdict)
    run = _Sweeping(prover, first)
    try:
        run.data_only() if data_only else run.all()
    except KeyboardInterrupt:
        run.result.interrupted = True
    run.result.seconds = time.monotonic() - prover.began
    return run.result


class _Sweeping:
    def __init__(self, prover: Prover, first: First) -> None:
        self._prover = prover
        self._first = first
        loader = first.trial.loader
        assert loader is not None
        self._loader = loader
        self._now = int(loader["options"]["num_workers"] or 0)
        self._persistent = False
        self._turns = first.trial  # the trial that took them
        self._found: Mapping[str, Any] = {}  # what they say
        self.result = Sweep(first.step_ms, loader=loader)

    def all(self) -> None:
        now, turns = self._first.trial, self._first.trial.record["turns"]
        in_turns = bool(turns)
        if in_turns:
            between_ms = measure.of_epochs(now.record, self._first.plan, persistent=False)["between_ms"]
            rest_ms, self.result.step_ms = turns["floor_ms"] + between_ms, turns["own_ms"] + between_ms
            delivered_ms = turns["delivered_ms"] + between_ms if turns["delivered_ms"] is not None else None
        else:
            now = self._trial(Change())
            self._stands(now)
            cached = self._trial(Change(), cached=max(1, min(_CACHED, self._first.plan.warm_up - 1)))
            self._stands(cached)
            rest_ms, self.result.step_ms, delivered_ms = self._ms(cached), self._ms(now), None
        self.result.headroom_ms = max(0.0, self.result.step_ms - rest_ms)
        share = self.result.headroom_ms / self.result.step_ms
        self._prover.say(self.result.floor)
        if share < _WORTH:
            self.result.reason = f"no loader can save more than {share:.1%} of the step"
            return
        costs = self._costs(now, rest_ms / 1e3, delivered_ms / 1e3 if delivered_ms is not None else None)
        usable, others_use = _usable_cpus(), now.record["others_cpus"] or 0.0
        fits = [w for w in WORKERS if not self._prover.refused(self._change(w), self._first)]
        ahead = int(self._loader["options"].get("prefetch_factor") or _PREFETCH)
        others = [
            Point(w, 1e3 * predicted(costs, w, cpus_for(w, usable, others_use), ahead=ahead))
            for w in fits
            if w != self._now
        ]
        self.result.grid = [Point(self._now, None, self.result.step_ms), *others]
        self._persistent = self._starts_often(costs)
        took_turns = in_turns and self._in_turns()
        if not took_turns:
            self._screen_all()
        best = self._cheapest()
        if best is None or best.workers == self._now:
            self.result.reason = "no setting was faster than what the script has"
            return
        change = self._change(best.workers, promised=self.result.step_ms / (best.predicted_ms or self.result.step_ms))
        outcome = self._confirmed(change) if took_turns else None
        if outcome is None:
            until = time.monotonic() + self._prover.left_s
            outcome = self._prover.prove_by_trials(change, self._first, until=until, alpha=ALPHA)
        self.result.outcome, self.result.reason = outcome, outcome.reason

    def _in_turns(self) -> bool:
        """Screens, and takes pairs, in one process. False where that cannot be."""
        grid = [p for p in self.result.grid if p.predicted_ms is not None]
        first = [p.workers for p in first_tried(grid)]
        search = {
            "now": self._now,
            "first": first,
            "more": [p.workers for p in grid if p.workers > max(first, default=0)],
            "alpha": ALPHA,
            "seconds": self._prover.left_s - 2 * self._first.trial_s,
        }
        until = time.monotonic() + self._prover.left_s
        trial = self._prover.turns(self._first, {"search": search}, persistent=self._persistent, until=until)
        if not trial.finished or not trial.record["turns"]:
            return False
        self._turns, self._found = trial, trial.record["turns"]
        for point in self.result.grid:
            point.measured_ms = self._found["ms"].get(str(point.workers))
            if point.measured_ms is not None and point.predicted_ms is not None:
                self._say(point)
        return True

    def _confirmed(self, change: Change) -> Outcome | None:
        """By a trial of its own. None where that one says otherwise."""
        evidence = judge(logs_of(self._found["pairs"]), alpha=ALPHA)
        return self._prover.confirm(change, self._first, self._turns, evidence)

    def data_only(self) -> None:
        """What the loader gives without training, for each number of workers."""
        for workers in WORKERS:
            point = Point(workers)
            self.result.grid.append(point)
            trial = self._trial(self._change(workers), data_only=_READ_S)
            read = trial.record.get("read") or {}
            if not trial.finished or not read.get("samples"):
                point.problem = trial.error or "its epoch is too short to read"
                continue
            point.samples_per_s = read["samples"] / read["seconds"]
            self._prover.say(f"num_workers={workers}: {point.samples_per_s:.0f} samples/s")
            rates = [p.samples_per_s for p in self.result.grid if p.samples_per_s]
            if len(rates) >= 4 and max(rates[-2:]) < (1 + LEAST_GAIN) * max(rates[:-2]):
                return  # two that gain nothing: more will not either
            if self._prover.left_s < 2 * self._first.trial_s:
                return

    def _trial(self, change: Change, *, cached: int | None = None, data_only: float | None = None) -> Trial:
        return self._prover.trials.run(
            Asked(
                change,
                self._loader,
                self._first.plan.batches,
                cached=cached,
                data_only=data_only,
                timeout_s=3 * self._first.trial_s + 30,
            )
        )

    def _stands(self, trial: Trial) -> None:
        if not trial.finished:
            raise TrainperfError(f"a trial without a change failed: {trial.error}")
        if not self._ms(trial):
            raise TrainperfError("the script ends after fewer steps than before: give it a fixed number of them")

    def _ms(self, trial: Trial) -> float:
        return measure.step_ms(trial.record, self._first.plan)

    def _change(self, workers: int, *, promised: float | None = None) -> Change:
        settings: list[tuple[str, Any]] = [("num_workers", workers)]
        if workers and self._persistent:
            settings.append(("persistent_workers", True))
        return Change(tuple(settings), "", promised)

    def _costs(self, now: Trial, rest_s: float, delivered_s: float | None) -> Costs:
        trial = now
        if self._now:
            trial = self._trial(self._change(0))
            self._stands(trial)
        with trainperf.open(trial.run_file) as run:
            fetch = dict(zip(MECHANISMS, run.matrix_ns[PHASES.index("fetch")].tolist(), strict=True))
            steps = max(1, run.step_count)
        blocked = fetch["blocked"] / steps / 1e9
        waited = (fetch["descheduled"] + fetch["throttled"]) / steps / 1e9  # for a CPU: not of its own making
        cpu = max(0.0, sum(fetch.values()) / steps / 1e9 - blocked - waited)
        epochs, length = trial.record["epochs"], self._first.plan.epoch
        took = [d - r for e in epochs for r, d in zip(e["requested"][1:], e["delivered"][1:], strict=False)] or [1.0]
        mean = statistics.fmean(took)
        short = length is not None and length * self._first.plan.step_s < _LONG_S
        return Costs(cpu, blocked, rest_s, delivered_s, [t / mean for t in took], length if short else None)

    def _starts_often(self, costs: Costs) -> bool:
        """Whether starting workers anew in each epoch would show."""
        plan = self._first.plan
        if len(self._first.trial.record["epochs"]) < 2 and plan.epoch is None:
            return False
        epoch_s = (plan.epoch or 1_000_000) * costs.rest
        return 0.05 / epoch_s > _START_UP  # to fork some workers takes 50 ms

    def _screen_all(self) -> None:
        grid = [p for p in self.result.grid if p.predicted_ms is not None]
        for point in first_tried(grid):
            self._screen(point)
        while True:
            tried = [p for p in self.result.grid if p.measured_ms is not None]
            best = min(tried, key=lambda p: p.measured_ms or math.inf)
            more = next((p for p in grid if p.workers > best.workers and p.measured_ms is None and not p.problem), None)
            least = max(p.workers for p in tried)
            if more is None or best.workers < least or self._prover.left_s < 10 * self._first.trial_s:
                break
            self._screen(more)

    def _cheapest(self) -> Point | None:
        """Within 2 % of the best that was measured."""
        tried = [p for p in self.result.grid if p.measured_ms is not None]
        best = min(tried, key=lambda p: p.measured_ms or math.inf)
        near = [p for p in tried if (p.measured_ms or math.inf) <= (1 + LEAST_GAIN) * (best.measured_ms or 0)]
        return min(near, key=lambda p: p.workers, default=None)

    def _screen(self, point: Point) -> None:
        trial = self._trial(self._change(point.workers))
        if not trial.finished or trial.record["unproven"]:
            point.problem = trial.error or "; ".join(trial.record.get("unproven", []))
            return
        point.measured_ms = self._ms(trial) or None
        if point.measured_ms is None:
            point.problem = "it ends after fewer steps"
            return
        self._say(point)

    def _say(self, point: Point) -> None:
        self._prover.say(
            f"num_workers={point.workers}: {point.measured_ms:.1f} ms/step, predicted {point.predicted_ms or 0:.1f}"
        )


def predicted(costs: Costs, workers: int, free_cpus: float, *, ahead: int = _PREFETCH) -> float:
    """Seconds of a step. Workers make batches at the same time; all share the CPUs; the loop takes one batch a step.

    `ahead`: batches that each worker may make before they are taken.
    """
    if not workers:
        return costs.rest + costs.cpu + costs.blocked
    loop = costs.rest + _DELIVERY_S if costs.delivered is None else costs.delivered
    made = [(costs.cpu + costs.blocked) * each for each in costs.each]
    cpus = free_cpus * (_OF_WANTED_CPUS if workers + 1 > free_cpus else 1.0)
    return max(_in_order(made, workers, ahead, loop, costs.epoch), (loop + costs.cpu) / cpus)


def _in_order(made: Sequence[float], workers: int, ahead: int, loop: float, epoch: int | None) -> float:
    """Seconds of a step where worker i % workers makes batch i, and the loop takes them in this order: all wait for a
    slow one. Of a whole epoch, which begins with none ready; None: of a long one."""
    free = [0.0] * workers  # when each is
    taken: list[float] = []
    for i in range(min(epoch or _SIMULATED, _SIMULATED)):
        asked = taken[i - ahead * workers] if i >= ahead * workers else 0.0
        free[i % workers] = max(free[i % workers], asked) + made[i % len(made)]
        taken.append(max(free[i % workers], taken[-1] + loop if taken else 0.0))
    if epoch is not None:
        return (taken[-1] + loop) / len(taken)
    begun = len(taken) // 4
    return (taken[-1] - taken[begun]) / (len(taken) - 1 - begun)


def cpus_for(workers: int, usable: int, others: float) -> float:
    """CPUs that the loop and its workers get: those that `others` leave, or their part of all, where that is more."""
    mine = workers + 1
    return max(usable - others, usable * mine / (mine + others))


def first_tried(grid: Sequence[Point]) -> list[Point]:
    """The fewest workers within a tenth of the best prediction, and one step fewer and more."""
    if not grid:
        return []
    best = min(p.predicted_ms or math.inf for p in grid)
    at = next(i for i, p in enumerate(grid) if (p.predicted_ms or math.inf) <= 1.1 * best)
    low = max(0, min(at - 1, len(grid) - _SCREENED))
    return list(grid[low : low + _SCREENED])


def _usable_cpus() -> int:
    """That this process may run on, by its affinity and its cgroup."""
    from trainperf.container import cpu_quota

    quota = cpu_quota()
    return max(1, min(len(os.sched_getaffinity(0)), math.ceil(quota) if quota else 1_000_000))
