"""Rules about what holds the loop up: collections of garbage, checkpoints, logging; on runs made by hand."""

from __future__ import annotations

import pytest
from trainperf.findings.model import Said
from verdicts import TRAIN, Make, only, said


def test_gc_pauses(make: Make) -> None:
    file = make()
    for _ in range(10):
        file.steps(9, compute=9.0)
        file.span("gc", 20, step=file.step(gc=20.0, compute=9.0), value=2)
    file.detail("gc", 200, code=2, count=10).detail("gc", 1, code=1, count=100)
    found = said(file)
    f = only(file)
    assert (f.id, f.variant, f.steps_affected) == ("TP303", "generation_2", 10)
    assert "10 of 100 steps, 20.0 ms each" in found.verdict.text


@pytest.mark.parametrize("generation", [0, 1, 2])
def test_what_a_collection_walks_depends_on_its_generation(make: Make, generation: int) -> None:
    """So does the mend: freezing does not help objects that the loop makes."""
    file = make().steps(100, gc=5.0, compute=8.0)
    file.detail("gc", 500, code=generation, count=9).detail("gc", 1, code=1, count=90)
    assert only(file).variant == f"generation_{generation}"


@pytest.mark.parametrize(("younger", "named"), [(0, True), (5, True), (12, False)])
def test_a_call_of_gc_collect_is_named(make: Make, younger: int, named: bool) -> None:
    """Full collections alone are asked for; among younger ones they come by themselves, whatever line that hits."""
    file = make().steps(100, {("other", "gc"): 2.0}, compute=8.0)
    file.detail("gc", 200, phase="other", code=2, count=5)
    if younger:
        file.detail("gc", 1, phase="other", code=1, count=younger)
    file.detail("sample", 200, phase="other", stack=file.stack(f"{TRAIN}:88 train_epoch"))
    file.detail("sample", 20, phase="other", stack=file.stack(f"{TRAIN}:20 build"))
    f = only(file)
    assert f.id == "TP303" and f.where == ("train.py:88" if named else "")
    assert f.variant == ("asked" if named else "generation_2")
    assert f.params["place"] == ("train_epoch (train.py:88)" if named else None)


@pytest.mark.parametrize(("full", "asked"), [(2, False), (3, True)])
def test_full_collections_alone_are_asked_for_also_without_a_sample(make: Make, full: int, asked: bool) -> None:
    """As those of a library are, which no line of the user's calls."""
    file = make().steps(100, gc=5.0, compute=8.0)
    file.detail("gc", 500, code=2, count=full).detail("gc", 0.1, code=0, count=90)
    f = only(file)
    assert (f.variant, f.params["full"]) == ("asked_by_library" if asked else "generation_2", full)
    file.detail("gc", 1, code=1, count=300)
    assert only(file).variant == "generation_2"


@pytest.mark.parametrize("python", ["3.13.9", "3.14.0rc2", "3.14.4", "3.14.5", "3.14.10", "3.15.0"])
def test_increments_are_told_as_such(make: Make, python: str) -> None:
    """3.14.0 to 3.14.4 collect by themselves in increments, which walk old objects too: freezing helps."""
    file = make(python=python).steps(100, gc=5.0, compute=8.0)
    file.detail("gc", 500, code=1, count=90)
    f = only(file)
    incremental = python in ("3.14.0rc2", "3.14.4")
    assert f.variant == ("incremental" if incremental else "generation_1")
    (row,) = f.params["generations"]
    assert row["name"] == (Said("gc_incremental") if incremental else Said("gc_generation", {"number": 1}))
    assert row["count"] == 90
    file.detail("gc", 100, code=2, count=4)
    assert only(file).variant == f.variant
    file.detail("gc", 500, code=2, count=20)  # none of them comes by itself there
    assert only(file).variant == ("asked_by_library" if incremental else "generation_2")


def test_checkpoint_says_bytes_speed_and_how_often(make: Make) -> None:
    file = make()
    at = file.stack("/x/site-packages/torch/serialization.py:900 save", f"{TRAIN}:70 save")
    for step in range(24):
        file.step(compute=10.0, checkpoint=60.0 if step % 12 == 11 else 0.0)
    for step in (11, 23):
        file.span("checkpoint", 60, step=step, value=120_000_000)
    file.detail("sample", 110, phase="checkpoint", state="blocked", stack=at)
    f = only(file)
    assert f.id == "TP304" and f.where == "train.py:70" and f.steps_affected == 2
    assert (f.variant, f.params["saves"]) == ("writing", 2)
    assert f.params["bytes"] == 120e6 and f.params["speed"] == pytest.approx(2e9)


def test_logging(make: Make) -> None:
    file = make()
    for _ in range(100):
        file.span("logging", 2, step=file.step(compute=8.0, logging=2.0))
    file.detail(
        "sample", 190, phase="logging", state="blocked", code=1, stack=file.stack(f"{TRAIN}:5 SlowHandler.emit")
    )
    f = only(file)
    assert (f.id, f.variant, f.where) == ("TP305", "waits", "train.py:5")
    assert (f.params["calls"], f.params["in_steps"], f.params["call"]) == (100, 100, 2e6)


@pytest.mark.parametrize("share", [0.4, 0.05])
def test_a_handler_that_another_thread_is_in_is_told_with_that_thread(make: Make, share: float) -> None:
    file = make()
    for _ in range(100):
        file.span("logging", 20, step=file.step(compute=8.0, logging=20.0))
    emit, lock = f"{TRAIN}:5 SlowHandler.emit", "/usr/lib/python3.11/logging/__init__.py:900 Handler.acquire"
    of_loop, chatter = file.stack(emit, f"{TRAIN}:9 main"), file.thread("chatter")
    file.detail("sample", 2000 * (1 - share), phase="logging", state="blocked", code=1, stack=of_loop)
    waits = file.stack(lock, f"{TRAIN}:9 main")
    file.detail("sample", 2000 * share, phase="logging", state="blocked", code=202, stack=waits)
    file.detail("beside", 2000 * share, phase="logging", thread=chatter, stack=file.stack(emit, f"{TRAIN}:30 chat"))
    params = only(file.meta(machine="x86_64")).params
    assert params["locked"] == (share if share == 0.4 else None)
    assert params.get("holder") == (Said("named_thread", {"name": "chatter"}) if share == 0.4 else None)
    assert params.get("holder_place") == ("SlowHandler.emit (train.py:5)" if share == 0.4 else None)


def test_formatting_in_python_is_not_handed_to_a_thread_which_would_take_the_gil(make: Make) -> None:
    f = only(make().steps(100, {("forward", "native"): 8.0, ("logging", "python"): 4.0, ("logging", "blocked"): 0.5}))
    assert (f.id, f.variant) == ("TP305", "formats") and f.params["blocked"] == pytest.approx(0.5 / 4.5)


def test_log_calls_without_a_span_are_not_divided_among_those_with_one(make: Make) -> None:
    file = make().steps(100, compute=8.0, logging=4.0)
    assert only(file).params["calls"] is None
    file.span("logging", 3, step=50)
    f = only(file)
    assert (f.params["calls"], f.params["in_steps"], f.params["call"]) == (1, 1, 3e6)
    assert f.steps_affected == 100 and f.params["each"] == 4e6
