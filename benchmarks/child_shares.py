"""How close a Pool's CPUs and lines are to what its processes say by their own clocks, in 20 s of training.

Each task computes in two functions and sleeps in a third. A process is on a CPU, waits for one, or sleeps: shares of
functions are of its time at work, by its own perf_counter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.harness import Figure, median_interval

SECONDS = 20
PROGRAM = """
import collections, json, multiprocessing, os, sys, time
import torch, trainperf

spent = collections.Counter()

def sharpen():
    begin = time.thread_time()
    while time.thread_time() - begin < 0.010: pass

def flip():
    begin = time.thread_time()
    while time.thread_time() - begin < 0.003: pass

def fetch():
    time.sleep(0.006)

def task(_):
    for function in (sharpen, flip, fetch):
        begin = time.perf_counter()
        function()
        spent[function.__name__] += time.perf_counter() - begin
    return os.getpid(), time.process_time(), dict(spent)

torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
told = {}
with trainperf.watch(sys.argv[1], verbose=False):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        end = time.monotonic() + float(sys.argv[2])
        while time.monotonic() < end:
            for pid, cpu_s, of in pool.map(task, range(4), chunksize=1):
                told[pid] = (cpu_s, of)
            optimizer.zero_grad()
            model(torch.randn(16, 64)).sum().backward()
            optimizer.step()
print(json.dumps(told))
"""


def figures(*, quick: bool = False) -> list[Figure]:
    off_cpu, off_line = [], []
    seconds = 8 if quick else SECONDS
    for _ in range(1 if quick else 3):
        with tempfile.TemporaryDirectory() as folder:
            cpu, line = _compared(Path(folder), seconds)
        off_cpu.append(cpu)
        off_line.append(line)
    note = f"{seconds} s, two processes, {os.cpu_count()} CPUs"
    return [
        Figure("CPU share of a Pool's process, off by", *_of(off_cpu), target=3.0, note=note),
        Figure("a function's share of its work, off by", *_of(off_line), target=3.0, note=note),
    ]


def _of(values: list[float]) -> tuple[float, str, float, float]:
    value, low, high = median_interval(values)
    return value, "points", low, high


def _compared(folder: Path, seconds: float) -> tuple[float, float]:
    """The largest difference of a process' share of a CPU, and that of a function's share of all their work; points."""
    from trainperf.findings import children
    from trainperf.findings.facts import Facts
    from trainperf.runfile import RunReader

    program, path = folder / "program.py", folder / "a.tpr"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), str(path), str(seconds)], check=True, capture_output=True, text=True
    )
    told = {int(pid): (cpu_s, of) for pid, (cpu_s, of) in json.loads(done.stdout.splitlines()[-1]).items()}
    own = sum((Counter(of) for _, of in told.values()), Counter[str]())
    with RunReader(path) as run:
        seen = {child.pid: child for child in run.children}
        cpu = max(
            abs(seen[pid].cpu_seconds - cpu_s) / ((seen[pid].last_ns - seen[pid].first_ns) / 1e9)
            for pid, (cpu_s, _) in told.items()
        )
        (group,) = (group for group in children.groups(Facts(run)) if group.library)
        shares = Counter[str]()
        for line in group.lines:
            shares[line.frame.function.rpartition(".")[2]] += line.count
    line_off = max(abs(shares[name] / group.busy - own[name] / own.total()) for name in own)
    return 100 * cpu, 100 * line_off
