"""What a trouble costs, by the clock of the program that has it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "programs"))

from _common import run_delay_ns


class Truth:
    """What the trouble cost, by the program's own clock, from the first fetch to the end of training."""

    def __init__(self) -> None:
        self.ns = 0  # in the trouble
        self.delay_ns = 0  # of it, kept from a CPU: that has a cause of its own
        self.wall_ns = self.cpu_ns = self.wall_delay_ns = self.batches = 0
        self.counting = False

    def begin(self) -> None:
        if not self.counting and not self.wall_ns:
            self.counting = True
            self._start, self._cpu, self._delay = time.perf_counter_ns(), time.thread_time_ns(), run_delay_ns()

    def end(self) -> None:
        self.counting = False
        self.wall_ns = time.perf_counter_ns() - self._start
        self.cpu_ns, self.wall_delay_ns = time.thread_time_ns() - self._cpu, run_delay_ns() - self._delay

    @contextmanager
    def trouble(self) -> Iterator[None]:
        delay, start = run_delay_ns(), time.perf_counter_ns()
        try:
            yield
        finally:
            if self.counting:
                self.ns += time.perf_counter_ns() - start
                self.delay_ns += run_delay_ns() - delay

    def sleep(self, ms: float) -> None:
        with self.trouble():
            time.sleep(ms / 1e3)

    def spin(self, ms: float) -> None:
        with self.trouble():
            end = time.perf_counter_ns() + int(ms * 1e6)
            while time.perf_counter_ns() < end:
                pass
