"""CPU time of child processes: of the living, of their children, and of those that have ended."""

from __future__ import annotations

import subprocess
import sys

from trainperf.child_cpu import child_cpu_ns

_BURN = "import time\nwhile time.process_time() < 0.2: pass\n"
_LIVE = f"{_BURN}print('up', flush=True)\ninput()\n"
_PARENT = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {_LIVE!r}])\n"


def test_children_count_while_they_live_and_after_once() -> None:
    before = child_cpu_ns()
    with subprocess.Popen([sys.executable, "-c", _LIVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdout.readline()
        alive = child_cpu_ns() - before
        child.communicate(b"\n")
    ended = child_cpu_ns() - before
    assert 180e6 <= alive <= ended <= 1.5 * alive + 50e6


def test_a_child_of_a_child_counts() -> None:
    before = child_cpu_ns()
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdout.readline()
        assert child_cpu_ns() - before >= 180e6
        child.communicate(b"\n")
