"""TP601 on runs made by hand: memory that grows, and that does not grow for good."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from runfiles import RunFile
from trainperf.findings.model import Finding
from verdicts import TRAIN, Make, abstained, loud, only, said, unsure

MB = 10**6


def remembers(file: RunFile, rss: Callable[[int], int], seconds: int = 40) -> RunFile:
    return file.steps(seconds * 10, compute=100.0).host(seconds, process_cpus=1.0, rss_bytes=rss)


def noise(second: int) -> int:
    return (second * 7919 % 13) * MB


def test_memory_that_grows_with_every_step(make: Make) -> None:
    f = only(remembers(make(memory_limit=str(8000 * MB)), lambda s: 1000 * MB + 20 * MB * s + noise(s)))
    assert f.id == "TP601" and f.severity == "warning" and f.cost_ns == 0
    assert f.variant == "leak" and f.params["each"] == pytest.approx(2e6, rel=0.01) and f.params["left"]
    assert (f.confidence, f.params["readings"]) == ("high", 31)
    assert said(remembers(make(), lambda s: 1000 * MB + 20 * MB * s)).verdict.text == (
        "memory-growth: the process's memory grows by 2.0 MB a step"
    )
    soon = only(remembers(make(memory_limit=str(2200 * MB)), lambda s: 1000 * MB + 20 * MB * s))
    assert soon.severity == "critical" and soon.params["left"] == pytest.approx(20, abs=0.5)


@pytest.mark.parametrize(
    "rss",
    [
        lambda s: 1000 * MB + noise(s),
        lambda s: 1000 * MB + min(s, 15) * 60 * MB,  # a cache that fills: over before the half
        lambda s: 1000 * MB + min(s, 30) * 60 * MB,  # ... or after it
        lambda s: 1000 * MB + (600 * MB if s >= 25 else 0),  # one step up
        lambda s: 1000 * MB + round(900 * MB * (1 - 0.85**s)),  # it settles
        lambda s: 1000 * MB + round(200 * MB * math.log1p(s)),  # the largest of more and more random lengths
        lambda s: 1000 * MB + (s % 10) * 60 * MB,  # a saw: epochs
        lambda s: 2000 * MB - s * 20 * MB,
        lambda s: 1000 * MB + s * MB // 2,  # 2 % in all
    ],
)
def test_memory_that_does_not_grow_for_good(make: Make, rss: Callable[[int], int]) -> None:
    file = remembers(make(), rss)
    assert loud(file) == [] and abstained(file, "TP601") == ""


def hinted(file: RunFile) -> Finding:
    """The info about memory, beside no warning."""
    found = [f for f in said(file).findings if f.id == "TP601"]
    assert loud(file) == [] and len(found) == 1, found
    return found[0]


def test_memory_that_grows_early_is_an_info_with_its_doubt(make: Make) -> None:
    short = hinted(remembers(make(), lambda s: 300 * MB + 5 * MB * s, seconds=14))
    assert (short.variant, short.severity, short.confidence) == ("early", "info", "low")
    few = make().steps(8, compute=5000.0).host(40, process_cpus=1.0, rss_bytes=lambda s: 300 * MB + 5 * MB * s)
    assert hinted(few).variant == "early"  # enough time, and few steps in it


@pytest.mark.parametrize(("longer", "leak"), [(0.0, True), (0.002, True), (0.03, False)])
def test_memory_that_grows_with_the_work_of_the_steps(make: Make, longer: float, leak: bool) -> None:
    """A curriculum: longer inputs take more memory and more time, and nothing is kept."""
    file = make()
    for step in range(400):
        work = 100.0 * (1 + longer * step / 10)
        file.step({("forward", "native"): work / 3}, compute=work * 2 / 3)
    file.host(40, process_cpus=1.0, rss_bytes=lambda s: 300 * MB + 10 * MB * s)
    if leak:
        assert only(file).id == "TP601"
        return
    f = hinted(file)
    assert (f.variant, f.confidence) == ("with_work", "low")


def test_waits_that_grow_do_not_excuse_a_leak(make: Make) -> None:
    file = make()
    for step in range(400):
        file.step(compute=100.0, gil_wait=0.4 * step)
    assert "memory-growth" in loud(file.host(60, process_cpus=1.0, rss_bytes=lambda s: 300 * MB + 10 * MB * s))


def test_few_readings_tell_no_growth(make: Make) -> None:
    file = remembers(make(), lambda s: 1000 * MB + 200 * MB * s, seconds=8)
    assert loud(file) == [] and unsure(file, "TP601") == "memory_few_readings"


def kept(**of: Any) -> dict[str, Any]:
    """What the looks saw of one list of losses, unless `of` says otherwise."""
    losses = {
        "kind": "container",
        "type": "list",
        "elements": 30,
        "holds": "graphs",
        "bytes": 2_200_000,
        "scalar": True,
    }
    named = {"of": "local", "name": "losses", "owner": "main", "inside": 0, "file": TRAIN, "line": 41, "bound": None}
    return {**losses, **named, "text": "losses.append(loss)", "argument": "loss", **of}


def looked(file: RunFile, *rows: Any, seconds: int = 40) -> RunFile:
    """A run that grows by 2 MB a step, and what was seen in it."""
    seen = {"seconds": 3.1, "bytes": 60 * MB, "steps": 31, "objects": 300_000, "kept": list(rows)}
    file.meta(kept_memory=json.dumps(seen), kept_memory_pauses="[21.4, 18.6, 9.5]")
    return remembers(file, lambda s: 1000 * MB + 20 * MB * s, seconds)


def test_the_line_that_keeps_losses(make: Make) -> None:
    f = only(looked(make(), kept()))
    assert (f.variant, f.severity, f.confidence, f.where) == ("kept_graphs", "warning", "high", f"{TRAIN}:41")
    assert f.title == "`losses.append(loss)` keeps 2.0 MB a step: tensors with their graphs"
    assert f.fix == "losses.append(loss.item())"
    assert "in 3.1 s `losses` (list in main) got 30 elements longer in 31 steps" in f.evidence
    assert "looking at 300,000 objects stopped the training thread for 21, 19 and 10 ms" in " ".join(f.evidence)


CACHE = {"kind": "cache", "type": "lru_cache", "holds": "tensors", "text": "@lru_cache on encode", "argument": ""}


@pytest.mark.parametrize(
    ("of", "variant", "title", "fix"),
    [
        (
            {"scalar": False, "text": "outs.append(out)", "argument": "out"},
            "kept_graphs",
            "`outs.append(out)` keeps 2.0 MB a step: tensors with their graphs",
            "outs.append(out.detach())\n# and bound losses: the tensors themselves stay",
        ),
        (
            {"kind": "graph", "type": "Tensor", "text": "total += loss", "name": "total", "elements": 0},
            "kept_sum",
            "`total += loss` keeps 2.0 MB a step: the graph of every step so far",
            "total += loss.item()",
        ),
        (
            {
                "kind": "graph",
                "elements": 0,
                "of": "attribute",
                "name": "state",
                "text": "self.state = mixed",
                "argument": "",
            },
            "kept_chain",
            "`self.state = mixed` keeps 2.0 MB a step: the graph of every step so far",
            "self.state = self.state.detach()  # before the next step uses it",
        ),
        (
            {"holds": "hooks", "type": "OrderedDict", "of": "", "name": "", "owner": "", "text": ""},
            "kept_hooks",
            "a hook that each step registers again keeps 2.0 MB a step: functions and what they hold",
            "handle.remove()",
        ),
        (
            CACHE,
            "kept_cache",
            "the lru_cache of `encode` keeps 2.0 MB a step: a result for each new argument",
            "encode;",
        ),
        (
            {"kind": "array", "type": "ndarray", "holds": "arrays", "text": "every = np.append(every, x)"},
            "kept_array",
            "`every = np.append(every, x)` keeps 2.0 MB a step: one ndarray that gets larger",
            "keep a sum or a count",
        ),
        (
            {"holds": "objects", "of": "attribute", "name": "rows", "owner": "Log", "line": 0, "text": ""},
            "kept_elements",
            "`rows` of Log (list) keeps 2.0 MB a step: Python objects",
            "deque(maxlen=1000)",
        ),
    ],
)
def test_what_keeps_memory_and_what_to_do(make: Make, of: dict[str, Any], variant: str, title: str, fix: str) -> None:
    f = only(looked(make(), kept(**of)))
    assert (f.variant, f.title) == (variant, title)
    assert fix in f.fix


def test_of_elements_what_they_hold_is_told(make: Make) -> None:
    f = only(looked(make(), kept(holds="arrays", bytes=1_550_000)))
    assert f.title == "`losses.append(loss)` keeps 1.5 MB a step: arrays"


def test_a_second_keeper_is_evidence(make: Make) -> None:
    f = only(looked(make(), kept(), kept(name="accs", text="accs.append(acc)", holds="tensors")))
    assert "also `accs.append(acc)`: tensors" in f.evidence


def test_kept_graphs_are_sure_early_and_other_things_are_not(make: Make) -> None:
    assert only(looked(make(), kept(), seconds=20)).severity == "warning"
    f = hinted(looked(make(), kept(holds="objects"), seconds=20))
    assert (f.variant, f.confidence) == ("kept_elements", "low")
    assert f.title == "`losses.append(loss)` keeps 2.0 MB a step, so far: Python objects"


def test_looks_that_found_nothing_leave_it_as_it_is(make: Make) -> None:
    assert only(looked(make())).variant == "leak"


@pytest.mark.parametrize(
    "row",
    [
        None,
        [],
        {},
        kept(kind="other"),
        kept(holds=3),
        kept(elements=-1),
        kept(line="41"),
        kept(name="a\nb"),
        kept(of="local", name=""),
    ],
)
def test_a_row_that_is_not_as_it_should_be_is_left_out(make: Make, row: object) -> None:
    assert only(looked(make(), row)).variant == "leak"


@pytest.mark.parametrize(
    "damaged", ["", "[", "[]", "{}", '{"seconds": 0}', '{"seconds": 1, "steps": 2.5, "objects": 1}']
)
def test_looks_that_are_damaged_are_none(make: Make, damaged: str) -> None:
    file = make().meta(kept_memory=damaged)
    assert only(remembers(file, lambda s: 1000 * MB + 20 * MB * s)).variant == "leak"


def workers(make: Make, rise: Callable[[int], int], seconds: int = 60, **of: Any) -> RunFile:
    """Memory of the training process stays; that of two workers is read once a second."""
    readings = [[float(s), 500 * MB + rise(s)] for s in range(seconds)]
    told = {"workers": 2, "readings": readings, "dataset": "Images", "file": TRAIN, "line": 12, **of}
    file = make(worker_memory=json.dumps({"text": "self.cache[...] = image", **told}))
    return remembers(file, lambda s: 1000 * MB, seconds)


def test_memory_of_workers_that_grows(make: Make) -> None:
    f = only(workers(make, lambda s: 4 * MB * s))
    assert (f.variant, f.severity, f.where) == ("workers", "warning", f"{TRAIN}:12")
    assert f.title == "the DataLoader workers' memory grows by 400.0 kB a step"
    assert f.why.startswith("`self.cache[...] = image` adds to the dataset in each worker")
    unknown = only(workers(make, lambda s: 4 * MB * s, line=0))
    assert (unknown.where, unknown.why.endswith("(not identified)")) == ("", True)
    assert hinted(workers(make, lambda s: 4 * MB * s, seconds=20)).variant == "workers"


@pytest.mark.parametrize("rise", [noise, lambda s: min(s, 20) * 9 * MB, lambda s: s % 20 * 9 * MB])
def test_memory_of_workers_that_does_not_grow_for_good(make: Make, rise: Callable[[int], int]) -> None:
    assert loud(workers(make, rise)) == []


@pytest.mark.parametrize("damaged", ["[", "{}", '{"workers": 0}', '{"workers": 1, "readings": [[1, "x"]]}'])
def test_damaged_readings_of_workers_are_none(make: Make, damaged: str) -> None:
    assert loud(remembers(make(worker_memory=damaged), lambda s: 1000 * MB)) == []
