"""What findings promise against what `trainperf try` proves, for each test program whose fix can be tried.

    python benchmarks/promises.py [--budget 60s] [--plot promises.png] [PROGRAM ...]

A promise is the most that a fix saves, by the finding; one that is off by more than a quarter is a fault of its rule.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).resolve().parent.parent / "tests" / "programs"
# Programs of the tests whose trouble has a fix that can be set from outside.
TRIED = (
    "prove/sleeping_loader.py", "data_in_process_cpu.py", "data_in_process_sleep.py", "gc_pauses.py", "throttled.py",
    "cpu_oversubscription.py", "worker_startup.py", "workers_too_slow.py", "heap_churn.py",
)  # fmt: skip
_OFF = 0.25


def changes_of(program: Path, budget: str, folder: str) -> list[dict[str, Any]]:
    patch = str(Path(folder, f"{program.stem}.patch"))
    words = [sys.executable, "-m", "trainperf", "try", "--json", "--budget", budget, "-o", patch, "--", str(program)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if not done.stdout:
        print(f"{program.stem}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else done.returncode}")
        return []
    return list(json.loads(done.stdout)["changes"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", type=Path, help="default: those of the tests that have such a fix")
    parser.add_argument("--budget", default="60s", help="of each program")
    parser.add_argument("--plot", metavar="PNG", help="a reliability plot, with matplotlib")
    arguments = parser.parse_args()
    points: list[tuple[float, float]] = []
    print(f"{'program':<24} {'finding':<7} {'change':<40} promised  proven  off")
    with tempfile.TemporaryDirectory() as folder:
        for program in arguments.programs or [PROGRAMS / name for name in TRIED]:
            for change in changes_of(program.resolve(), arguments.budget, folder):
                promised, gain = change["promised"], change["gain"]
                row = f"{program.stem:<24} {change['finding'] or '':<7} {change['change']:<40}"
                if not promised or not gain or change["verdict"] not in ("proven", "no_gain"):
                    print(f"{row} {change['verdict']}: {change['reason']}", flush=True)
                    continue
                points.append((promised, gain))
                off = promised / gain - 1
                print(
                    f"{row} {promised:>7.2f}x {gain:>6.2f}x {off:+5.0%}{'  FAULT' if abs(off) > _OFF else ''}",
                    flush=True,
                )
    within = sum(abs(promised / gain - 1) <= _OFF for promised, gain in points)
    print(f"{within} of {len(points)} promises within {_OFF:.0%} of what was measured")
    if arguments.plot and points:
        plot(points, arguments.plot)
    return 0


def plot(points: list[tuple[float, float]], path: str) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(4, 4))
    most = 1.1 * max(max(point) for point in points)
    axes.plot([1, most], [1, most], color="grey", linewidth=1)
    axes.fill_between([1, most], [0.75, 0.75 * most], [1.25, 1.25 * most], color="grey", alpha=0.15)
    axes.scatter(*zip(*points, strict=True))
    axes.set(xlabel="promised", ylabel="measured", xscale="log", yscale="log")
    figure.savefig(path, dpi=150, bbox_inches="tight")


if __name__ == "__main__":
    sys.exit(main())
