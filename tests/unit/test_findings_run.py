"""Rules about the run as a whole, on runs made by hand: what they say, and when they must be silent."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from trainperf.findings.engine import cost_text
from trainperf.findings.facts import Facts
from trainperf.findings.framework import Part, claims_of
from trainperf.findings.model import Said
from trainperf.findings.rules import run as uneven
from trainperf.findings.rules.run import _Slow, tightened
from verdicts import TRAIN, Make, abstained, loud, said


def test_uneven_the_founding_case(make: Make) -> None:
    file = make()
    hog = file.thread("indexer")
    at = file.stack(f"{TRAIN}:21 build_index")
    file.steps(100, compute=5.0, gil_wait=7.0).steps(200, compute=5.0, gil_wait=0.05)
    for section in range(32):
        file.detail("gil_wait", 22, thread=hog, stack=at, section=section)
    found = said(file)
    by_id = {f.id: f for f in found.findings}
    assert set(by_id) == {"TP201", "TP401"}
    assert by_id["TP401"].slow_part == Said("first_part", {"of": "third"}) and by_id["TP401"].cause == "gil_wait"
    assert by_id["TP401"].where == "train.py:21" and by_id["TP401"].steps_affected == pytest.approx(100, abs=8)
    assert by_id["TP401"].params["cause_inside"] == 7e6 and by_id["TP401"].params["share"] == 1.0
    assert not [e for e in by_id["TP401"].evidence if "7.0 ms" in e]  # nothing is said twice
    assert found.verdict.finding == "TP201"
    assert any("is in steps 0 to" in e for e in by_id["TP201"].evidence)
    assert sum(f.cost_ns for f in found.findings) <= 710_000_000


def test_uneven_that_another_finding_tells_is_an_info_without_a_cost_of_its_own(make: Make) -> None:
    file = make().steps(100, compute=5.0, blocked_io=20.0).steps(200, compute=5.0, blocked_io=4.0)
    by_id = {f.id: f for f in said(file).findings}
    assert by_id["TP301"].severity == "critical" and by_id["TP401"].severity == "info"
    assert by_id["TP401"].cost_ns == 0
    assert cost_text(by_id["TP401"]) == "costs 1,600 ms in all, reported by TP301"
    assert not [e for e in by_id["TP401"].evidence if "reported by" in e]  # said above


def test_a_slower_part_that_no_cause_explains_is_blamed_on_none(make: Make) -> None:
    """Medians differ by 12 ms, and means by a tenth of that: of the other steps some are long."""
    file = make()
    for step in range(300):
        slow = step < 100
        file.step(compute=20.0, descheduled=12.0 if slow else (0.0 if step % 10 else 108.0))
    assert next(a.variant for a in said(file).abstained if a.id == "TP401") == "uneven_unexplained"


def test_an_even_run_and_single_slow_steps_are_not_uneven(make: Make) -> None:
    file = make()
    for step in range(200):
        file.step(compute=5.0 + (step * 7919 % 13) / 20 + (60.0 if step in (3, 60, 110) else 0.0))
    assert loud(file) == []


def test_uneven_abstains_on_short_runs(make: Make) -> None:
    found = said(make().steps(12, compute=5.0))
    assert "12 steps are too few" in next(a.why for a in found.abstained if a.id == "TP401")
    one = said(make().steps(1, compute=5.0))
    assert "1 step is too few" in next(a.why for a in one.abstained if a.id == "TP401")


@pytest.mark.parametrize("count", [60, 200])
def test_steps_of_random_lengths_are_not_uneven_and_a_slow_third_of_them_is(make: Make, count: int) -> None:
    """As of batches with random sequence lengths: some stretch of them is always slower than the rest."""
    seen = []
    for seed in range(20):
        ms = np.random.default_rng(seed).lognormal(1.0, 0.8, count)
        file, slower = make(), make()
        for step in range(count):
            file.step(compute=10 * (1.0 + ms[step]))
            slower.step(compute=10 * (1.0 + ms[step]), gil_wait=80.0 if 3 * step < count else 0.0)
        found = said(file)
        by_chance = any(a.id == "TP401" and a.variant == "uneven_by_chance" for a in found.abstained)
        seen.append((any(f.id == "TP401" for f in found.findings), by_chance))
        assert "TP401" in [f.id for f in said(slower).findings], seed
    assert [told for told, _ in seen] == [False] * 20
    assert any(by_chance for _, by_chance in seen)


@pytest.mark.parametrize(("lift", "bounded"), [(0.05, False), (0.6, True)])
def test_a_bound_on_chance_says_what_shuffles_say(monkeypatch: pytest.MonkeyPatch, lift: float, bounded: bool) -> None:
    wall = np.random.default_rng(1).normal(1.0, 0.3, 200)
    wall[:66] += lift
    slow = _Slow(0, 66, 1.0, 1.0)
    quick = uneven.by_chance(wall, slow)
    assert (quick == 1 / (1 + uneven._SHUFFLES)) == bounded
    monkeypatch.setattr(math, "exp", lambda _: float("inf"))  # as if there were no bound
    assert uneven.by_chance(wall, slow) == quick


@pytest.mark.parametrize(
    ("scale", "cause", "told"),
    [
        (1, "python", False),
        (10, "python", True),
        (1, "data_wait", False),
        (3, "data_wait", True),
        (1, "gil_wait", True),
    ],
)
def test_a_short_stretch_may_be_the_machine(make: Make, scale: int, cause: str, told: bool) -> None:
    """A shared CPU runs slower for a quarter of a second, and Python with it; nobody but a thread holds the GIL."""
    file = make()
    for step in range(300):
        file.step({("other", "native"): 1.0}, **{cause: scale * (5.0 if 100 <= step < 190 else 2.0)})
    assert ("TP401" in [f.id for f in said(file).findings]) == told
    assert ("it may be the machine" in abstained(file, "TP401")) != told


@pytest.mark.parametrize(("slow", "part"), [(50, "the first fifth of the run"), (12, "")])
def test_the_ends_of_a_stretch_are_where_its_cause_is(make: Make, slow: int, part: str) -> None:
    """The first epoch fills a cache; after it the steps settle for a while, which has nothing to do with it."""
    file = make()
    for step in range(300):
        file.step(compute=3.7 if step < 124 else 2.2, data_wait=280.0 if step < slow else 0.2)
    found = said(file)
    uneven = [f.title for f in found.findings if f.id == "TP401"]
    assert [t.partition(" is ")[0] for t in uneven] == ([part] if part else [])
    assert ("is slow because of it" in found.verdict.text) == bool(part), found.verdict
    assert part in found.verdict.text


def test_where_compute_varies_the_verdict_does_not_say_what_it_is_about_does(make: Make) -> None:
    file = make()
    metric = file.stack("/x/site-packages/numpy/core/fromnumeric.py:1 argsort", f"{TRAIN}:4 auc", f"{TRAIN}:9 fit")
    for step in range(90):
        file.step({("other", "native"): 50.0, ("optimizer", "native"): 10.0}, compute=100.0 if step < 30 else 20.0)
    file.detail("sample", 4500, phase="other", state="native", stack=metric)
    found = said(file)
    assert found.verdict.finding == "TP310" and "TP401" in [f.id for f in found.findings]
    assert "slow because of it" not in found.verdict.text


@pytest.mark.parametrize(("python", "because"), [(0.5, True), (4.0, False)])
def test_a_cause_that_is_half_of_the_difference_is_not_why(make: Make, python: float, because: bool) -> None:
    file = make()
    for step in range(600):
        file.step(compute=5.0, data_wait=9.0 if step < 200 else 4.0, python=1.0 + (python if step < 200 else 0.0))
    found = said(file)
    f = next(f for f in found.findings if f.id == "TP401")
    assert (f.variant, f.cause) == ("mostly" if because else "partly", "data_wait")
    assert (f.slow_part is not None) == because
    assert ("is slow because of it" in found.verdict.text) == because, found.verdict


def test_a_stretch_of_merged_rows_ends_with_the_last_step_of_a_row(make: Make) -> None:
    """Also where it is told that it may be chance."""
    ends = []
    for seed in range(20):
        file = make()
        for ms in np.random.default_rng(seed).lognormal(1.0, 0.8, 60):
            file.steps(8, compute=10 * (1.0 + ms))
        ends += re.findall(r"steps [\d,]+ to ([\d,]+) may be slower", abstained(file.merge_steps(8), "TP401"))
    assert ends and {int(end.replace(",", "")) % 8 for end in ends} == {7}


def test_uneven_in_a_long_run_of_merged_rows(make: Make) -> None:
    file = make().steps(400, compute=5.0).steps(400, compute=5.0, data_wait=5.0).merge_steps(8)
    f = next(f for f in said(file).findings if f.id == "TP401")
    assert f.params["part"] == Said("last_part", {"of": "half"}) and f.cause == "data_wait"


@pytest.mark.parametrize(
    ("others", "own", "slow_ms", "meta", "may_be"),
    [
        (1.0, 0.0, 2.8, {}, True),
        (0.3, 0.0, 2.8, {}, False),
        (1.0, 0.0, 5.0, {}, False),  # 1.75 times slower
        (1.0, 1.0, 2.8, {}, False),  # a child process of its own, perhaps in that stretch alone
        (1.0, 0.0, 2.8, {"world_size": "2"}, False),  # ranks
        (1.0, 0.0, 2.8, {"cpus": "8"}, False),
        (1.0, 0.0, 2.8, {"children_cpu_after_ns": ""}, False),  # not known: it was killed
    ],
)
def test_a_stretch_in_which_others_use_the_cpus_may_be_their_doing(
    make: Make, others: float, own: float, slow_ms: float, *, meta: dict[str, str], may_be: bool
) -> None:
    ended = {"children_cpu_before_ns": "0", "children_cpu_after_ns": str(round(own * 2e9))}
    known = {k: v for k, v in ({"cpus": "2", "torch_threads": "1"} | ended | meta).items() if v}
    file = make(**known).steps(500, python=slow_ms, compute=2.0).steps(500, python=1.0, compute=2.0)
    slow_s = 0.5 * (slow_ms + 2)
    for second in range(6):
        file.host(0, first=second, process_cpus=0.95, other_cpus=others * min(1, slow_s / max(1, second)))
    f = next(f for f in said(file).findings if f.id == "TP401")
    assert f.by_others == may_be and (f.severity == "info") == may_be, f
    assert f.confidence == ("medium" if may_be else "high")
    assert f.variant == ("busier" if may_be else "mostly") and f.params["hint"] == Said("uneven_python")
    assert not may_be or (round(f.params["cpus"], 1), round(f.params["cpus_elsewhere"], 1)) == (0.9, 0.2)


@pytest.mark.parametrize(("late", "severity"), [((), "info"), ((125,), "info"), ((60, 125), "warning")])
def test_compiling_late_in_the_run_is_no_warm_up(make: Make, late: tuple[int, ...], severity: str) -> None:
    file = make()
    for step in range(300):
        compiles = 1000.0 if step in (0, 4, *late) else 0.0
        file.step(python=compiles, compute=5.0, compile=compiles, flags=16 if step == 0 else 0)
        if compiles:
            file.span("compile", compiles, step=step)
    (f,) = said(file).findings
    assert (f.slug, f.severity) == ("compile-warmup", severity)
    assert (f.variant, f.role, f.params["late"]) == ("late" if late else "warm_up", "once", tuple(map(str, late)))
    assert f.fix_share == pytest.approx(len(late) / (2 + len(late)))


@pytest.mark.parametrize(("every", "variant"), [(7, "often"), (60, "often_late")])
def test_compiling_again_and_again(make: Make, every: int, variant: str) -> None:
    file = make()
    for step in range(every * 5 + 1):
        compiles = 1000.0 if step % every == 0 else 0.0
        file.step(python=compiles, compute=5.0, compile=compiles)
        if compiles:
            file.span("compile", compiles, step=step)
    (f,) = (f for f in said(file).findings if f.id == "TP402")
    assert (f.variant, f.severity) == (variant, "warning")
    assert f.fix_share == pytest.approx(5 / 6)  # it has to compile once


def test_the_first_validation_compiles_a_graph_of_its_own(make: Make) -> None:
    file = make()
    for step in range(300):
        compiles = 1000.0 if step in (0, 100) else 0.0
        file.step(python=compiles, compute=5.0, compile=compiles, flags=32 if step in (100, 200) else 0)
        if compiles:
            file.span("compile", compiles, step=step)
    assert said(file).findings[0].variant == "warm_up"


def test_the_verdict_begins_with_the_info_that_costs_most(make: Make) -> None:
    """Compiling is Python and waits for the compiler; Python is the largest cause, and less than compiling takes."""
    file = make()
    file.step(python=1200.0, blocked_io=800.0, compile=2000.0, flags=16)
    for _ in range(200):
        file.step(python=2.0, compute=1.9)
    file.span("compile", 2000, step=0)
    assert said(file).verdict.text.startswith("torch.compile warmed up: 72% of step time, most of it python;")


def test_one_collection_in_a_very_short_run_is_no_warning(make: Make) -> None:
    short, longer = make(), make()
    for file, steps in ((short, 50), (longer, 300)):
        file.steps(steps, compute=4.0).steps(1, gc=100.0, compute=4.0).steps(20, compute=4.0)
    assert loud(short) == [] and "gc-pauses takes 26%" in said(short).verdict.text
    assert "once in 384 ms: a longer run tells whether it repeats" in said(short).findings[0].evidence
    assert loud(longer) == ["gc-pauses"]


def test_compile_is_a_warm_up_and_recompiling_a_warning(make: Make) -> None:
    once = make()
    once.step(python=3000.0, compute=5.0, compile=2990.0, flags=16)
    once.steps(30, compute=5.0)
    once.span("compile", 2990, step=0)
    assert [(f.slug, f.severity) for f in said(once).findings] == [("compile-warmup", "info")]
    assert said(once).findings[0].share == pytest.approx(2990 / 3155, abs=0.01)
    told = "torch.compile warmed up: 95% of step time, most of it python; no other trouble found above 10%"
    assert said(once).verdict.text == told
    fed = make(feeds_device="1")  # where native time is called launch
    fed.step({("forward", "python"): 1000.0, ("forward", "native"): 2000.0}, compute=5.0, compile=3000.0, flags=16)
    fed.steps(30, compute=5.0)
    assert [(f.id, f.cause, round(f.share, 2)) for f in said(fed).findings] == [("TP402", "launch", 0.95)]
    waits = make()
    waits.step(blocked_io=3000.0, compute=5.0, compile=2990.0, flags=16)
    waits.steps(30, compute=5.0)
    waits.step(descheduled=300.0, compute=5.0, compile=300.0, flags=16)
    assert loud(waits) == []
    assert [(f.id, f.cause) for f in said(waits).findings] == [("TP402", "blocked_io")]
    told = "torch.compile warmed up: 95% of step time, most of it blocked_io; no other trouble found above 10%"
    assert said(waits).verdict.text == told
    collects = make()
    collects.step(python=1600.0, gc=200.0, compute=5.0, compile=1800.0, flags=16)
    assert [f.id for f in said(collects.steps(119, compute=2.0)).findings] == ["TP402"]  # what it collects is its own
    again = make()
    for step in range(30):
        again.step(python=50.0 if step < 12 else 0.0, compute=5.0, compile=49.0 if step < 12 else 0.0)
        if step < 12:
            again.span("compile", 49, step=step)
    assert "compile-warmup" in loud(again)


def test_a_warm_up_that_is_most_of_the_run_is_said_before_a_smaller_warning(make: Make) -> None:
    file = make()
    file.step(python=1800.0, compute=5.0, compile=1800.0, flags=16)
    found = said(file.steps(100, compute=2.0, gc=2.0))
    assert [(f.id, f.severity) for f in found.findings] == [("TP303", "warning"), ("TP402", "info")]
    assert found.verdict.finding == "TP303"
    assert found.verdict.text.startswith("torch.compile warmed up: 82% of step time; in addition, gc-pauses, 2.0 ms")
    small = make()
    small.step(python=150.0, compute=5.0, compile=150.0, flags=16)
    assert said(small.steps(100, compute=2.0, gc=2.0)).verdict.text.startswith("gc-pauses")


def test_a_slow_part_ends_where_its_cause_does() -> None:
    rng = np.random.default_rng(0)
    waits = np.where(np.arange(150) < 50, 8e6, 0.0) * (np.arange(150) % 3 > 0)  # in two of three steps
    wall = 10e6 + waits + rng.exponential(4e6, 150)  # and a busy machine besides
    blurred = _Slow(0, 62, 15e6, 12e6)
    found = tightened(blurred, wall, waits)
    assert (found.first, found.end) == (1, 50) or (found.first, found.end) == (0, 50)
    elsewhere = np.roll(waits, 90)  # a cause that has little to do with that stretch leaves it as it is
    assert tightened(blurred, wall, elsewhere) is blurred


def test_samples_of_nothing_tell_nothing(make: Make) -> None:
    file = make().steps(100, {("other", "blocked"): 6.0}, compute=4.0)
    stack = file.stack(f"{TRAIN}:21 wait", f"{TRAIN}:9 train")
    hog = file.thread("hog")
    file.detail("sample", 0, phase="other", state="blocked", stack=stack, count=100)
    file.detail("hold", 0, phase="other", thread=hog, stack=stack, count=100)
    file.detail("beside", 300, phase="other", thread=hog, stack=stack, count=100)
    with file.open() as run:
        facts = Facts(run)
        assert facts.beside(["other"]) == [] and facts.busiest_other() is None
        part = Part(1, "callback", "Ours", "train", f"{TRAIN}:9", ())
        assert sum(claims_of(facts, part, 100_000, "other").values()) == 100_000


def test_samples_that_were_never_taken_tell_nothing(make: Make) -> None:
    file = make().steps(100, {("other", "python"): 6.0}, compute=4.0)
    file.detail("sample", 300, phase="other", state="python", stack=file.stack(f"{TRAIN}:21 work"), count=0)
    assert "TP302" not in [f.id for f in said(file).findings]
