"""TP404 on runs made by hand: what grows with the steps, and what only seems to."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from runfiles import RunFile
from trainperf.findings.trends import still_rises
from verdicts import TRAIN, Make, abstained, infos, loud, only, said, unsure

BACKWARD = ("backward", "native")
FORWARD = ("forward", "native")


def grows(make: Make, backward: Callable[[int], float], steps: int = 300, forward: float = 4.0) -> RunFile:
    """`backward`: ms, by the number of the step."""
    file = make()
    rng = np.random.default_rng(1)
    for step in range(steps):
        file.step({FORWARD: forward * rng.normal(1, 0.05), BACKWARD: backward(step) * rng.normal(1, 0.05)})
    return file


@pytest.mark.parametrize("power", [1, 2, 3])
def test_a_backward_that_grows_leads_with_its_excess(make: Make, power: int) -> None:
    file = grows(make, lambda s: 2.0 + 20.0 * (s / 300) ** power)
    f = only(file)
    assert (f.id, f.severity, f.cause) == ("TP404", "critical", "compute")
    mean = 20.0 / (power + 1)
    assert f.share == pytest.approx(mean / (6.0 + mean), abs=0.04)
    assert (f.variant, f.params["phase"]) == ("graph", "backward")
    assert said(file).verdict.finding == "TP404"
    assert "TP401" not in [g.id for g in said(file).findings]
    (backward_row,) = f.params["phases"]
    assert backward_row["bends"] == (power > 1)


@pytest.mark.parametrize(
    "backward",
    [
        lambda s: 4.0,
        lambda s: 4.0 + (8.0 if s > 150 else 0.0),  # one jump
        lambda s: 4.0 + min(s, 60) / 5,  # a plateau
        lambda s: 4.0 + 10.0 * (1 - 0.98**s),  # it settles
        lambda s: 4.0 + s / 300,  # too little
        lambda s: 16.0 - s / 30,
        lambda s: 4.0 + (s % 100) / 10,  # epochs
    ],
)
def test_what_does_not_grow_to_the_end_is_no_growth(make: Make, backward: Callable[[int], float]) -> None:
    assert "growing-step" not in loud(grows(make, backward)) + infos(grows(make, backward))


def test_larger_inputs_and_a_slower_machine_are_no_warning(make: Make) -> None:
    inputs, machine = make(), make()
    for step in range(300):
        more = 1 + step / 150
        inputs.step({FORWARD: 3.0 * more, BACKWARD: 6.0 * more, ("optimizer", "native"): 2.0})
        machine.step({FORWARD: 3.0 * more, BACKWARD: 6.0 * more, ("optimizer", "native"): 2.0 * more})
    assert loud(inputs) == [] and infos(inputs) == ["growing-step"]
    (f,) = said(inputs).findings
    assert f.cost_ns == 0 and f.variant == "inputs" and f.finds_out
    assert "growing-step" not in loud(machine) + infos(machine)


def test_larger_inputs_are_known_where_one_of_both_phases_rises_unclearly(make: Make) -> None:
    file = make()
    for step in range(300):
        forward = 3.0 + min(step, 180) / 60  # it settles
        file.step({FORWARD: forward, BACKWARD: 6.0 + step / 25, ("optimizer", "native"): 2.0})
    assert "growing-step" not in loud(file)


def test_waits_for_a_cpu_that_grow_are_the_machines(make: Make) -> None:
    file = make()
    for step in range(300):
        file.step({FORWARD: 4.0, BACKWARD: 4.0, ("backward", "descheduled"): step / 30})
    assert "growing-step" not in loud(file) + infos(file)


def test_a_function_that_grows_is_named(make: Make) -> None:
    file = make()
    at = file.stack(f"{TRAIN}:21 summary", f"{TRAIN}:60 main")
    for step in range(320):
        file.step({FORWARD: 3.0, BACKWARD: 6.0, ("other", "python"): 0.5 + step / 20})
    for section in range(32):
        file.detail("sample", 5 * section / 2, phase="other", state="python", stack=at, section=section, count=2)
    f = only(file)
    assert (f.id, f.variant, f.where) == ("TP404", "function", "train.py:21")
    assert f.params["function"] == "summary" and f.params["rise_ms"] == pytest.approx(0.05, rel=0.05)


@pytest.mark.parametrize(
    ("phase", "at", "variant"),
    [
        ("logging", f"{TRAIN}:21 write_table", "function_in_phase"),
        ("backward", f"{TRAIN}:21 hook", "function_in_backward"),
    ],
)
def test_a_function_within_a_phase_that_grows_is_named(make: Make, phase: str, at: str, variant: str) -> None:
    file = make()
    for step in range(320):
        more = {("logging", "python"): 0.5 + step / 20} if phase == "logging" else {}
        file.step({FORWARD: 3.0, BACKWARD: 6.0, ("backward", "python"): 0.0 if more else step / 20, **more})
    for section in range(32):
        stack = file.stack(at, f"{TRAIN}:60 main")
        file.detail("sample", 5 * section / 2, phase=phase, state="python", stack=stack, section=section, count=2)
    (f,) = (f for f in said(file).findings if f.id == "TP404")
    assert (f.variant, f.where, f.params["phase"]) == (variant, "train.py:21", phase)


def test_a_call_on_weights_that_may_add_to_the_graph_is_suspected(make: Make) -> None:
    file = grows(make, lambda s: 2.0 + 20.0 * s / 300)
    at = file.stack("/x/site-packages/torch/utils/hooks.py:9 add", f"{TRAIN}:21 average", f"{TRAIN}:60 main")
    f = only(file.detail("sample", 100, phase="other", state="python", stack=at))
    assert (f.id, f.variant, f.where) == ("TP404", "suspect", "train.py:21")


def test_a_log_that_is_rewritten_whole_is_to_be_appended_to(make: Make) -> None:
    """Its own place has less than half of the rise: the rest is that of its callers, and noise."""
    file = make(source_marks=json.dumps({TRAIN: [[20, 21, "rewrite"]]}))
    save = file.stack("/usr/lib/python3.11/json/__init__.py:179 dump", f"{TRAIN}:21 History.save", f"{TRAIN}:60 main")
    others = [file.stack(f"{TRAIN}:{line} {name}", f"{TRAIN}:60 main") for line, name in ((15, "log"), (60, "main"))]
    for step in range(320):
        file.step({FORWARD: 3.0, BACKWARD: 6.0, ("other", "python"): 0.5 + step / 20})
    for section in range(32):
        for stack, part in zip((save, *others), (0.4, 0.3, 0.3), strict=True):
            file.detail("sample", part * section, phase="other", state="python", stack=stack, section=section, count=2)
    f = only(file)
    assert (f.id, f.variant, f.where) == ("TP404", "rewritten_log", "train.py:21")
    assert f.params["function"] == "History.save" and f.params["rise_ms"] == pytest.approx(0.05, rel=0.05)


@pytest.mark.parametrize("kind", ["join", "other"])
@pytest.mark.parametrize("at_first", [0.8, 5.0])
def test_an_array_that_is_copied_to_grow_is_told_once(make: Make, kind: str, at_first: float) -> None:
    """TP404 tells what it takes above the first steps; what it takes from these on is left to TP310, which names
    whatever takes more than that."""
    file = make(source_marks=json.dumps({TRAIN: [[21, 21, kind]]}))
    push, other = (file.stack(f"{TRAIN}:{at}", f"{TRAIN}:60 main") for at in ("21 Memory.push", "31 metrics"))
    for step in range(320):
        file.step({("other", "native"): at_first + step / 40 + 3.0, FORWARD: 3.0, BACKWARD: 6.0})
    for section in range(40):  # of eight steps
        ms = sum(at_first + step / 40 for step in range(8 * section, 8 * section + 8))
        for stack, part in ((push, ms), (other, 24.0)):
            file.detail("sample", part, phase="other", state="native", stack=stack, section=section, count=3)
    found = {f.id: f for f in said(file).findings}
    grows, rest = found["TP404"], found["TP310"]
    assert grows.variant == ("copied_to_grow" if kind == "join" else "function") and grows.where == "train.py:21"
    assert rest.where == ("train.py:21" if at_first > 3.0 else "train.py:31")
    both = 320 * (at_first + 4.0 + 3.0) * 1e6
    assert grows.cost_ns + rest.cost_ns == pytest.approx(both, rel=0.02)  # all that the two take, and no more


def test_what_grows_in_some_of_the_steps_only(make: Make) -> None:
    """A table that is written again at every tenth step."""
    file = make()
    for step in range(400):
        log = {("logging", "blocked"): 10 + step / 2} if step % 10 == 9 else {}
        file.step({FORWARD: 3.0, BACKWARD: 6.0, **log})
    found = {f.id: f for f in said(file).findings}
    assert said(file).verdict.finding == "TP404" and found["TP404"].params["phase"] == "logging"


def test_few_steps_and_short_runs_tell_no_growth(make: Make) -> None:
    assert "too few to see a trend" in abstained(grows(make, lambda s: 2.0 + s, steps=20), "TP404")
    short = grows(make, lambda s: 0.2 + s / 200, forward=0.2)
    assert unsure(short, "TP404") == "growth_short"


def test_noise_hardly_ever_rises() -> None:
    rng = np.random.default_rng(0)
    assert sum(still_rises(rng.normal(10, 1, n)) for n in (8, 12, 24) for _ in range(1000)) <= 3
