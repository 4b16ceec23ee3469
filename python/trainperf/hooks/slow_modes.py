"""Modes of PyTorch's in which every operation is slower, and which are easily left on: they are looked for."""

from __future__ import annotations

import time

from trainperf.hooks.context import Context
from trainperf.hooks.cuda import profiler_runs


class SlowModesHook:
    """Anomaly detection, and a profiler (torch.profiler, torch.autograd.profiler), at most ten times a second. The
    looks are just after a backward: a `with torch.autograd.detect_anomaly()` is often around no more than that."""

    name = "slow_modes"
    needs = "torch"

    def __init__(self) -> None:
        self._context: Context | None = None
        self._looked = self._profiled = self._first = 0.0

    def install(self, context: Context) -> None:
        self._context = context
        self._first = self._looked = time.monotonic()
        context.ticker.add(self.name, self._look_for_anomaly_mode)
        context.ticker.add(self.name, self._look_for_profiler)

    def remove(self) -> None:
        if self._context is not None:
            self._context.ticker.discard(self.name)

    def _look_for_anomaly_mode(self) -> None:
        import torch

        assert self._context is not None
        if torch.is_anomaly_enabled():
            self._context.session.set_meta("anomaly_mode", "1")
            self._context.ticker.discard(self.name, self._look_for_anomaly_mode)

    def _look_for_profiler(self) -> None:
        assert self._context is not None
        before, self._looked = self._looked, time.monotonic()
        self._profiled += (self._looked - before) * profiler_runs()
        if self._profiled:
            share = self._profiled / (self._looked - self._first)
            self._context.session.set_meta("profiled_percent", str(round(100 * share)))
