"""Modes of PyTorch's in which every operation is slower, and which are easily left on: they are looked for."""

from __future__ import annotations

import time

from trainperf.hooks.context import Context
from trainperf.hooks.cuda import profiler_runs


class SlowModesHook:
    """Anomaly detection, and a profiler (torch.profiler, torch.autograd.profiler): for how much of the time, by at most
    ten looks a second. These are just after a backward: a `with torch.autograd.detect_anomaly()` is often around no
    more than that."""

    name = "slow_modes"
    needs = "torch"

    def __init__(self) -> None:
        self._context: Context | None = None
        self._anomaly = self._profiled = 0.0  # seconds that they were on
        self._looked = self._first = 0.0

    def install(self, context: Context) -> None:
        self._context = context
        self._first = self._looked = time.monotonic()
        context.ticker.add(self.name, self._look)

    def remove(self) -> None:
        if self._context is not None:
            self._context.ticker.discard(self.name)

    def _look(self) -> None:
        import torch

        assert self._context is not None
        before, self._looked = self._looked, time.monotonic()
        self._anomaly += (self._looked - before) * torch.is_anomaly_enabled()
        self._profiled += (self._looked - before) * profiler_runs()
        if self._anomaly:
            self._context.session.set_meta("anomaly_percent", self._percent(self._anomaly))
        if self._profiled:
            self._context.session.set_meta("profiled_percent", self._percent(self._profiled))

    def _percent(self, seconds: float) -> str:
        return str(max(1, round(100 * seconds / (self._looked - self._first))))
