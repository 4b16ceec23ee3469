"""A trace of 109 MB to its findings, against HolisticTraceAnalysis' load and idle breakdown of the same file.

Each measurement is a process of its own, after its imports; ours and theirs alternate. The trace is a real one repeated
where such lie beside the repository, else a made one of the same make-up.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import Figure, median_interval

ROOT = Path(__file__).resolve().parents[1]
MEGABYTES = 109

# Of this process alone: ru_maxrss would count what the parent held between fork and exec. And before the clock starts,
# OpenBLAS's threads, which `import numpy` leaves spinning, have gone to sleep.
COMMON = """
import sys, time
def peak_mb():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) / 1024
def begin():
    time.sleep(0.1)
    return time.perf_counter()
"""
OURS = """
import os
import trainperf, trainperf.run, trainperf.findings.engine, trainperf.findings.rules
from trainperf.traces import analyze
start = begin()
done = analyze(sys.argv[1])
with trainperf.open(done.path) as run:
    run.findings
print(time.perf_counter() - start, peak_mb())
os.unlink(done.path)
"""
THEIRS = """
import logging
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
start = begin()
TraceAnalysis(trace_files={0: sys.argv[1]}).get_idle_time_breakdown(ranks=[0], visualize=False)
print(time.perf_counter() - start, peak_mb())
"""


def real_events() -> list[dict[str, Any]]:
    """Those of the trace whose repetition HTA has been measured on; [] where it is not."""
    for parent in ROOT.parents:
        file = parent / "shared" / "traces" / "a100_6steps_dataloader.json.gz"
        if file.exists():
            return list(json.loads(gzip.decompress(file.read_bytes()))["traceEvents"])
    return []


def made_events() -> list[dict[str, Any]]:
    """Six steps of 3,000 operators, each with a launch, its arrow and its kernel."""
    events: list[dict[str, Any]] = []
    at = 1_661_203_462_000_000
    for step in range(6):
        begin = at
        for i in range(3000):
            correlation = step * 3000 + i + 1
            where = {"pid": 100, "tid": 100}
            args = {"External id": correlation, "Input Dims": [[64, 256], [256, 256], []], "Input type": ["float"] * 3}
            events += [
                {"ph": "X", "cat": "cpu_op", "name": f"aten::op{i % 90}", **where, "ts": at, "dur": 20, "args": args},
                {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", **where, "ts": at + 8, "dur": 6,
                 "args": {"External id": correlation, "cbid": 211, "correlation": correlation}},
                {"ph": "s", "id": correlation, **where, "ts": at + 8, "cat": "ac2g", "name": "ac2g"},
                {"ph": "X", "cat": "kernel", "name": f"void at::native::vectorized_elementwise_kernel<4, F{i % 170}>",
                 "pid": 0, "tid": 7, "ts": at + 15, "dur": 12,
                 "args": {"device": 0, "context": 1, "stream": 7, "correlation": correlation, "grid": [64, 1, 1]}},
            ]  # fmt: skip
            at += 25
        events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 100, "tid": 100,
                       "ts": begin, "dur": at - begin, "args": {}})  # fmt: skip
    return events


def repeated(events: list[dict[str, Any]]) -> Iterator[str]:
    """For ever, each time later, with steps and ids of their own; spaced as Kineto spaces them."""
    span = max(e["ts"] + e.get("dur", 0) for e in events) - min(e["ts"] for e in events)
    steps = sum(str(e["name"]).startswith("ProfilerStep#") for e in events)
    turn = 0
    while True:
        for original in events:
            event = dict(original)
            args = dict(event.pop("args", {}))
            event["ts"] += turn * span
            if "id" in event:
                event["id"] += turn * 10_000_000
            if "correlation" in args:
                args["correlation"] += turn * 10_000_000
            if str(event["name"]).startswith("ProfilerStep#"):
                event["name"] = f"ProfilerStep#{int(event['name'][13:]) + turn * steps}"
            head = json.dumps(event)[1:-1]
            yield (
                f"  {{\n    {head}"
                + (f',\n    "args": {{\n      {json.dumps(args)[1:-1]}\n    }}' if args else "")
                + "\n  }"
            )
        turn += 1


def make(path: Path, megabytes: int) -> tuple[int, str]:
    """Writes `path` and `path`.gz; how many events, and of what."""
    real = real_events()
    size = count = 0
    with path.open("w") as plain, gzip.open(f"{path}.gz", "wt", compresslevel=6) as packed:
        head = '{\n  "schemaVersion": 1,\n  "distributedInfo": {"rank": 0},\n  "traceEvents": [\n'
        for out in (plain, packed):
            out.write(head)
        for text in repeated(real or made_events()):
            line = ("" if count == 0 else ",\n") + text
            plain.write(line)
            packed.write(line)
            size += len(line)
            count += 1
            if size >= megabytes * 1_000_000:
                break
        for out in (plain, packed):
            out.write("\n  ]\n}\n")
    return count, "a real trace repeated" if real else "a made trace"


def measured(code: str, path: str) -> tuple[float, float]:
    done = subprocess.run(
        [sys.executable, "-c", COMMON + code, path], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"it failed: {done.stderr.strip()[-300:]}")
    seconds, megabytes = done.stdout.split()[-2:]
    return float(seconds), float(megabytes)


def figures(*, quick: bool = False) -> list[Figure]:
    found: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        events, what = make(path, MEGABYTES)
        note = f"{what}: {events:,} events"
        has_hta = importlib.util.find_spec("hta") is not None
        for file, target, packed in ((str(path), 50.0, ""), (f"{path}.gz", 30.0, " as .gz")):
            name = f"trace of {MEGABYTES} MB{packed} to findings"
            ours, theirs = [], []
            for _ in range(1 if quick else 4):
                ours += [measured(OURS, file), measured(OURS, file)]
                if has_hta:
                    try:
                        theirs.append(measured(THEIRS, file))
                    except (RuntimeError, subprocess.TimeoutExpired) as error:
                        note, has_hta = f"HTA could not be run: {str(error)[:200]}", False
            value, low, high = median_interval([seconds for seconds, _ in ours])
            found.append(Figure(name, value, "s", low, high, note=note))  # what is asked for is the ratio
            against = f"{name}: HTA's time / ours"
            if has_hta:
                ratios = [t / o for (t, _), (o, _) in zip([t for t in theirs for _ in (0, 1)], ours, strict=True)]
                value, low, high = median_interval(ratios)
                took, peak = median_interval([t for t, _ in theirs])[0], max(m for _, m in theirs)
                said = f"HTA 0.5.0, load and idle breakdown: {took:.2f} s, peak {peak:.0f} MB"
                found.append(Figure(against, value, "x", low, high, target=target, better="higher", note=said))
            else:
                found.append(Figure(against, None, note=note if "HTA" in note else "HTA is not installed"))
            peak, said = max(m for _, m in ours), "of the whole process, interpreter and numpy included"
            found.append(Figure(f"{name}: peak memory", peak, "MB", target=256.0, note=said))
    return found
