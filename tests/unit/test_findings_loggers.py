"""TP702, and what of logging is not the user's, on runs made by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from trainperf.findings.model import Said
from verdicts import TRAIN, Make, hook, lightning, only, said


def test_a_logger(make: Make) -> None:
    file = lightning(make).steps(100, compute=9.0, logging=1.0)
    file.object(1, "logger", **{"class": "SlowLogger", "hooks": {"log_metrics": hook(90, count=10, other=0)}})
    f = said(file).findings[0]
    assert (f.id, f.cause) == ("TP702", "logging") and f.who == ("SlowLogger.log_metrics",)
    assert (f.variant, f.params["seldom"]) == ("lightning", 50) and f.cost_ms_per_step == pytest.approx(0.9, abs=0.01)


def test_of_two_loggers_the_second_is_told_with_the_first(make: Make) -> None:
    file = lightning(make).steps(100, {("logging", "blocked"): 1.0, ("logging", "python"): 0.8}, compute=7.0)
    for i, (name, ms) in enumerate((("Slow", 100), ("Formats", 75), ("Quick", 2))):
        file.object(1 + i, "logger", **{"class": name, "hooks": {"log_metrics": hook(ms, count=10, other=0)}})
    (f,) = said(file).findings
    assert f.id == "TP702" and f.params["names"] == ("Slow", "Formats")
    assert f.who == ("Slow.log_metrics", "Formats.log_metrics") and f.cost_ms_per_step == pytest.approx(1.75, abs=0.01)


def test_each_of_several_loggers_is_told_with_its_cost(make: Make) -> None:
    file = lightning(make).steps(100, compute=7.0, logging=4.1)
    for i, name in enumerate("ABCD"):
        file.object(1 + i, "logger", **{"class": name, "hooks": {"log_metrics": hook(100, count=10, other=0)}})
    file.object(9, "logger", **{"class": "Quick", "hooks": {"log_metrics": hook(1, count=10, other=0)}})
    (f,) = said(file).findings
    assert f.params["names"] == tuple("ABCD") and f.params["others"] == ("Quick 0.1%",)
    assert [(p["part"], p["each"], p["count"]) for p in f.params["also"]] == [(name, 1e6, 10) for name in "BCD"]


@pytest.mark.parametrize(("own", "asked"), [(30, 60), (60, 30)])
def test_what_the_program_logs_by_itself_is_not_set_by_the_trainer(make: Make, own: float, asked: float) -> None:
    file = lightning(make).steps(100, compute=9.0, logging=1.0)
    hooks = {
        "log_metrics": hook(own, count=10, other=0),
        f"log_metrics by Mine.on_x at {TRAIN}:7": hook(asked, count=30, other=0),
    }
    file.object(1, "logger", **{"class": "SlowLogger", "hooks": hooks})
    f = said(file).findings[0]
    assert f.id == "TP702" and f.cost_ms_per_step == pytest.approx(0.9, abs=0.01)
    assert f.fix_share == pytest.approx(2 / 3)
    if own > asked:
        assert (f.variant, f.params["call"], f.params["every"]) == ("lightning", 6e6, 10)
        by = {"hook": "log_metrics", "by": "Mine.on_x (train.py:7)"}
        assert f.who == ("SlowLogger.log_metrics",) and f.params["second"] == Said("called", by)
    else:
        assert (f.variant, f.params["caller"]) == ("by_program", "Mine.on_x")
        assert f.who == ("SlowLogger.log_metrics", "Mine.on_x")
        assert (f.params["call"], f.params["by"]) == (2e6, "Mine.on_x (train.py:7)")


@pytest.mark.parametrize("arguments", [{}, {"logging_steps": 20}])
def test_what_a_callback_of_hugging_faces_does_in_on_log_is_told_as_a_loggers(make: Make, arguments: Any) -> None:
    file = make(transformers=json.dumps(arguments), python="3.11.7")
    file.steps(100, {("logging", "blocked"): 2.0}, compute=9.0)
    hooks = {"on_log": hook(180, count=5, other=0), "on_step_end": hook(20, other=20)}
    file.object(1, "callback", **{"class": "Plot", "module": "app", "at": f"{TRAIN}:40", "hooks": hooks})
    at = file.stack(f"{TRAIN}:41 Plot.on_log")
    file.detail("sample", 200, phase="logging", state="blocked", stack=at, count=40)
    f = only(file)
    if not arguments:
        assert f.id == "TP305"  # on_log is a hook of the Trainer's alone
        return
    assert (f.id, f.variant, f.where) == ("TP702", "hugging_face", "train.py:41")
    assert f.cost_ms_per_step == pytest.approx(1.8, abs=0.01) and f.who == ("Plot.on_log",)
    assert f.params["kind"] == Said("kind_callback") and (f.params["seldom"], f.params["every"]) == (100, 20)


def test_a_logger_of_hugging_faces_is_told_in_its_words(make: Make) -> None:
    facts = json.dumps({"version": "5.23.0", "logging_steps": 20})
    file = make().meta(framework="transformers 5.23.0", transformers=facts).steps(100, compute=9.0, logging=1.0)
    file.object(1, "logger", **{"class": "WandbCallback", "hooks": {"on_log": hook(90, count=5, other=0)}})
    f = said(file).findings[0]
    assert (f.id, f.variant, f.params["kind"]) == ("TP702", "hugging_face", Said("kind_logger"))
    assert (f.params["call"], f.params["every"], f.params["seldom"]) == (18e6, 20, 100)


@pytest.mark.parametrize(("figures", "told"), [(0, True), (90, False)])
def test_what_loggers_take_for_our_figures_is_no_fault_of_theirs(make: Make, figures: float, told: bool) -> None:
    file = lightning(make).steps(100, {("forward", "native"): 8.0, ("logging", "blocked"): 1.0})
    assert ("logging" in [f.slug for f in said(file.overhead(figures=figures)).findings]) == told


def test_our_figures_are_not_told_beside_a_logger_either(make: Make) -> None:
    file = lightning(make).steps(100, {("forward", "native"): 8.0, ("logging", "blocked"): 2.0}).overhead(figures=100)
    file.object(1, "logger", **{"class": "Slow", "hooks": {"log_metrics": hook(100, count=10, other=0)}})
    assert [(f.id, round(f.cost_ms_per_step, 1)) for f in said(file).findings] == [("TP702", 1.0)]


def test_nor_do_they_hide_who_has_the_cpus(make: Make) -> None:
    file = make(cpus="2").steps(100, compute=8.0, descheduled=1.5).host(5, process_cpus=1, other_cpus=1)
    assert "descheduled" in [f.slug for f in said(file.overhead(figures=200)).findings]
