"""CPUs that the process may use, and who narrowed them: on runs made by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from trainperf.findings.model import Said
from verdicts import Make, said

if TYPE_CHECKING:
    from runfiles import RunFile
    from trainperf.findings.model import Finding

S = 10**9


def pinned(make: Make, *rooms: tuple[int, int, int, str, int], idle: float = 1.0, **meta: str) -> RunFile:
    meta = {"cpus": "2", "cpus_possible": "2", "torch_threads": "1", "wall_ns": str(9 * S), **meta}
    file = make(cpu_room=json.dumps(rooms or [(0, 0, 2, "0-1", -1), (S, 0, 1, "0", -1)]), **meta)
    file.steps(450, compute=10.0, descheduled=10.0)
    return file.host(9, process_cpus=1.0, idle_cpus=idle)


def found(file: RunFile) -> Finding | None:
    return next((f for f in said(file).findings if f.id == "TP604"), None)


def test_what_narrowed_the_process_during_the_run_leads(make: Make) -> None:
    file = pinned(make)
    f = found(file)
    assert f is not None and said(file).verdict.finding == "TP604"
    assert (f.severity, f.variant, f.params["have"], f.params["possible"]) == ("critical", "narrowed", 1, 2)


def test_a_call_of_python_is_named_with_its_line(make: Make) -> None:
    call = json.dumps([[S - 10**8, "/home/user/vendor.py", 16, "init", 1]])
    f = found(pinned(make, affinity_calls=call))
    assert f is not None and f.where.endswith("vendor.py:16")
    assert (f.variant, f.params["function"]) == ("call", "init")


def test_a_call_that_left_more_cpus_is_not_the_one(make: Make) -> None:
    f = found(pinned(make, affinity_calls=json.dumps([[S - 10**8, "/home/user/vendor.py", 16, "init", 2]])))
    assert f is not None and not f.where, f


def test_waits_for_workers_on_the_same_full_cpus_are_part_of_it(make: Make) -> None:
    rooms = [(0, 0, 1, "0", -1), (S, 7, 1, "0", -1)]
    call = json.dumps([[0, "/home/user/train.py", 4, "main", 1]])
    meta = {"cpus": "2", "cpus_possible": "2", "torch_threads": "1", "wall_ns": str(9 * S)}
    file = make(cpu_room=json.dumps(rooms), affinity_calls=call, **meta)
    file.steps(450, compute=8.0, descheduled=5.0, data_wait=7.0)
    file.loader(1, num_workers=1, fetches=450, ready={0: (450, 3150)}, wait=3150)
    file.worker(1, 7, cpu_share=0.55, seconds=9, states={"R": 9})
    file.host(9, process_cpus=0.42, other_cpus=0.55, idle_cpus=1.0)
    f = found(file)
    assert f is not None and abs(f.share - 0.6) < 0.02 and f.cause == "data_wait", f
    assert f.params["inherited"] == 1


def test_no_finding_where_the_cpus_are_all_that_there_are(make: Make) -> None:
    assert found(pinned(make, (0, 0, 1, "0", -1), cpus="1", cpus_possible="1")) is None
    assert found(pinned(make, idle=0.1)) is None  # to widen it gains nothing
    assert found(pinned(make, (0, 0, 2, "0-1", -1))) is None


def test_no_finding_without_waits(make: Make) -> None:
    file = make(cpu_room=json.dumps([(0, 0, 1, "0", -1)]), cpus="1", cpus_possible="8", torch_threads="1")
    assert found(file.steps(450, compute=20.0).host(9, process_cpus=1.0, idle_cpus=7.0)) is None


def test_workers_that_pin_themselves_are_said(make: Make) -> None:
    """By worker_init_fn: the training thread may use both CPUs, its two workers one, or one each."""
    variants = []
    for second in ("0", "1"):
        rooms = [(0, 0, 2, "0-1", -1), (S, 7, 1, "0", -1), (S, 8, 1, second, -1)]
        file = make(cpu_room=json.dumps(rooms), cpus="2", cpus_possible="2", torch_threads="1")
        file.steps(450, compute=5.0, data_wait=7.0)
        file.loader(1, num_workers=2, fetches=450, ready={0: (450, 3150)}, wait=3150)
        for pid in (7, 8):
            file.worker(1, pid, cpu_share=0.49, seconds=9, states={"R": 9})
        variants.append(next(f for f in said(file.host(9, process_cpus=1.6)).findings if f.id == "TP102"))
    first, other = variants
    assert (first.variant, first.params["have"], first.params["possible"]) == ("pinned", 1, 2)
    assert other.variant == "all_cpus"


@pytest.mark.parametrize("cpus", [2, 8])
def test_workers_that_keep_up_on_one_cpu_are_to_get_others_that_are_free(make: Make, cpus: int) -> None:
    """Measured with two CPUs, which training and workers used: without the pin a fetch took 2.5 ms, not 2.9."""
    rooms = [(0, 0, cpus, f"0-{cpus - 1}", -1), (S, 7, 1, "0", -1), (S, 8, 1, "0", -1)]
    file = make(cpu_room=json.dumps(rooms), cpus=str(cpus), cpus_possible=str(cpus), torch_threads="1")
    file.steps(450, {("fetch", "blocked"): 3.0}, compute=3.0)
    file.loader(1, num_workers=2, fetches=450, ready={3: (450, 1350)}, wait=1350)
    for pid in (7, 8):
        file.worker(1, pid, cpu_share=0.49, seconds=3, states={"R": 9})
    f = next(f for f in said(file.host(3, process_cpus=0.6, idle_cpus=cpus - 1.6)).findings if f.id == "TP103")
    assert f.variant == "busy" and "only 1 CPU (CPU 0)" in f.evidence[2]
    order = ["sched_setaffinity" in line for line in f.fix.splitlines()]
    assert order == ([True, True, False, False] if cpus == 8 else [False, False, True, True])


def test_a_pin_of_the_last_moments_is_not_the_runs(make: Make) -> None:
    first = 1_000 * S  # of the steps: make() begins there
    assert found(pinned(make, (0, 0, 2, "0-1", -1), (first + 8 * S, 0, 1, "0", -1))) is None


def test_a_process_that_was_started_so_names_what_is_set(make: Make) -> None:
    file = pinned(make, (0, 0, 1, "0", -1), cpus="1", affinity_settings='{"OMP_PROC_BIND": "close"}')
    f = found(file)
    assert f is not None and (f.variant, f.params["settings"]) == ("started_by_settings", ("OMP_PROC_BIND=close",))
    narrowed = found(pinned(make, affinity_settings='{"OMP_PROC_BIND": "close"}'))
    assert narrowed is not None and narrowed.variant == "narrowed_by_settings"


def test_a_process_that_was_started_so_without_a_known_reason(make: Make) -> None:
    """Who has its CPU is not clear: others use none of it, and its own threads neither."""
    file = make(cpu_room=json.dumps([(0, 0, 1, "0", -1)]), cpus="1", cpus_possible="2", torch_threads="1")
    f = found(file.steps(450, compute=10.0, descheduled=10.0).host(9, process_cpus=0.5, idle_cpus=1.5))
    assert f is not None and f.variant == "started"


def test_a_quota_that_allows_no_more_is_what_is_short(make: Make) -> None:
    assert found(pinned(make, (0, 0, 2, "0-1", -1), (S, 0, 1, "0", 1000))) is None
    assert found(pinned(make, (0, 0, 2, "0-1", -1), (S, 0, 1, "0", 1500))) is not None


def test_the_quota_for_most_of_the_steps_counts(make: Make) -> None:
    first = 1_000 * S  # of the steps: make() begins there
    rooms = [(0, 0, 8, "0-7", -1), (1, 0, 8, "0-7", 6000), (first + 2 * S, 0, 8, "0-7", 2000)]
    file = make(cpu_room=json.dumps(rooms), cpus="8", torch_threads="2", cpu_quota="6", wall_ns=str(9 * S))
    file.steps(450, compute=10.0, throttled=10.0).host(9, process_cpus=1.9, idle_cpus=6.0, throttled=4500)
    f = next(f for f in said(file).findings if f.id == "TP308")
    assert f.params["quota"] == Said("quota_cpus", {"cpus": 2, "one": False})
    assert (f.params["since"], f.params["before"], f.params["room"]) == (100, "6", 2)
    lasts = make(cpu_room=json.dumps(rooms[:2]), cpus="8", torch_threads="2", wall_ns=str(9 * S))
    lasts.steps(450, compute=10.0, throttled=10.0).host(9, process_cpus=1.9, idle_cpus=6.0, throttled=4500)
    f = next(f for f in said(lasts).findings if f.id == "TP308")
    assert f.params["quota"] == Said("quota_cpus", {"cpus": 6, "one": False}) and "since" not in f.params


def test_damaged_records_are_none(make: Make) -> None:
    for text in ("[[1]]", "{", "7", '[[0, 0, 1, "x-y", -1]]'):
        file = make(cpu_room=text, affinity_calls=text, cpus_possible="2").steps(100, compute=10.0, descheduled=10.0)
        assert found(file.host(2, process_cpus=0.5, idle_cpus=1.0)) is None
