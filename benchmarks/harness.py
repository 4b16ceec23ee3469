"""What the benchmarks share: figures with their spread and target, paired ratios, and the loops that are measured.

A shared machine is noisy, so nothing here compares two absolute times from two moments: blocks A and B alternate (A B,
B A, A B ...), each pair of neighbours gives one ratio, and the figure is the median ratio with a bootstrap interval.
Trainings take turns (turns.py).
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import random
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table. `value` is None when it could not be measured: `note` says why."""

    name: str
    value: float | None
    unit: str = ""
    low: float | None = None
    high: float | None = None
    target: float | None = None
    better: Literal["lower", "higher"] = "lower"
    note: str = ""

    @property
    def verdict(self) -> str:
        """met or not; "within noise" when the interval has ends on both sides of the target."""
        if self.value is None:
            return "not measured"
        if self.target is None:
            return ""
        sign = 1 if self.better == "lower" else -1
        met = sign * self.value <= sign * self.target
        ends = [end for end in (self.low, self.high) if end is not None]
        clear = all((sign * end <= sign * self.target) == met for end in ends)
        return ("met" if met else "NOT MET") + ("" if clear else " (within noise)")


def median_interval(values: Sequence[float], *, rounds: int = 2000) -> tuple[float, float, float]:
    """The median of `values` and its 95 % bootstrap interval."""
    rng = random.Random(0)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(rounds))
    return statistics.median(values), medians[int(0.025 * rounds)], medians[int(0.975 * rounds)]


def _walsh_averages(values: Sequence[float]) -> list[float]:
    """The averages of any two, and of each with itself; sorted."""
    return sorted((a + b) / 2 for a, b in itertools.combinations_with_replacement(values, 2))


def hodges_lehmann(values: Sequence[float]) -> float:
    """Hodges and Lehmann's estimate of what `values` lie around: a few that lie far off hardly move it."""
    return statistics.median(_walsh_averages(values))


def paired_interval(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Hodges and Lehmann's estimate of what `values` lie around, and its interval of 95 % or more.

    The interval is that of Wilcoxon's signed ranks, exact for independent values that lie symmetrically around it. None
    for its ends with fewer than 6 values, of which not even the whole range is one of 95 %.
    """
    averages = _walsh_averages(values)
    ways = [1] + [0] * len(averages)  # in which some of the ranks sum to 0, 1, ...
    for rank in range(1, len(values) + 1):
        for total in range(len(averages), rank - 1, -1):
            ways[total] += ways[total - rank]
    end = 0  # the interval's, counted from either end of `averages`
    while sum(ways[: end + 1]) <= 0.025 * 2 ** len(values):
        end += 1
    middle = statistics.median(averages)
    return (middle, averages[end - 1], averages[-end]) if end else (middle, None, None)


def paired(base: Callable[[], T], other: Callable[[], T], pairs: int) -> list[tuple[T, T]]:
    """(base(), other()) of `pairs` neighbouring runs, in alternating order."""
    result = []
    for index in range(pairs):
        if index % 2:
            b, a = other(), base()
        else:
            a, b = base(), other()
        result.append((a, b))
    return result


def paired_ratios(base: Callable[[], float], other: Callable[[], float], pairs: int) -> list[float]:
    """other() / base() of neighbouring runs."""
    return [b / a for a, b in paired(base, other, pairs)]


def ratio_figure(name: str, ratios: Sequence[float], **more: Any) -> Figure:
    value, low, high = median_interval(ratios)
    return Figure(name, value, "x", low, high, **more)


def pin(cpu: int = 0) -> None:
    """Keeps the calling thread on one CPU, and the threads that it starts from now on: not those that there are."""
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[cpu % len(cpus)]})


@contextmanager
def pinned(cpu: int = 0) -> Any:
    before = os.sched_getaffinity(0)
    pin(cpu)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass(frozen=True, slots=True)
class Block:
    """Some steps of a loop: ns per step."""

    mean_ns: float  # has everything in it, and the machine's noise
    middle_ns: float  # the median step: blind to what happens to few steps
    calm_ns: float  # the tenth percentile: steps that nobody disturbed, our own helper threads neither
    cpu_ns: float  # of the whole process, helper threads too: steady, whatever else the machine does; mean
    thread_ns: float  # CPU time of the thread that trains: likewise, without the helpers


Mark = tuple[int, int, int]


def mark() -> Mark:
    """(wall, the process' CPU time, this thread's): for the end of a step."""
    return time.perf_counter_ns(), time.process_time_ns(), time.thread_time_ns()


def block_of(runs: Sequence[Sequence[Mark]]) -> Block:
    """Of steps that follow one another within each run."""
    steps = [[b - a for a, b in zip(*ends, strict=True)] for run in runs for ends in itertools.pairwise(run)]
    wall, cpu, thread = zip(*steps, strict=True)
    calm = sorted(wall)[len(wall) // 10]
    return Block(statistics.mean(wall), statistics.median(wall), calm, statistics.mean(cpu), statistics.mean(thread))


FRAMEWORK_MS = 5.0  # a step of a training by a framework


def block_of_steps(train: Callable[[Callable[[], None]], None], skipped: int = 30) -> Block:
    """train(step_ended) to its end, less its first steps."""
    marks: list[Mark] = []
    train(lambda: marks.append(mark()))
    return block_of([marks[skipped:]])


def fitting_size(step_ms: Callable[[int], float]) -> int:
    """The batch size of a step of FRAMEWORK_MS, which is nearly linear in it, but for the framework's own time."""
    size, own_ms = 64, 0.8
    for _ in range(4):
        size = max(8, int(size * max(0.2, (FRAMEWORK_MS - own_ms) / max(0.2, step_ms(size) - own_ms))))
    return size


def framework_figures(
    name: str, packages: Sequence[str], measure: Callable[[int], list[Figure]], *, quick: bool
) -> list[Figure]:
    """measure(pairs of processes), or that a package is missing."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        return [Figure(f"{name} step with / without", None, note=f"not installed: {', '.join(missing)}")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return measure(2 if quick else 10)


def perceptron() -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(64, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 10))


class Loop:
    """A plain training loop on one thread of torch whose step takes about `target_ms` where nobody disturbs it."""

    def __init__(self, target_ms: float) -> None:
        import torch
        from torch import nn

        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.model = perceptron()
        self.loss = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        size = 64
        for _ in range(4):  # the time of a step is nearly linear in its batch
            self.batch = (torch.randn(size, 64), torch.randint(0, 10, (size,)))
            self._step_ns(20)
            step_ms = statistics.median(self._step_ns(40) for _ in range(9)) / 1e6
            size = max(8, int(size * target_ms / step_ms))
        self.step_ms = step_ms

    def _step_ns(self, steps: int) -> float:
        return block_of_steps(lambda step_ended: self.train(step_ended, steps), 0).calm_ns

    def train(self, step_ended: Callable[[], None], steps: int) -> None:
        from torch.utils.data import DataLoader

        loader: Any = DataLoader([self.batch] * steps, batch_size=None)  # type: ignore[arg-type]
        model, loss, optimizer = self.model, self.loss, self.optimizer
        for x, y in loader:
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
            step_ended()
