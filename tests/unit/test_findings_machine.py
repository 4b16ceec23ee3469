"""Rules about CPUs and the container, on runs made by hand: what they must say, and when they must be silent."""

from __future__ import annotations

import pytest
from runfiles import RunFile
from verdicts import TRAIN, Make, only, said


@pytest.mark.parametrize(
    ("meta", "workers", "others", "says"),
    [
        ({"cpus": "2", "torch_threads": "2"}, 0, 1.6, "other processes use the CPUs"),
        ({"cpus": "2", "torch_threads": "1"}, 4, 0.0, "more workers than CPUs"),
        ({"cpus": "2", "torch_threads": "8"}, 0, 0.0, "more threads than CPUs"),
    ],
)
def test_descheduled_says_by_whom(make: Make, meta: dict[str, str], workers: int, others: float, says: str) -> None:
    file = make(**meta).steps(100, compute=8.0, descheduled=3.0)
    file.loader(1, num_workers=workers, fetches=100, ready={2: (100, 20)}, wait=20)
    file.host(3, process_cpus=0.8 if others else 1.9, other_cpus=others)
    f = only(file)
    assert f.id == "TP307" and f.title == says


def competing(file: RunFile, *, others: float) -> RunFile:
    """A thread of the process is busy while the training thread waits for a CPU."""
    file.steps(400, compute=3.0, descheduled=5.0).host(3, process_cpus=1.2, other_cpus=others)
    at = file.stack(f"{TRAIN}:41 spin", "/usr/lib/python3.11/threading.py:982 Thread.run")
    file.detail("hold", 900, thread=file.thread("poller"), stack=at)
    return file.detail("hold", 950, thread=file.step_thread, stack=file.stack(f"{TRAIN}:9 step"))


def test_descheduled_by_a_thread_of_the_process_names_it(make: Make) -> None:
    f = only(competing(make(torch_threads="1"), others=0.1))
    assert f.title == "the training thread waits for a CPU: this process' own threads compete"
    assert f.who == ("MainThread", "poller") and f.where == "train.py:41"
    assert "poller in spin (train.py:41)" in f.why and "28% of the time" in f.why
    assert "poller" in f.fix and "spin" in f.fix and "taskset" not in f.fix
    both = only(competing(make(torch_threads="1"), others=0.6))
    assert both.title.endswith("own threads and other processes compete") and "other processes 0.6" in both.why


def test_torchs_threads_are_not_own_threads_that_compete(make: Make) -> None:
    file = make(torch_threads="2").steps(400, compute=5.0, descheduled=3.0).host(3, process_cpus=1.2, other_cpus=0.8)
    assert only(file).title == "other processes use the CPUs"


@pytest.mark.parametrize(
    ("cpus", "threads", "fix"),
    [
        ("2", "2", "torch.set_num_threads(1)"),
        ("2", "1", "another time"),
        ("3", "1", "taskset -c 0-1 "),
        ("16", "4", "taskset -c 0-3 "),
        ("8", "8", "torch.set_num_threads(6)"),
    ],
)
def test_no_more_cpus_are_offered_than_there_are(make: Make, cpus: str, threads: str, fix: str) -> None:
    file = make(cpus=cpus, torch_threads=threads).steps(100, compute=8.0, descheduled=3.0)
    assert fix in only(file.host(3, process_cpus=0.8, other_cpus=1.6)).fix


def test_without_run_delay_nothing_is_said_to_be_descheduled_and_blocked_is_less_sure(make: Make) -> None:
    file = make().steps(100, compute=8.0, blocked_io=3.0)
    file.detail("sample", 300, phase="other", state="blocked", stack=file.stack(f"{TRAIN}:9 wait"), code=202)
    assert only(file).confidence == "high"
    found = said(file.tier("run_delay", "off", "no schedstat"))
    assert ("TP307", "run_delay off: no schedstat") in [(a.id, a.why) for a in found.abstained]
    (blocked,) = [f for f in found.findings if f.id == "TP301"]
    assert blocked.confidence == "medium" and "no schedstat" in blocked.confidence_why


def test_causes_are_the_files_own_also_with_a_device(make: Make) -> None:
    """The tree and the verdict must not call the same time by two names."""
    file = make(feeds_device="1").steps(100, compute=8.0)
    found = said(file)
    with file.open() as run:
        assert run.cause_ns("launch") == run.wall_ns
    assert found.verdict.text.startswith("launch-bound: 100% of step time is launch")


def test_throttled(make: Make) -> None:
    file = make().steps(100, compute=8.0, throttled=3.0).host(3, process_cpus=1.0, throttled=300)
    f = only(file)
    assert f.id == "TP308" and "1.0 CPUs" in f.evidence[1]
    off = make().steps(100, compute=8.0).tier("throttling", "off", "no cgroup")
    assert next(a.why for a in said(off).abstained if a.id == "TP308").endswith("no cgroup")
