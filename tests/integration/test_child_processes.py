"""Processes that a watched program starts beside workers: who they are, what CPU time they use, and in which line."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from pathlib import Path

import pytest
import trainperf
import warm
from trainperf.opened import OpenedRun
from trainperf.runfile import Child

# Two lines of known shares, which each process times itself.
PROGRAM = """
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time


def spin(seconds):
    begin = time.thread_time()
    while time.thread_time() - begin < seconds:
        pass


def augment(times):
    begin = time.thread_time()
    spin(0.03)  # first
    middle = time.thread_time()
    spin(0.01)  # second
    return middle - begin, time.thread_time() - middle, os.getpid(), time.process_time()


def train(weight):
    (weight * 1).sum().backward()


def pools(path, method):
    weight = torch.ones(2, requires_grad=True)
    with multiprocessing.get_context(method).Pool(2) as pool, trainperf.watch(path, verbose=False):
        pool.map(augment, range(2))  # they start, which may take as long as all that is measured
        begin, spent, whole = time.monotonic(), [0.0, 0.0], {}
        while time.monotonic() - begin < 5:
            for *times, pid, used in pool.map(augment, range(4), chunksize=1):
                spent = [sum(pair) for pair in zip(spent, times)]
                whole[pid] = used
            train(weight)
    print(json.dumps([*spent, sum(whole.values())]))


def strangers(path, _):
    weight = torch.ones(2, requires_grad=True)
    with trainperf.watch(path, verbose=False):
        shell = subprocess.Popen(["sh", "-c", "while :; do :; done", "secret"])
        pids = []
        for ends in (False, True):
            pid = os.fork()
            if pid == 0:
                spin(1.2 if ends else 60)
                os.kill(os.getpid(), signal.SIGKILL)
            pids.append(pid)
        begin = time.monotonic()
        while time.monotonic() - begin < 2:
            train(weight)
        os.kill(pids[0], signal.SIGSTOP)
        while time.monotonic() - begin < 4:
            train(weight)
        print(json.dumps([shell.pid, *pids]))
    for pid in (shell.pid, pids[0]):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    import torch  # not in processes that are spawned

    import trainperf

    torch.set_num_threads(1)
    {"strangers": strangers}.get(sys.argv[2], pools)(*sys.argv[1:])
"""


def watched(folder: Path, what: str) -> tuple[OpenedRun, list[float]]:
    script = folder / "program.py"
    script.write_text(textwrap.dedent(PROGRAM))
    done = warm.run([str(script), str(folder / "a.tpr"), what])
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    run = trainperf.open(folder / "a.tpr")
    assert not [note for note in run.notes if "children" in note], run.notes
    return run, json.loads(done.stdout)


def lines(run: OpenedRun, child: Child) -> Counter[str]:
    """Samples by the comment behind the line of the program that they are in."""
    found: Counter[str] = Counter()
    source = PROGRAM.splitlines()
    for samples in child.inside:
        at = next((f for f in run.stack(samples.stack) if f.function == "augment"), None)
        if at is not None:
            found[source[at.line - 1].partition("# ")[2]] += samples.count
    return found


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_pools_processes_are_named_and_their_lines_are_read(tmp_path: Path, method: str) -> None:
    run, (first, second, whole) = watched(tmp_path, method)
    prefix = {"fork": "Fork", "spawn": "Spawn", "forkserver": "ForkServer"}[method]
    assert [c.name for c in run.children] == [f"{prefix}PoolWorker-{i}" for i in (1, 2)]
    assert run.tiers["child_stacks"].tier == "sampled"
    found = sum((lines(run, c) for c in run.children), Counter())
    of_lines = found["first"] + found["second"]
    assert of_lines >= 8, "a slow machine gives so few"
    assert found["first"] / of_lines == pytest.approx(first / (first + second), abs=0.05 + 1.3 / of_lines**0.5)
    # What it took to start is in the whole; what came after the last look in neither.
    assert 0.65 * (first + second) < sum(c.cpu_seconds for c in run.children) < 1.1 * whole


def test_other_programs_and_those_that_stop_or_die_cost_no_error(tmp_path: Path) -> None:
    run, (shell, stopped, killed) = watched(tmp_path, "strangers")
    found = {c.pid: c for c in run.children}
    assert found.keys() == {shell, stopped, killed}
    assert found[shell].command == "sh" and not found[shell].inside
    for pid in (stopped, killed):
        inside = [s for s in found[pid].inside if s.stack]
        assert any(f.function == "spin" for s in inside for f in run.stack(s.stack))
    # It goes on being seen, and uses nothing.
    assert 0.1 < found[stopped].cpu_seconds < 2.5
    assert found[stopped].last_ns - found[stopped].first_ns > 2.5e9
