"""`trainperf sweep` on twelve loaders, beside the whole grid of workers: what it found, what that loses, and the time.

    python benchmarks/sweep_loaders.py [--keep rows.json] [NAME ...]

The grid has each number of workers that a sweep may try. It is measured twice, up and down, by trials that nothing
watches; numbers with which it is another training, by the samples, are left out of it. With --keep a loader whose row
is in the file is not run again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainperf.prove import measure, same_training
from trainperf.prove.changes import Change
from trainperf.prove.prover import Prover
from trainperf.prove.sweep import WORKERS
from trainperf.prove.trial import Asked, Command, Trials

SCRIPT = Path(__file__).resolve().parent.parent / "tests" / "programs" / "prove" / "loaders.py"
NAMES = (
    "memory", "sleep", "short_sleep", "compute", "short_compute", "both", "lock", "uneven", "collate", "files",
    "stream", "short_epochs",
)  # fmt: skip
_NEAR = 0.05
_CLOSE = 0.15

Row = dict[str, Any]


def row(name: str, budget: str) -> Row:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "trainperf", "sweep", "--json", "--budget", budget, "--", str(SCRIPT), name]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if not done.stdout:
        return {"name": name, "problem": (done.stderr.strip().splitlines() or ["no answer"])[-1]}
    took, found = time.monotonic() - began, json.loads(done.stdout)
    settings = found["best"] or {"num_workers": 0}
    began = time.monotonic()
    grid, others, busy = _grid(name, settings)
    return {
        "name": name,
        "found": settings["num_workers"],
        "verdict": found["changes"][0]["verdict"] if found["changes"] else found["reason"],
        "headroom_ms": found["headroom_ms"],
        "predicted": {p["num_workers"]: p["predicted_ms"] for p in found["grid"] if p["predicted_ms"]},
        "sweep_s": took,
        "grid_s": time.monotonic() - began,
        "grid": grid,
        "other_trainings": others,
        "busy": busy,
    }


def _grid(name: str, found: Mapping[str, Any]) -> tuple[dict[int, float], list[int], float]:
    """Milliseconds of a step, for each number of workers; the numbers with which it is another training; and CPUs that
    other programs used meanwhile."""
    ms: dict[int, list[float]] = {}
    others: list[int] = []
    busy: list[float] = []
    with Trials(Command(str(SCRIPT), (name,))) as trials:
        first = Prover(trials, budget_s=120).watch()
        baseline: Mapping[str, Any] = {}
        for count in [0, *WORKERS, *reversed(WORKERS), 0]:
            persistent = ",persistent_workers=True" if count and found.get("persistent_workers") else ""
            change = Change.parse(f"num_workers={count}{persistent}")
            asked = Asked(change, first.trial.loader, first.plan.batches, timeout_s=60, watched=False)
            trial = trials.run(asked)
            if not trial.finished:
                continue
            baseline = baseline or trial.record
            busy.append(trial.record["others_cpus"] or 0.0)
            if same_training.compare([baseline], trial.record).kind == "other":
                others.append(count)
            else:
                ms.setdefault(count, []).append(measure.step_ms(trial.record, first.plan))
    return {count: statistics.mean(found) for count, found in ms.items()}, sorted(set(others)), statistics.mean(busy)


def table(rows: Sequence[Row]) -> str:
    lines = [
        "| Loader | Workers found | Best of the grid | ms/step: none, found, best | Lost | Predicted with workers "
        "| Sweep, grid | Others' CPUs |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        if "problem" in r:
            lines.append(f"| {r['name']} | {r['problem']} |||||||")
            continue
        grid = _ints(r["grid"])
        best, found = min(grid, key=lambda count: grid[count]), r["found"]
        at, off = predicted(r)
        said = "" if r["verdict"] == "proven" else f" ({r['verdict']})"
        but = f" ({', '.join(map(str, r['other_trainings']))} train otherwise)" if r["other_trainings"] else ""
        lost = grid[found] - grid[best]
        lines.append(
            f"| {r['name']} | {found}{said} | {best}{but} | {grid[0]:.1f}, {grid[found]:.1f}, {grid[best]:.1f} | "
            f"{lost:.2f} ms ({lost / grid[best]:.0%}) | {'' if off is None else f'{at}: {off:+.0%}'} | "
            f"{r['sweep_s']:.0f} s, {r['grid_s']:.0f} s | {r['busy']:.1f} |"
        )
    return "\n".join(lines)


def _ints(found: Mapping[Any, float]) -> dict[int, float]:
    return {int(count): ms for count, ms in found.items()}


def predicted(r: Row) -> tuple[int | None, float | None]:
    """The best number of workers of the grid, but for none, and by how much its prediction is off."""
    grid, said = _ints(r["grid"]), _ints(r["predicted"])
    at = min((count for count in grid if count in said), key=lambda count: grid[count], default=None)
    return at, said[at] / grid[at] - 1 if at is not None else None


def near(r: Row) -> bool:
    grid = _ints(r.get("grid", {}))
    return bool(grid) and grid[r["found"]] <= (1 + _NEAR) * min(grid.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: {', '.join(NAMES)}")
    parser.add_argument("--budget", default="90s", help="of each sweep")
    parser.add_argument("--keep", metavar="JSON", type=Path, help="the rows, kept from call to call")
    arguments = parser.parse_args()
    kept: dict[str, Row] = {}
    if arguments.keep and arguments.keep.exists():
        kept = json.loads(arguments.keep.read_text())
    for name in arguments.names or NAMES:
        if name in kept:
            continue
        kept[name] = row(name, arguments.budget)
        print(table([kept[name]]).splitlines()[-1], file=sys.stderr, flush=True)
        if arguments.keep:
            arguments.keep.write_text(json.dumps(kept, indent=1))
    rows = list(kept.values())
    print(table(rows))
    print(f"\n{sum(map(near, rows))} of {len(rows)} within {_NEAR:.0%} of the best of the grid")
    off = [error for r in rows if "grid" in r and (error := predicted(r)[1]) is not None]
    print(f"{sum(abs(error) <= _CLOSE for error in off)} of {len(off)} predictions within {_CLOSE:.0%}")
    shares = sorted(r["sweep_s"] / r["grid_s"] for r in rows if "grid" in r)
    if shares:
        print(
            f"a sweep takes {shares[0]:.2f} to {shares[-1]:.2f} of the grid's time, "
            f"{statistics.median(shares):.2f} in the median"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
