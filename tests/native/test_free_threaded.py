"""Free-threaded CPython without a GIL. With the one that PYTHON_GIL=1 switches on test_gil.py runs there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from playing import FREE_THREADED, MARKS, play, python

__all__ = ["python"]  # a fixture

pytestmark = [*MARKS, pytest.mark.skipif(not FREE_THREADED, reason="this CPython always has a GIL")]

PROGRAMS = Path(__file__).parent / "free_threaded"


def run(program: str, tmp_path: Path, *, gil: bool = False) -> dict[str, Any]:
    """What a program prints, as JSON. Its warnings are errors: that a module switched the GIL on is one."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(PROGRAMS / f"{program}.py"), str(tmp_path / "run.tpr")],
        env={**os.environ, "PYTHON_GIL": "1"} if gil else {k: v for k, v in os.environ.items() if k != "PYTHON_GIL"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_the_gil_stays_off_and_the_run_says_that_there_is_none(tmp_path: Path) -> None:
    seen = run("loop", tmp_path)
    assert not seen["gil"]
    assert seen["tiers"]["gil_waits"] == "off: this build of CPython has no GIL"
    assert seen["tiers"]["gil_holds"] == "sampled: no GIL here: who is attached to the interpreter runs Python"
    assert seen["tiers"]["stacks"] == "sampled"
    assert seen["gil_ns"] == 0 and not [f for f in seen["findings"] if f.startswith("TP2")]
    # Python and native code are told apart, each in its own function.
    assert seen["states"]["in_python"].get("python", 0) > 0.8 * sum(seen["states"]["in_python"].values()) > 0, seen
    assert seen["states"]["in_native"].get("native", 0) > 0.8 * sum(seen["states"]["in_native"].values()) > 0, seen


def test_a_gil_that_is_switched_on_is_measured(tmp_path: Path) -> None:
    seen = run("loop", tmp_path, gil=True)
    assert seen["gil"]
    assert seen["tiers"]["gil_waits"] == "exact"
    assert seen["tiers"]["gil_holds"] == "sampled"
    assert seen["gil_ns"] > 0


def test_threads_mark_while_watches_begin_and_end(tmp_path: Path) -> None:
    """Brackets, steps, log records and collections on eight threads, twelve watches meanwhile: nothing that only a GIL
    would guard is lost, and what a watch says sums up."""
    seen = run("many_threads", tmp_path)
    assert seen["watches"] == 12 and not seen["gil"]
    assert seen["errors"] == []
    assert min(seen["steps"]) > 0
    assert seen["unlike"] == []  # watches whose causes do not sum to the steps' wall time
    assert seen["one_id_each"]


def test_stacks_are_what_the_interpreter_says(python: tuple[str, Path]) -> None:
    seen = play(python, "stacks", gil=False)
    assert "none" not in seen
    reads = {key: value for key, value in seen.items() if isinstance(value, dict)}
    assert len(reads) == 10
    assert all(value["equal"] and value["times"] == 200 for value in reads.values()), reads


def test_reads_of_running_threads_are_whole_or_rejected(python: tuple[str, Path]) -> None:
    seen = play(python, "torn", gil=False)
    assert seen["implausible"] == 0
    assert seen["read"] == 80_000
    assert seen["rejected"] < 0.2 * seen["read"]


def test_frames_of_two_moments_are_not_told_as_one_stack(python: tuple[str, Path]) -> None:
    seen = play(python, "churn_reads", gil=False)
    assert seen["rejected"] < 0.1 * seen["read"]
    assert seen["wrong"] < 0.005 * seen["read"], seen


def test_a_loop_over_small_functions_is_seen(python: tuple[str, Path]) -> None:
    seen = play(python, "churn_samples", gil=False)
    assert seen["samples"] > 100
    assert seen["seen"] > 0.9 * seen["samples"], seen


def test_a_short_function_is_met_while_it_runs_python(python: tuple[str, Path]) -> None:
    seen = play(python, "takes_turns", gil=False)
    assert seen["samples"] >= 300, seen
    assert seen["python"] > 0.25 * seen["samples"], seen
    assert seen.get("native", 0) < 0.05 * seen["python"], seen


@pytest.mark.alone
def test_pauses_of_all_threads_are_the_true_ones(python: tuple[str, Path]) -> None:
    """Against the breaks that the thread finds between two looks at the clock."""
    seen = play(python, "world_stops", gil=False)
    assert seen["count"] > 20 and seen["true_ns"] > 10_000_000, seen
    assert seen["told_ns"] == pytest.approx(seen["true_ns"], rel=0.05), seen
    assert seen["unlike"] <= 0.02 * seen["count"], seen
    assert seen["others"].get("other", 0) > 0.9 * seen["sum_ns"], seen
    assert seen["functions"].get("collects", 0) > 0.8 * seen["sum_ns"], seen


def test_short_pauses_name_who_sets_a_tracer(python: tuple[str, Path]) -> None:
    seen = play(python, "tracers", gil=False)
    assert seen["kinds"] == [3] and seen["count"] > 20, seen
    assert seen["others"].get("other", 0) > 0.9 * seen["sum_ns"], seen
    assert seen["functions"].get("settrace_all_threads", 0) > 0.8 * seen["sum_ns"], seen


def test_locks_that_a_program_takes_are_no_locks_of_the_interpreter(python: tuple[str, Path]) -> None:
    seen = play(python, "locks_of_the_program", gil=False)
    assert seen["breaks"] > 100
    assert seen["sum_ns"] < 0.01 * 2_000_000_000, seen


def test_the_hook_comes_and_goes_while_threads_wait(python: tuple[str, Path]) -> None:
    assert play(python, "runtime_lives", gil=False) == {"failed": [], "open_waits": 0, "gil": False}


@pytest.mark.alone
@pytest.mark.parametrize("program", ["collecting_thread", "shared_dict"])
def test_the_finding_is_the_truth(tmp_path: Path, program: str) -> None:
    """Who stops all threads, or where the training thread waits for an object's lock; and how long."""
    import trainperf

    truth = run(program, tmp_path)
    with trainperf.open(tmp_path / "run.tpr") as seen:
        found = {finding.slug: finding for finding in seen.findings}
        first = found[truth["finding"]]
        assert first.share == pytest.approx(truth["share"], abs=0.05)
        assert truth["who"] in first.who and Path(first.where).name in truth["where"], first
