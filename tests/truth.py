"""What a trouble costs, by the clock of the program that has it, and whether a run says the same of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "programs"))

from _common import run_delay_ns, system_ns
from torch.utils.data.dataloader import _BaseDataLoaderIter


class Truth:
    """What the trouble cost, by the program's own clock, from the first fetch to the end of training."""

    def __init__(self) -> None:
        self.ns = 0  # in the trouble
        self.delay_ns = 0  # of it, kept from a CPU: that has a cause of its own
        self.fetch_ns = 0  # in fetches from a DataLoader, all that it does around the dataset with it
        self.wall_ns = self.cpu_ns = self.system_ns = self.wall_delay_ns = self.batches = 0
        self.counting = False

    def begin(self) -> None:
        if not self.counting and not self.wall_ns:
            self.counting = True
            self._start, self._cpu, self._delay = time.perf_counter_ns(), time.thread_time_ns(), run_delay_ns()
            self._system = system_ns()

    def end(self) -> None:
        self.counting = False
        self.wall_ns = time.perf_counter_ns() - self._start
        self.cpu_ns, self.wall_delay_ns = time.thread_time_ns() - self._cpu, run_delay_ns() - self._delay
        self.system_ns = system_ns() - self._system

    @contextmanager
    def trouble(self) -> Iterator[None]:
        delay, start = run_delay_ns(), time.perf_counter_ns()
        try:
            yield
        finally:
            if self.counting:
                self.ns += time.perf_counter_ns() - start
                self.delay_ns += run_delay_ns() - delay

    @contextmanager
    def fetches(self) -> Iterator[None]:
        """Times each fetch from a DataLoader as a whole. What is not the dataset's can be a third of a millisecond."""
        original = _BaseDataLoaderIter.__next__

        def timed(loader: Any) -> Any:
            start = time.perf_counter_ns()
            try:
                return original(loader)
            finally:
                if self.counting:
                    self.fetch_ns += time.perf_counter_ns() - max(start, self._start)

        _BaseDataLoaderIter.__next__ = timed
        try:
            yield
        finally:
            _BaseDataLoaderIter.__next__ = original

    def sleep(self, ms: float) -> None:
        with self.trouble():
            time.sleep(ms / 1e3)

    def spin(self, ms: float) -> None:
        with self.trouble():
            end = time.perf_counter_ns() + int(ms * 1e6)
            while time.perf_counter_ns() < end:
                pass


TOLERANCE = 0.03  # of the loop's time
_OF_OBJECTS = ("callback", "lightning_module", "logger")  # causes that are told as the cost of an object


class KnownTrouble:
    """A training with one trouble that it times itself; its subclasses know how to train."""

    cause: str  # where the trouble should be seen ("": healthy); of _OF_OBJECTS: in the cost of that object
    steps: int
    finding: str  # the slug of the first finding; "": none
    who: str
    truth: Truth
    gil: bool
    fix: str = ""  # what the first finding's must have in it

    @property
    def share(self) -> tuple[float, float]:
        """The true share of the loop's time, as a range: a wait for the GIL ends when the thread runs again, so that
        the delay of waking up is part of it or not, and so is the kernel's own time for it, which wakes it up each 5 ms
        and more. The cost of a callback or logger is all of its time; elsewhere, what the trouble was kept from a CPU
        has a cause of its own. The wait for a batch is the dataset's trouble at least, and the whole fetch at most."""
        truth = self.truth
        if self.gil:  # the loop blocks in nothing else
            ns = truth.wall_ns - truth.cpu_ns
            return (ns - truth.wall_delay_ns) / truth.wall_ns, (ns + truth.system_ns) / truth.wall_ns
        ns = truth.ns if self.cause in _OF_OBJECTS else truth.ns - truth.delay_ns
        most_ns = max(ns, truth.fetch_ns) if self.cause == "data_wait" else ns
        return ns / truth.wall_ns, most_ns / truth.wall_ns

    def reported(self, run: Any) -> float:
        if not self.cause:
            return 0.0
        if self.cause not in _OF_OBJECTS:
            return float(run.cause_ns(self.cause) / run.wall_ns)
        own = [d["hooks"] for kind, d in run.objects.values() if kind == self.cause and d["class"] == self.who]
        part = "own_ns" if self.cause == "logger" else "other_ns"  # what it logs is apart from the loop's other time
        return float(sum(hook[part] for hooks in own for hook in hooks.values()) / run.wall_ns)

    def problems(self, run: Any, findings: list[Any]) -> list[str]:
        wrong = []
        low, high = self.share
        reported = self.reported(run)
        tolerance = TOLERANCE + 0.1 * run.cause_ns("descheduled") / run.wall_ns  # which no two clocks see quite alike
        if not low - tolerance <= reported <= high + tolerance:
            wrong.append(f"{self.cause} is {reported:.3f}, not {low:.3f} to {high:.3f}")
        # A busy machine has a right to be told of.
        told = [f for f in findings if f.severity != "info" and f.slug not in ("descheduled", "cpu-oversubscription")]
        first = told[0].slug if told else ""
        if first != self.finding:
            wrong.append(f"the first finding is {first or 'none'}, not {self.finding or 'none'}")
        elif self.who and not any(self.who in who for who in told[0].who):
            wrong.append(f"who is {told[0].who}, not {self.who}")
        elif told and self.fix not in told[0].fix:
            wrong.append(f"the fix is {told[0].fix!r}, without {self.fix!r}")
        return wrong


def assert_told(case: KnownTrouble, watch: Any) -> None:
    """`watch`: the watch or callback under which the case has trained."""
    run = watch.run
    # Whatever the machine did: no step is lost, and no time.
    assert run.step_count == case.steps and run.incomplete == 0
    assert run.meta["ended"] == "normally"
    ends = run.steps.start_ns + run.steps.wall_ns
    assert (ends[:-1] == run.steps.start_ns[1:]).all()
    wrong = case.problems(run, watch.findings)
    assert not wrong, "; ".join(wrong)
