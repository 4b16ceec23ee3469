"""The HTML report: how large it is, and how long it takes, of runs of 400 steps and of a million.

    python benchmarks/report_size.py

A run of a million steps cannot be trained here, so its file is written in the shape that the core's writer gives it:
15,625 rows of 64 steps, 64 sections with 400 details each from 900 stacks, 320 kept steps with up to 60 segments.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests"), str(ROOT)]

from runfiles import RunFile  # noqa: E402
from trainperf.report.html import render  # noqa: E402
from trainperf.run import Run  # noqa: E402
from trainperf.runfile.schema import TABLES  # noqa: E402

from benchmarks.harness import Figure, median_interval  # noqa: E402

TARGETS = {400: (200_000, 1.0), 1_000_000: (300_000, 1.0)}


def make(path: Path, steps: int) -> Path:
    """A run with something of everything, and nothing that repeats: noise compresses least."""
    rng = random.Random(0)
    file = RunFile(path, argv='["train.py"]')
    threads = [file.thread(f"worker-{i}") for i in range(12)]
    merge = max(1, steps // 15_625)
    rows = steps // merge
    for i in range(rows):  # widen() makes more of each
        file.step(
            {("fetch", "native"): rng.uniform(0.1, 2)},
            compute=rng.uniform(5, 8),
            python=rng.uniform(1, 2),
            gil_wait=rng.uniform(0, 9) if i < rows / 3 else rng.uniform(0, 1),
            blocked_io=rng.uniform(0, 1),
            gc=rng.uniform(0, 0.5),
            descheduled=rng.uniform(0, 2),
            logging=30 if i % 997 == 0 else 0.01,
            unknown=rng.uniform(0, 0.1),
            flags=rng.choice((0, 0, 1, 2)),
        )

    def frame() -> str:
        return f"/u/pkg/module_{rng.randrange(40)}.py:{rng.randrange(900)} function_{rng.randrange(60)}"

    stacks = [file.stack(*(frame() for _ in range(14))) for _ in range(900)]
    for _ in range(400):
        kind = rng.choice(("sample", "sample", "gil_wait", "hold"))
        state, phase = rng.choice(("python", "native", "blocked")), rng.choice(("fetch", "forward", "backward"))
        file.detail(
            kind, rng.expovariate(0.02), phase=phase, state=state if kind == "sample" else "", stack=rng.choice(stacks),
            thread=0 if kind == "sample" else rng.choice(threads), code=202,
        )  # fmt: skip
    for i in rng.sample(range(rows), min(320, rows)):
        phases, mechanisms = ("forward", "backward", "other"), ("unknown", "gil_wait")
        pieces = [(rng.choice(phases), rng.choice(mechanisms), 0.2) for _ in range(60)]
        file.keep(i, "worst" if i % 5 == 0 else "flagged", *pieces, thread=rng.choice(threads))
    ready = dict.fromkeys(range(9), (rows // 9, 900.0))
    loader = file.loader(1, fetches=rows, wait=9000, cpu=100, ready=ready, num_workers=8)
    for pid in range(8):
        file.worker(loader, 5000 + pid, cpu_share=rng.random(), seconds=900, states={"R": 500, "S": 400})
    file.host(4000, process_cpus=2.1, other_cpus=0.4, idle_cpus=5.5)
    file.overhead(collector=900, sampler=400, marks=200, gil_hook=100)
    file.build()
    if merge > 1:
        widen(path, merge)
    return path


def widen(path: Path, width: int) -> None:
    """Each step row, and all that is summed over steps, stands for `width` steps."""
    by_steps = {
        "step": [
            c for c in TABLES["step"] if c.endswith("_ns") and c not in ("start_ns", "wall_min_ns", "wall_max_ns")
        ],
        "section": ["first_step", "steps", "wall_ns"],
        "phase_mechanism": ["ns"],
        "wall_histogram": ["steps", "wall_ns"],
        "cause_share": ["steps"],
    }
    with contextlib.closing(sqlite3.connect(path)) as file:
        for table, columns in by_steps.items():
            file.execute(f"UPDATE {table} SET " + ", ".join(f"{c} = {c} * {width}" for c in columns))
        # By way of negative numbers, since no two rows may have the same first step meanwhile.
        file.execute(f"UPDATE step SET steps = {width}, first_step = -1 - first_step * {width}")
        file.execute("UPDATE step SET first_step = -1 - first_step")
        file.execute("UPDATE meta SET value = value * ? WHERE key = 'wall_ns'", (width,))
        file.commit()


def figures(*, quick: bool = False) -> list[Figure]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for steps, (most_bytes, most_seconds) in TARGETS.items():
            path = make(Path(folder) / f"{steps}.tpr", steps)
            seconds = []
            for _ in range(2 if quick else 5):
                start = time.perf_counter()
                with Run(path) as run:
                    page = render(run)
                    assert run.step_count == steps
                seconds.append(time.perf_counter() - start)
            name = f"report of {steps:,} steps"
            kb, file_mb = len(page.encode()) / 1e3, path.stat().st_size / 1e6
            found.append(
                Figure(f"{name}: size", kb, "kB", target=most_bytes / 1e3, note=f"of a {file_mb:.1f} MB run file")
            )
            value, low, high = median_interval(seconds)
            note = f"open, judge, render; the first time {seconds[0]:.2f} s"
            found.append(Figure(f"{name}: time", value, "s", low, high, most_seconds, note=note))
    return found


if __name__ == "__main__":
    for f in figures():
        print(f"{f.name:<36} {f.value:8.2f} {f.unit:<3} target {f.target:g}: {f.verdict}; {f.note}")
