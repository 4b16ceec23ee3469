"""The share of the time that a profiler of PyTorch's was on, by looks that come unevenly."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from trainperf.hooks import slow_modes
from trainperf.hooks.context import Ticker


def test_steps_are_longer_with_a_profiler_and_looks_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    meta: dict[str, str] = {}
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(slow_modes.time, "monotonic", lambda: clock.now)
    context: Any = SimpleNamespace(session=SimpleNamespace(set_meta=meta.__setitem__))
    context.ticker = Ticker(context, lambda: clock.now)
    hook = slow_modes.SlowModesHook()
    hook.install(context)
    for seconds, on in [(0.5, False)] * 50 + [(1.5, True)] * 50:
        clock.now += seconds
        monkeypatch.setattr(slow_modes, "profiler_runs", lambda on=on: on)
        assert ("profiled_percent" in meta) == (clock.now > 126.5)
        context.ticker.tick()
    assert meta == {"profiled_percent": "75"}
    clock.now += 100
    monkeypatch.setattr(slow_modes, "profiler_runs", lambda: False)
    context.ticker.tick()
    assert meta == {"profiled_percent": "38"}
    monkeypatch.setattr("torch.is_anomaly_enabled", lambda: True)
    clock.now += 2
    context.ticker.tick()
    assert meta == {"profiled_percent": "37", "anomaly_percent": "1"}
    hook.remove()
    clock.now += 100
    context.ticker.tick()
    assert meta == {"profiled_percent": "37", "anomaly_percent": "1"}


def test_a_trace_function_is_named_as_samples_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def tracer(frame: Any, event: str, arg: Any) -> None: ...

    meta: dict[str, str] = {}
    context: Any = SimpleNamespace(session=SimpleNamespace(set_meta=meta.__setitem__))
    context.ticker = Ticker(context, lambda: clock.now)
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(slow_modes.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(slow_modes, "profiler_runs", lambda: False)
    monkeypatch.setattr(slow_modes.sys, "gettrace", lambda: tracer)
    slow_modes.SlowModesHook().install(context)
    clock.now += 1
    context.ticker.tick()
    assert meta["traced_percent"] == "100" and meta["tracer_kind"] == "sys.settrace"
    assert meta["tracer"].startswith(f"{__file__}:") and meta["tracer"].endswith("tracer")
