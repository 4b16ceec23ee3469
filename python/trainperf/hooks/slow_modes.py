"""Modes of PyTorch's in which every operation is slower, and which are easily left on: they are looked for."""

from __future__ import annotations

import _tracemalloc
import os
import sys
import time
from typing import Any

from trainperf.hooks.context import Context
from trainperf.hooks.cuda import profiler_runs


class SlowModesHook:
    """Anomaly detection, a profiler (torch.profiler, torch.autograd.profiler), deterministic algorithms, tracemalloc,
    and a trace function of Python's on the training thread (a debugger, coverage, cProfile): for how much of the time,
    by a few looks a second; and whether CUDA_LAUNCH_BLOCKING is set. The looks are just after a backward: a
    `with torch.autograd.detect_anomaly()` is often around no more than that."""

    name = "slow_modes"
    needs = "torch"

    def __init__(self) -> None:
        self._context: Context | None = None
        self._anomaly = self._profiled = self._traced = 0.0  # seconds that they were on
        self._deterministic = self._tracemalloc = 0.0
        self._has_tracer = False
        self._looked = self._first = 0.0

    def install(self, context: Context) -> None:
        self._context = context
        self._first = self._looked = time.monotonic()
        if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
            context.session.set_meta("launch_blocking", "1")
        context.ticker.add(self.name, self._look)

    def remove(self) -> None:
        if self._context is not None:
            self._context.ticker.discard(self.name)

    def _look(self) -> None:
        import torch

        assert self._context is not None
        before, self._looked = self._looked, time.monotonic()
        self._anomaly += (self._looked - before) * torch.is_anomaly_enabled()
        profiled = profiler_runs()
        self._profiled += (self._looked - before) * profiled
        self._look_for_tracer(self._looked - before, profiled)
        if self._anomaly:
            self._context.session.set_meta("anomaly_percent", self._percent(self._anomaly))
        self._deterministic += (self._looked - before) * torch.are_deterministic_algorithms_enabled()
        if self._deterministic:
            self._context.session.set_meta("deterministic_percent", self._percent(self._deterministic))
        self._tracemalloc += (self._looked - before) * _tracemalloc.is_tracing()
        if self._tracemalloc:
            self._context.session.set_meta("tracemalloc_percent", self._percent(self._tracemalloc))
        if self._profiled:
            self._context.session.set_meta("profiled_percent", self._percent(self._profiled))

    def _look_for_tracer(self, seconds: float, profiled: bool) -> None:
        tracer: object = sys.gettrace()
        kind = "sys.settrace"
        if tracer is None and not profiled:  # torch.profiler(with_stack=True) sets one of its own
            tracer, kind = sys.getprofile(), "sys.setprofile"
        if tracer is None and (tool := _monitoring_tool()):  # from 3.12: coverage, cProfile, debuggers
            tracer, kind = tool, "sys.monitoring"
        self._traced += seconds * (tracer is not None)
        if not self._traced:
            return
        assert self._context is not None
        session = self._context.session
        session.set_meta("traced_percent", self._percent(self._traced))
        if tracer is not None and not self._has_tracer:
            self._has_tracer = True
            session.set_meta("tracer_kind", kind)
            session.set_meta("tracer", _function(tracer))

    def _percent(self, seconds: float) -> str:
        return str(max(1, round(100 * seconds / (self._looked - self._first))))


def _monitoring_tool() -> str:
    """The name of one that asked for events; "" for none."""
    monitoring: Any = getattr(sys, "monitoring", None)
    tools = range(6) if monitoring is not None else ()
    return next((str(monitoring.get_tool(i)) for i in tools if monitoring.get_tool(i) and monitoring.get_events(i)), "")


def _function(tracer: Any) -> str:
    """ "file:function" of one written in Python, as samples have it; else ":type"."""
    if isinstance(tracer, str):
        return f":{tracer}"
    code = getattr(getattr(tracer, "__func__", tracer), "__code__", None)
    if code is None:
        return f":{type(tracer).__module__}.{type(tracer).__qualname__}"
    return f"{code.co_filename}:{getattr(code, 'co_qualname', code.co_name)}"
