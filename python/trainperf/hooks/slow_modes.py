"""Modes of PyTorch's in which every operation is slower, and which are easily left on: they are looked for."""

from __future__ import annotations

from trainperf.hooks.context import Context
from trainperf.hooks.cuda import profiler_runs


class SlowModesHook:
    """Anomaly detection, and a profiler (torch.profiler, torch.autograd.profiler), ten times a second. The looks are
    just after a backward: a `with torch.autograd.detect_anomaly()` is often around no more than that."""

    name = "slow_modes"
    needs = "torch"

    def __init__(self) -> None:
        self._context: Context | None = None
        self._looks = self._profiled = 0

    def install(self, context: Context) -> None:
        self._context = context
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
        self._looks += 1
        self._profiled += profiler_runs()
        if self._profiled:
            self._context.session.set_meta("profiled_percent", str(100 * self._profiled // self._looks))
