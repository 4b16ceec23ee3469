"""What tracing kernels in windows of steps costs, and how close its figures are, on the scripted libcupti.

    python benchmarks/gpu_windows.py [--quick]

Three tables. Cost: two loops of launches, of which the scripted library takes what CUPTI was measured to take on an
H200 (docs/gpu.md): 1.1 us a kernel's record, 0.13 us a call that calls back, 14 us to switch a kind and 1.7 us a
callback. Stretches of the unwatched loop lie around each watched one; what counts is the training thread's CPU time,
and for how long it waits at a switch: what others on the machine take is in neither. Accuracy: a run that was traced
whole is the truth; of it 100 draws of windows keep what a watch would have traced, and the rest is estimated. Stall: a
stall in one of 200 steps, in a run with windows.

A GPU is faster or slower, and its CUPTI costs more or less: benchmarks/gpu_overhead.py measures there.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT))

from benchmarks.harness import Figure, paired_interval  # noqa: E402

COSTS_US = {"kernel_us": 1.1, "call_us": 0.13, "kind_us": 14.0, "callback_us": 1.7}
LOOPS = {"5 ms, 125 launches": (125, 5.0), "0.7 ms, 40 launches": (40, 0.7)}
STALL_EVERY, STALL_MS = 200, 150.0  # of a loop of 5 ms steps that is 13% of its time: enough for a warning
SEEDS = 100
SHARE = 0.005  # of the time, for windows: half of the budget
SWITCH_NS = 300_000
COUNTED_NS = 2_800  # what a watch counts for a launch: more than it takes here, and what it goes by

CHILD = """
import json, sys, time
o = json.loads(sys.argv[1])
sys.path.insert(0, o["tests"])
from fakes import Gpu
import torch, trainperf
gpu = Gpu(*o["libraries"])
gpu.costs(**o["costs"])
gpu.start()
weight = torch.ones(1, requires_grad=True)
kernel_ms = 0.4 * o["step_ms"] / o["launches"]  # the device is busy for two fifths
compute_us = 0.0

def step(stall=False):
    gpu.feed("gemm", launches=o["launches"], ms=kernel_ms, compute_us=compute_us)
    if stall:
        time.sleep(o["stall_ms"] / 1e3)
    weight.sum().backward()

waited = 0.0

def timed(seconds):
    # CPU time of a step, and what it waits at a switch. Tracing makes no step half as long again: what does is the
    # hypervisor, whose time for others counts as ours.
    global waited
    begin, steps, waited = time.perf_counter(), [], 0.0
    while time.perf_counter() - begin < seconds:
        before = time.thread_time()
        step()
        steps.append(time.thread_time() - before)
    usual = sorted(steps)[len(steps) // 2]
    calm = [took for took in steps if took < 1.5 * usual]
    return (sum(calm) / len(calm) + waited / len(steps)) * 1e3

def time_switches(ticker):
    def change(switch):
        global waited
        begin, cpu = time.perf_counter(), time.thread_time()
        switch()
        waited += time.perf_counter() - begin - (time.thread_time() - cpu)
    ticker._chores = [(name, (lambda c=c: change(c)) if name == "cuda" else c) for name, c in ticker._chores]

step()
compute_us = max(0.0, (o["step_ms"] - timed(0.3)) / o["launches"] * 1e3)
gpu.synchronize()  # the device is behind
if "seconds" in o:
    plain = timed(o["seconds"]["plain"])
    for _ in range(o["rounds"]):
        for cuda in ("off", "auto", "full"):
            with trainperf.watch(o["path"], overwrite=True, verbose=False, cuda=cuda) as run:
                time_switches(run._ticker)
                first = timed(o["seconds"]["first"])
                watched, waits = timed(o["seconds"][cuda]), waited
            after = timed(o["seconds"]["plain"])
            told = {"cuda": cuda, "plain": plain, "waits": waits / o["seconds"][cuda]}
            told["first"], told["ratio"] = (2 * ms / (plain + after) for ms in (first, watched))
            print(json.dumps(told), flush=True)
            plain = after
else:
    with trainperf.watch(o["path"], overwrite=True, verbose=False, cuda=o["cuda"]):
        for n in range(o["steps"]):
            step(stall=bool(o["every"]) and n % o["every"] == o["every"] - 1)
"""


def play(folder: Path, loop: str, **options: Any) -> list[dict[str, Any]]:
    """In a process of its own, which "has" the driver. The run is `folder`/a.tpr."""
    from fakes import fake_libraries

    libraries, (launches, step_ms) = fake_libraries(), LOOPS[loop]
    options |= {
        "path": str(folder / "a.tpr"), "tests": str(ROOT / "tests"), "libraries": libraries, "launches": launches,
        "step_ms": step_ms, "stall_ms": STALL_MS, "costs": COSTS_US,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(options)],
        env={**os.environ, "TRAINPERF_CUPTI_PATH": libraries[0], "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def cost(folder: Path, loop: str, *, quick: bool) -> list[Figure]:
    """The first second of a watch has a figure of its own: tracing is on at the start, until that has cost 10 ms."""
    seconds = {"plain": 1.0, "first": 1.0, "off": 1.0, "full": 1.0, "auto": 5.0}
    rows = play(folder, loop, rounds=3 if quick else 16, seconds=seconds)
    plain_ms = sorted(row["plain"] for row in rows)[len(rows) // 2]
    found = []
    for cuda in ("auto", "full", "off"):
        of = [row for row in rows if row["cuda"] == cuda]
        target = 1.01 if cuda == "auto" else None
        waits = sum(row["waits"] for row in of) / len(of)
        note = f"unwatched {plain_ms:.2f} ms; waits at switches, in it: {waits:.2%}"
        value, low, high = paired_interval([row["ratio"] for row in of])
        found.append(Figure(f'{loop}: watched, cuda="{cuda}"', value, "x", low, high, target, note=note))
        value, low, high = paired_interval([row["first"] for row in of])
        found.append(Figure(f'{loop}: watched, cuda="{cuda}", the first second', value, "x", low, high))
    return found


def draws(path: Path, launches: int) -> list[dict[str, float]]:
    """Of a run that was traced whole: what each draw of windows makes of it, in points of the run's time."""
    import numpy as np
    import trainperf
    from fakes import fake_libraries
    from trainperf.runfile.device_estimate import estimate

    run = trainperf.open(path)
    (device,) = run.devices
    table, whole = run.steps, device.steps
    if whole.untraced.any() or int(table.count.max()) > 1:
        raise RuntimeError("the run is to be traced whole, with a row for each step")
    plan = ctypes.CDLL(fake_libraries()[0]).fakecupti_plan_windows
    plan.argtypes = [
        *(ctypes.c_double, ctypes.c_uint64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64),
        ctypes.c_void_p,
    ]
    plan.restype = None
    wall, traced = np.ascontiguousarray(table.wall_ns), np.zeros(len(table.wall_ns), dtype=np.uint8)
    causes, all_ns = whole.idle_causes_ns.sum(axis=0), float(wall.sum())
    found = []
    for seed in range(1, SEEDS + 1):
        plan(SHARE, seed, len(wall), wall.ctypes.data, launches * COUNTED_NS, SWITCH_NS, traced.ctypes.data)
        keep = traced.astype(np.int64)
        fields = {
            name: getattr(whole, name) * (keep[:, None] if name == "idle_causes_ns" else keep)
            for name in whole.__dataclass_fields__
        }
        measured = replace(whole, **fields | {"untraced": 1 - keep, "untraced_ns": wall * (1 - keep)})
        guess, about = estimate(table, measured)
        if about is None:
            raise RuntimeError("every step was traced: nothing is estimated")
        off = (guess.idle_causes_ns.sum(axis=0) - causes) / all_ns * 100
        truth = causes.sum() / all_ns
        found.append({
            "total": abs(off.sum()), "cause": np.abs(off).max(), "held": about.idle_low <= truth <= about.idle_high,
            "wide": (about.idle_high - about.idle_low) * 100, "steps": keep.mean() * 100, "windows": about.windows,
        })  # fmt: skip
    return found


def accuracy(folder: Path, *, quick: bool) -> list[Figure]:
    found = []
    for loop, (launches, step_ms) in LOOPS.items():
        for every in (0, STALL_EVERY):
            steps = min(round((10 if quick else 25) * 1e3 / step_ms), 16_000)
            play(folder, loop, cuda="full", steps=steps, every=every)
            rows = draws(folder / "a.tpr", launches)
            name = f"{loop}{f', a stall of {STALL_MS:.0f} ms in one of {every}' if every else ''}"
            mean = {key: sum(row[key] for row in rows) / len(rows) for key in rows[0]}
            note = f"{mean['steps']:.0f}% of {steps:,} steps, {mean['windows']:.0f} windows; mean {mean['total']:.2f}"
            most = max(row["total"] for row in rows)
            found.append(Figure(f"{name}: idle, most off", most, "points", target=2.0, note=note))
            most = max(row["cause"] for row in rows)
            found.append(Figure(f"{name}: a cause, most off", most, "points", target=2.0))
            held = sum(row["held"] for row in rows)
            note = f"mean width {mean['wide']:.1f} points"
            found.append(Figure(f"{name}: intervals hold", held, "%", target=93, better="higher", note=note))
    return found


def stall(folder: Path) -> list[Figure]:
    import trainperf

    found = []
    for loop, (_, step_ms) in LOOPS.items():
        steps = max(2000, round(8e3 / step_ms))
        play(folder, loop, cuda="auto", steps=steps, every=STALL_EVERY)
        run = trainperf.open(folder / "a.tpr")
        (device,) = run.devices
        finding = next((f for f in run.judged.findings if f.cause == "blocked_io"), None)
        truth = STALL_MS * 1e6 * (steps // STALL_EVERY) / run.wall_ns
        share = finding.share if finding is not None else None
        who = f"{finding.id} {finding.slug}" if finding is not None else "not found"
        note = f"{who}; slept {truth:.1%} of the time; {(device.steps.untraced == 0).mean():.0%} of steps traced"
        found.append(Figure(f"{loop}: a stall in one of {STALL_EVERY}", share, "of time", note=note))
    return found


def figures(*, quick: bool = False) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        return [
            *(figure for loop in LOOPS for figure in cost(Path(folder), loop, quick=quick)),
            *accuracy(Path(folder), quick=quick),
            *stall(Path(folder)),
        ]


if __name__ == "__main__":
    from benchmarks.run import table

    print(table(figures(quick="--quick" in sys.argv)))
