"""Each of tests/programs, run under trainperf: its verdict is compared with the truth that the program measured itself.

`make test` runs one program for each signal; of the others it judges a recorded run (tests/replay). `make test-live`
runs all of them. `python -m tests.programs.table` prints the table of truth and report; `-s` prints its rows here.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.programs import judge  # the line above makes it importable

# Loops in which another profiler alarms, or where trouble and health look alike: here without the trouble.
TWINS = (
    "blocked_background_loader",
    "compile_warmup",
    "cpu_oversubscription",
    "data_next_inside",
    "data_two_steps",
    "gil_spin",
    "heap_churn",
    "logging_many",
    "logging_slow",
    "uneven",
    "validation_often",
    "worker_startup",
)


# The program that shows that a signal is recorded as it should be, and the signal.
SIGNALS = {
    "gil_hog": "waits for the GIL, and who holds it: the founding case",
    "blocked_sleep": "samples of a thread that is blocked",
    "data_in_process_cpu": "fetches in the training process, and samples of running Python",
    "workers_too_slow": "fetches in workers",
    "ready_not_delivered": "batches that are ready and not handed over",
    "worker_startup": "the start of workers",
    "descheduled": "the kernel's run delay",
    "throttled": "the CPU quota of a cgroup",
    "cpu_oversubscription": "CPU time of the compute threads",
    "checkpoint": "torch.save",
    "logging_slow": "logging handlers",
    "validation_often": "forward passes in eval mode",
    "compile_warmup": "torch.compile",
    "gc_pauses": "the garbage collector",
    "memory_growth": "resident memory",
    "healthy_fast": "nothing: no false alarm",
}


# What they measure is who had the CPUs: nothing may run beside them.
OF_CPUS = {
    "cpu_oversubscription",
    "descheduled",
    "descheduled_threads",
    "ready_not_delivered",
    "throttled",
    "workers_too_slow",
}


def program(name: str) -> Any:
    alone = [pytest.mark.alone] if name in OF_CPUS or name.startswith("healthy") else []
    return pytest.param(name, marks=alone if name in SIGNALS else [*alone, pytest.mark.live])


def judged(name: str, folder: Path, *options: str) -> judge.Outcome:
    outcome = judge.run(name, folder, options)
    print(judge.table([judge.row(outcome)]))
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert not judge.problems(outcome), outcome.printed
    return outcome


@pytest.mark.parametrize("name", [program(name) for name in judge.programs()])
def test_program(name: str, tmp_path: Path) -> None:
    judged(name, tmp_path)


@pytest.mark.live
@pytest.mark.alone
@pytest.mark.parametrize("name", TWINS)
def test_healthy_twin(name: str, tmp_path: Path) -> None:
    assert judged(name, tmp_path, "--size", "0", "--steps", "300").truth["finding"] is None


def test_each_signal_has_its_program() -> None:
    assert set(judge.programs()) >= SIGNALS.keys()
