"""`trainperf sweep` on twelve loaders, beside the whole grid of workers: what it found, what that loses, and the time.

    python benchmarks/sweep_loaders.py [--keep rows.json] [NAME ...]

The grid is measured twice, up and down, by trials that nothing watches. With --keep a loader whose row is in the file
is not run again.
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

from trainperf.prove import measure
from trainperf.prove.changes import Change
from trainperf.prove.prover import Prover
from trainperf.prove.trial import Asked, Command, Trials

SCRIPT = Path(__file__).resolve().parent.parent / "tests" / "programs" / "prove" / "loaders.py"
NAMES = (
    "memory", "sleep", "short_sleep", "compute", "short_compute", "both", "lock", "uneven", "collate", "files",
    "stream", "short_epochs",
)  # fmt: skip
WORKERS = (0, 1, 2, 4, 8)
_NEAR = 0.05

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
    grid = _grid(name, settings)
    return {
        "name": name,
        "found": settings["num_workers"],
        "verdict": found["changes"][0]["verdict"] if found["changes"] else found["reason"],
        "headroom_ms": found["headroom_ms"],
        "predicted": {p["num_workers"]: p["predicted_ms"] for p in found["grid"] if p["predicted_ms"]},
        "sweep_s": took,
        "grid_s": time.monotonic() - began,
        "grid": grid,
    }


def _grid(name: str, found: Mapping[str, Any]) -> dict[int, float]:
    """Milliseconds of a step, for each number of workers."""
    ms: dict[int, list[float]] = {}
    with Trials(Command(str(SCRIPT), (name,))) as trials:
        first = Prover(trials, budget_s=120).watch()
        workers = sorted({*WORKERS, found["num_workers"]})
        for count in [*workers, *reversed(workers)]:
            persistent = ",persistent_workers=True" if count and found.get("persistent_workers") else ""
            change = Change.parse(f"num_workers={count}{persistent}")
            asked = Asked(change, first.trial.loader, first.plan.batches, timeout_s=60, watched=False)
            trial = trials.run(asked)
            if trial.finished:
                ms.setdefault(count, []).append(measure.step_ms(trial.record, first.plan))
    return {count: statistics.mean(found) for count, found in ms.items()}


def table(rows: Sequence[Row]) -> str:
    lines = [
        "| Loader | Workers found | Best of the grid | ms/step: none, found, best | Lost | Predicted | Sweep, grid |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        if "problem" in r:
            lines.append(f"| {r['name']} | {r['problem']} |||||")
            continue
        grid = {int(count): ms for count, ms in r["grid"].items()}
        best, found = min(grid, key=lambda count: grid[count]), r["found"]
        predicted = {int(count): ms for count, ms in r["predicted"].items()}.get(best)
        off = f"{predicted:.1f} ({predicted / grid[best] - 1:+.0%})" if predicted else ""
        lost = grid[found] - grid[best]
        said = "" if r["verdict"] == "proven" else f" ({r['verdict']})"
        lines.append(
            f"| {r['name']} | {found}{said} | {best} | {grid[0]:.1f}, {grid[found]:.1f}, {grid[best]:.1f} | "
            f"{lost:.2f} ms ({lost / grid[best]:.0%}) | {off} | {r['sweep_s']:.0f} s, {r['grid_s']:.0f} s |"
        )
    return "\n".join(lines)


def near(r: Row) -> bool:
    grid = {int(count): ms for count, ms in r.get("grid", {}).items()}
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
    return 0


if __name__ == "__main__":
    sys.exit(main())
