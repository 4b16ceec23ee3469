"""TP603, the heap that goes back to the kernel in each step, on runs made by hand."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from runfiles import RunFile
from trainperf.findings.facts import Facts
from trainperf.findings.messages import UNSURE
from trainperf.findings.model import Finding
from trainperf.findings.rules.settings import Checked, check
from trainperf.runfile import schema
from verdicts import Make, abstained, loud, only, unsure

PAGE, FAULT_NS = 4096, 1500
STEP_MS, SECONDS = 100.0, 20
FAULTS = 10_000  # a step: 15 % of it
TAKEN = FAULTS * PAGE


def churning(
    file: RunFile,
    *,
    faults: float | Callable[[int], float] = FAULTS,
    returned: int = TAKEN // 2,
    kernel: float = 0.3,
    grown: int = 0,
    sawtooth: int = 0,
    seconds: int = SECONDS,
    step_ms: float = STEP_MS,
    **causes: float,
) -> RunFile:
    """`faults` of a step (by second, where it is a function), `kernel`: the share of the thread's time, `grown`: bytes
    of a step, `sawtooth`: seconds after which all that was taken goes back."""
    causes = causes or {"compute": step_ms}
    file.meta(page_bytes=str(PAGE), page_fault_ns=str(FAULT_NS)).steps(round(seconds * 1000 / step_ms), **causes)
    each = faults if callable(faults) else lambda _: faults
    taken = each(0) * PAGE * 1000 / step_ms if sawtooth else 0
    so_far = [sum(each(s) * 1000 / step_ms for s in range(until)) for until in range(seconds + 1)]
    return file.host(
        seconds,
        process_cpus=1.0,
        faults=lambda second: round(so_far[second]),
        system=1000 * kernel,
        returned_bytes=returned,
        rss_bytes=lambda second: 10**9 + round(second * grown * 1000 / step_ms + second % max(1, sawtooth) * taken),
    )


def test_what_is_told(make: Make) -> None:
    f = only(churning(make()))
    assert (f.id, f.slug, f.severity, f.cause, f.confidence) == ("TP603", "heap-churn", "warning", "compute", "medium")
    assert f.cost_ms_per_step == pytest.approx(FAULTS * FAULT_NS / 1e6, rel=0.01)
    assert (f.params["pages"], f.params["page_us"]) == (10_000, 1.5)
    assert f.params["kernel"] == pytest.approx(0.3) and f.params["returned"] == pytest.approx(20.5e6, rel=0.01)
    assert f.params["pad"] == 67108864


@pytest.mark.parametrize(("faults", "pad"), [(FAULTS, 64), (16_384, 64), (16_385, 128), (50_000, 256)])
def test_the_padding_holds_what_a_step_takes(make: Make, faults: int, pad: int) -> None:
    assert only(churning(make(), faults=faults, kernel=0.9)).params["pad"] == pad << 20


def test_a_fifth_of_the_step_is_critical(make: Make) -> None:
    assert only(churning(make(), faults=14_000)).severity == "critical"


def test_it_costs_no_more_than_the_kernel_took(make: Make) -> None:
    f = only(churning(make(), kernel=0.12))
    assert f.share == pytest.approx(0.12, abs=0.001)


@pytest.mark.parametrize(
    "changed",
    [
        {"faults": 0},
        {"faults": 6_000},  # 9 %: as chance has it
        {"kernel": 0.09},
        {"faults": lambda second: 50_000 if second < 8 else 0},  # a warm-up, however long, of less than half
        {"faults": lambda second: 50_000 if second % 3 == 0 else 0},  # checkpoints
        {"python": 60.0, "compute": 40.0},
        {"data_wait": 60.0, "compute": 40.0},
    ],
)
def test_healthy(make: Make, changed: dict[str, object]) -> None:
    file = churning(make(), **changed)  # type: ignore[arg-type]
    assert "heap-churn" not in loud(file) and abstained(file, "TP603") == ""


@pytest.mark.parametrize(("returned", "told"), [(0, False), (TAKEN // 11, False), (TAKEN // 9, True)])
def test_faults_of_what_does_not_go_back_are_not_the_heaps(make: Make, returned: int, told: bool) -> None:
    """Shared batches, mapped files."""
    file = churning(make(), returned=returned)
    assert ("heap-churn" in loud(file)) == told
    assert (unsure(file, "TP603") == "heap_not_returned") != told


@pytest.mark.parametrize(("grown", "told"), [(TAKEN, False), (TAKEN * 3 // 4, False), (TAKEN // 10, True)])
def test_what_is_kept_was_not_taken_again(make: Make, grown: int, told: bool) -> None:
    """A cache that fills."""
    assert ("heap-churn" in loud(churning(make(), grown=grown))) == told


def test_what_goes_back_a_step_later_was_taken_again(make: Make) -> None:
    """Of a step of five seconds: four in which memory grows, one in which it goes back."""
    file = churning(make(), faults=50 * FAULTS, returned=TAKEN * 2, step_ms=5000.0, seconds=60, sawtooth=5)
    assert only(file).id == "TP603"


def test_of_a_step_of_many_seconds_a_second_is_seen(make: Make) -> None:
    faults = 50 * FAULTS
    file = churning(make(), faults=faults, returned=TAKEN * 2, step_ms=5000.0, seconds=60)
    assert only(file).id == "TP603"


def test_it_is_told_on_a_busy_machine(make: Make) -> None:
    file = churning(make(), compute=40.0, descheduled=60.0)
    assert "heap-churn" in loud(file)


@pytest.mark.parametrize(
    ("change", "variant"),
    [
        (lambda file: file.meta(page_fault_ns=""), "heap_no_cost"),
        *(
            (lambda file, told=told: file.meta(page_bytes=told), "heap_no_cost")  # type: ignore[misc]
            for told in ("", "0", "0.5", "nan", "inf", "many")
        ),
        (lambda file: file.meta(source="trace"), "heap_of_trace"),
    ],
)
def test_it_abstains(make: Make, change: Callable[[RunFile], RunFile], variant: str) -> None:
    file = change(churning(make()))
    assert loud(file) == [] and unsure(file, "TP603") == variant


def test_it_abstains_where_the_kernel_tells_nothing(make: Make) -> None:
    file = make(page_bytes=str(PAGE), page_fault_ns=str(FAULT_NS)).steps(200, compute=STEP_MS)
    assert unsure(file.host(20, process_cpus=1.0), "TP603") == "heap_no_faults"


def test_it_abstains_on_short_runs(make: Make) -> None:
    file = churning(make(), seconds=4)
    assert loud(file) == [] and unsure(file, "TP603") == "heap_few_seconds"


@pytest.mark.parametrize(
    ("first", "steps", "told"), [(-0.03, 57, True), (-0.03, 49, False), (-0.2, 57, False), (-0.2, 62, True)]
)
def test_only_one_second_is_left_out_wherever_the_first_reading_is(
    make: Make, first: float, steps: int, told: bool
) -> None:
    """Steps of a tenth of a second; the watch's first reading was before them."""
    file = make().meta(page_bytes=str(PAGE), page_fault_ns=str(FAULT_NS)).steps(steps, compute=STEP_MS)
    file.host(
        6,
        first=first,
        every=1.01,
        process_cpus=1.0,
        faults=lambda reading: round(10 * FAULTS * (first + 1.01 * reading)) if reading else -1,
        system=300,
        returned_bytes=TAKEN // 2,
    )
    assert loud(file) == (["heap-churn"] if told else [])


def test_with_a_device_it_says_nothing(make: Make) -> None:
    file = churning(make(feeds_device="1"))
    assert "heap-churn" not in loud(file) and abstained(file, "TP603") == ""


def older(path: Path) -> Path:
    """As version 2 wrote it."""
    with sqlite3.connect(path) as connection:
        for (view,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'view'").fetchall():
            connection.execute(f"DROP VIEW {view}")
        connection.execute("DROP TABLE fetch_awaited")
        for table, column in schema.COLUMNS_SINCE:
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    return path


def found_in(path: Path) -> tuple[list[Finding], dict[str, str]]:
    import trainperf
    from trainperf.findings.engine import find

    with trainperf.open(path) as run:
        assert {(h.faults, h.system_ns, h.returned_bytes) for h in run.host} == {(-1, -1, -1)}
        found = find(run)
    return list(found.findings), {a.id: a.why for a in found.abstained}


def test_an_older_file_opens_and_has_none(make: Make) -> None:
    findings, why = found_in(older(churning(make()).build()))
    assert not findings and why["TP603"] == UNSURE["heap_old_file"]


def test_check_prices_it_where_another_finding_has_its_time(make: Make) -> None:
    def row(file: RunFile) -> Checked:
        with file.open() as run:
            return next(c for c in check(Facts(run), [], []) if c.id == "malloc")

    found = row(churning(make()))
    assert (found.state, found.cost_is, found.finding) == ("costs", "about", "")
    assert found.cost_ns == pytest.approx(FAULTS * FAULT_NS * SECONDS * 1000 / STEP_MS, rel=0.01)
    assert "MALLOC_TOP_PAD_=67108864" in found.fix
    assert row(churning(make(), faults=100)).state == "fine"
