"""TP313 on runs made by hand: modes for debugging, with a price where samples show them at work."""

from __future__ import annotations

import pytest
from trainperf.findings.model import Said
from verdicts import TRAIN, Make, said

FORMAT = "/x/site-packages/torch/fx/traceback.py:503 format_stack"
EXTRACT = "/usr/lib/python3.11/traceback.py:228 extract_stack"
LINEAR = "/x/site-packages/torch/nn/modules/linear.py:134 Linear.forward"


@pytest.mark.parametrize(("framework", "variant"), [("", "anomaly"), ("lightning", "anomaly_in_lightning")])
def test_anomaly_detection_is_priced_by_the_stacks_that_it_formats(make: Make, framework: str, variant: str) -> None:
    file = make(anomaly_percent="100", framework=framework).steps(
        100, {("forward", "python"): 8.0, ("backward", "native"): 2.0}
    )
    stack = file.stack(EXTRACT, FORMAT, LINEAR, f"{TRAIN}:12 train")
    file.detail("sample", 750, phase="forward", state="python", stack=stack)
    file.detail("sample", 50, phase="forward", state="python", stack=file.stack(LINEAR, f"{TRAIN}:12 train"))
    file.detail("sample", 200, phase="backward", state="native", stack=file.stack(f"{TRAIN}:13 train"))
    found = said(file)
    (f,) = found.findings
    assert (f.id, f.severity, f.cost_ms_per_step) == ("TP313", "critical", 7.5), f
    assert found.verdict.finding == "TP313" and f.variant == variant and f.saves_more


def test_without_samples_its_price_is_not_known(make: Make) -> None:
    found = said(make(anomaly_percent="60").steps(300, compute=9.3, python=0.3))
    assert "TP313" not in [f.id for f in found.findings]
    (abstained,) = (a for a in found.abstained if a.id == "TP313")
    assert abstained.params["modes"] == (Said("anomaly_was_on", {"percent": 60}),)


def test_stacks_that_a_program_formats_itself_are_no_anomaly_detection(make: Make) -> None:
    file = make().steps(100, {("forward", "python"): 8.0}, compute=2.0)
    file.detail("sample", 800, phase="forward", state="python", stack=file.stack(FORMAT, LINEAR, f"{TRAIN}:12 train"))
    assert "TP313" not in [f.id for f in said(file).findings]


def test_a_trace_function_in_python_is_priced_by_its_own_samples(make: Make) -> None:
    file = make(traced_percent="99", tracer=f"{TRAIN}:tracer", tracer_kind="sys.settrace").steps(
        100, {("forward", "python"): 8.0, ("backward", "native"): 2.0}
    )
    stack = file.stack(f"{TRAIN}:7 tracer", LINEAR, f"{TRAIN}:12 train")
    file.detail("sample", 400, phase="forward", state="python", stack=stack)
    file.detail("sample", 400, phase="forward", state="python", stack=file.stack(LINEAR, f"{TRAIN}:12 train"))
    found = said(file)
    f = next(f for f in found.findings if f.id == "TP313")
    assert (f.severity, f.cost_ms_per_step) == ("critical", 4.0) and f.params["fix"] == Said("off_settrace")
    assert found.verdict.finding == "TP313"


@pytest.mark.parametrize(("python", "severity"), [(5.0, "warning"), (0.5, "info")])
def test_a_trace_function_in_c_has_no_price(make: Make, python: float, severity: str) -> None:
    file = make(traced_percent="99", tracer=":coverage.tracer.CTracer", tracer_kind="sys.settrace")
    (f,) = [f for f in said(file.steps(100, python=python, compute=10 - python)).findings if f.id == "TP313"]
    assert (f.severity, f.cost_ns) == (severity, 0) and f.params["each"] is None


def modes(make: Make, **meta: str) -> list[str]:
    """Keys of what is said of modes without a price, where the rule abstains for them."""
    abstained = [a for a in said(make(**meta).steps(100, compute=5.0)).abstained if a.slug == "debug-mode"]
    return [mode.key for a in abstained for mode in a.params["modes"]]


def test_a_mode_without_a_price_abstains_by_its_name(make: Make) -> None:
    assert modes(make, launch_blocking="1", feeds_device="1") == ["blocking_was_on"]
    assert modes(make, launch_blocking="1") == []
    assert modes(make, deterministic_percent="97") == ["deterministic_was_on"]
    assert modes(make, traced_percent="30", tracer_kind="sys.setprofile") == ["tracer_was_on"]


def test_each_of_two_modes_is_named(make: Make) -> None:
    found = modes(make, anomaly_percent="80", deterministic_percent="97", profiled_percent="90")
    assert found == ["anomaly_was_on", "profiler_was_on", "deterministic_was_on"]
    traced = make(traced_percent="99", tracer=":coverage.CTracer", deterministic_percent="97")
    (f,) = [f for f in said(traced.steps(100, python=5.0, compute=5.0)).findings if f.id == "TP313"]
    assert f.params["modes"] == ({"said": Said("deterministic_was_on", {"percent": "97"})},)
