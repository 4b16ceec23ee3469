"""Who used the CPUs where the training thread waits for one, on runs made by hand whose parts differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from runfiles import RunFile
from verdicts import Make, load_of, said

if TYPE_CHECKING:
    from trainperf.findings.model import Finding


def thirds(*cpus: float) -> Callable[[float], float]:
    """CPU seconds of who uses so many CPUs in each third of nine seconds."""
    return lambda second: sum(used * min(3, max(0, second - 3 * third)) for third, used in enumerate(cpus))


def waiting_in_the_second_third(make: Make, **meta: str) -> RunFile:
    file = make(torch_threads="1", wall_ns=str(9 * 10**9), **meta).steps(300, compute=10.0)
    return file.steps(150, compute=10.0, descheduled=10.0).steps(300, compute=10.0)


def descheduled(file: RunFile) -> Finding:
    return next(f for f in said(file).findings if f.id == "TP307")


def test_what_runs_in_the_waits_on_cpus_that_the_run_may_not_use_is_in_nobodys_way(make: Make) -> None:
    """Four of 64 CPUs are its own: all that the others use fits on the other 60."""
    file = waiting_in_the_second_third(make, cpus="4")
    f = descheduled(file.host(9, process_cpus=thirds(1, 0.5, 1), other_cpus=thirds(10, 30, 10), idle_cpus=46.5))
    assert (f.variant, f.by_others, load_of(f)["others"]) == ("unclear", False, 0.0)
    more = waiting_in_the_second_third(make, cpus="4")
    f = descheduled(more.host(9, process_cpus=thirds(1, 0.5, 1), other_cpus=thirds(10, 63, 10), idle_cpus=35.5))
    assert f.variant == "others" and load_of(f)["others"] == 3.0, f


@pytest.mark.parametrize(("started", "who"), [(0.48, "children"), (0.1, "both"), (0.04, "others"), (0.0, "others")])
def test_what_the_run_started_may_be_all_that_runs_more_in_the_waits(make: Make, started: float, who: str) -> None:
    """A CPU and a half of two, in the second third; a child process used so much of all nine seconds."""
    file = waiting_in_the_second_third(
        make, cpus="2", children_cpu_before_ns="0", children_cpu_after_ns=str(round(started * 9e9))
    )
    f = descheduled(file.host(9, process_cpus=thirds(1, 0.5, 1), other_cpus=thirds(0, 1.5, 0)))
    assert f.variant == who and f.by_others == (who != "children"), f
    assert load_of(f)["others"] == pytest.approx(1.5 - 3 * started, abs=0.051)
    # All of it was there: the others have done what is left of the second third.
    assert load_of(f)["children"] == round(3 * started, 1)


def test_who_is_killed_before_anybody_waits_for_it_is_a_child_too(make: Make) -> None:
    """What a shell had started: getrusage of children never has it."""
    file = waiting_in_the_second_third(make, cpus="2", children_cpu_before_ns="0", children_cpu_after_ns="0")
    file.child(70, cpus=1.4, seconds=3, first=3, command="gzip")
    f = descheduled(file.host(9, process_cpus=thirds(1, 0.5, 1), other_cpus=thirds(0, 1.5, 0)))
    assert (f.variant, f.why) == ("children", "'gzip' uses 1.4 CPUs") and load_of(f)["children"] == 1.4


def test_a_thread_that_works_where_nobody_waits_is_not_who_takes_the_cpus(make: Make) -> None:
    file = waiting_in_the_second_third(make, cpus="2", thread_cpu='{"python": [[9, "poller", 2700]]}')
    f = descheduled(file.host(9, process_cpus=thirds(1.9, 0.5, 1), other_cpus=thirds(0, 1.5, 0)))
    assert f.variant == "others" and load_of(f)["own_threads"] == 0.0, f


def test_a_thread_that_works_all_along_is_one_where_the_training_thread_computes_less(make: Make) -> None:
    """It waits for data there as well, and so leaves the thread more of what the process used."""
    file = make(torch_threads="1", cpus="2", thread_cpu='{"python": [[9, "poller", 4500]]}', wall_ns=str(9 * 10**9))
    file.steps(150, compute=20.0).steps(150, compute=4.0, data_wait=8.0, descheduled=8.0).steps(150, compute=20.0)
    f = descheduled(file.host(9, process_cpus=thirds(1.5, 0.7, 1.5), other_cpus=thirds(0, 0.9, 0)))
    assert f.variant.startswith("own") and load_of(f)["own_threads"] == 0.5 and not f.by_others, f


def test_a_thread_that_worked_before_the_steps_is_not_who_takes_the_cpus(make: Make) -> None:
    file = make(torch_threads="1", cpus="2", thread_cpu='{"python": [[9, "preload", 3000]]}', wall_ns=str(9 * 10**9))
    file.steps(300, compute=10.0, descheduled=10.0)
    f = descheduled(file.host(9, first=-3, process_cpus=lambda s: 2 * min(0, s) + 0.5 * max(0, s), other_cpus=0.9))
    assert f.variant == "others" and load_of(f)["own_threads"] == 0.0, f


def test_what_one_rule_leaves_to_the_other_is_told(make: Make) -> None:
    """In the mean others use more of the CPUs than where the training thread waits."""
    file = make(cpus="2", torch_threads="1").steps(600, compute=10.0).steps(150, compute=10.0, descheduled=10.0)
    file.loader(1, num_workers=4, fetches=750, ready={2: (750, 75)}, wait=75)
    for pid in range(4):
        file.worker(1, pid, cpu_share=0.15, seconds=9, states={"R": 5, "S": 5})
    told = said(file.host(9, process_cpus=thirds(0.5, 0.5, 0.9), other_cpus=thirds(1.5, 1.5, 0.8))).findings
    assert [f.id for f in told if f.cause == "descheduled" and f.severity != "info"] == ["TP602"], told


def test_waits_of_the_first_step_are_held_against_who_ran_in_it(make: Make) -> None:
    file = make(cpus="2", torch_threads="1").steps(1, compute=1500.0, descheduled=1500.0)
    file.steps(500, compute=9.8, descheduled=0.2)
    f = descheduled(file.host(8, process_cpus=0.5, other_cpus=lambda second: 1.5 * min(3, second), idle_cpus=0.9))
    assert f.variant == "others" and load_of(f)["others"] == 1.4, f
