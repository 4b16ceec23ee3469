"""What findings promise against what `trainperf try` proves, for each test program whose fix can be tried.

    python benchmarks/promises.py [--budget 60s] [--keep rows.json] [--plot promises.png] [PROGRAM ...]

A promise is the most that a fix saves, by the finding; one that is off by more than a quarter is a fault of its rule.
With --keep a program whose rows are in the file is not run again: a long benchmark can be done in parts.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# Programs of the tests and examples whose trouble has a fix that can be set from outside.
TRIED = (
    "examples/demo.py files", "tests/programs/prove/sleeping_loader.py", "tests/programs/data_in_process_cpu.py",
    "tests/programs/data_in_process_sleep.py", "tests/programs/gc_pauses.py", "tests/programs/throttled.py",
    "tests/programs/cpu_oversubscription.py", "tests/programs/worker_startup.py",
    "tests/programs/workers_too_slow.py", "tests/programs/heap_churn.py",
)  # fmt: skip
_OFF = 0.25
_TICKS = (1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24)  # of the plot
_TICKS = (1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24)  # of the plot
_MEASURED = ("proven", "no_gain", "changes_results")

Row = dict[str, Any]  # a change of --json, and its program


def changes_of(program: str, budget: str) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path, *arguments = shlex.split(program)
        script = [str((ROOT / path).resolve()), *arguments]
        words = [sys.executable, "-m", "trainperf", "try", "--json", "--budget", budget]
        done = subprocess.run([*words, "--", *script], cwd=folder, capture_output=True, text=True, check=False)
    name = " ".join([Path(path).stem, *arguments])
    if not done.stdout:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return [{"program": name, "change": "", "finding": None, "verdict": "failed", "reason": said[-1]}]
    found = json.loads(done.stdout)["changes"]
    none: Row = {"change": "", "finding": None, "verdict": "not_applied", "reason": "its findings advise no setting"}
    return [{"program": name, **change} for change in found or [none]]


def off(row: Row) -> float | None:
    """How much more was promised than measured; None where either is not known."""
    if row["verdict"] not in _MEASURED or not row.get("promised") or not row.get("gain"):
        return None
    return float(row["promised"]) / float(row["gain"]) - 1


def table(rows: Sequence[Row]) -> str:
    lines = ["| Program | Finding | Change | Promised | Proven | Off |", "|---|---|---|---|---|---|"]
    for row in rows:
        if row.get("gain") and row["verdict"] in _MEASURED:
            interval = " [{:.2f}, {:.2f}]".format(*row["interval"]) if row["interval"] else ""
            measured = f"{row['gain']:.2f}x{interval}"
            measured += "" if row["verdict"] == "proven" else f" ({row['verdict']})"
        else:
            measured = f"{row['verdict']}: {row['reason']}"
        promised = f"{row['promised']:.2f}x" if row.get("promised") else ""
        by = off(row)
        said = f"{by:+.0%}" if by is not None else ""
        change = f"`{row['change']}`" if row["change"] else ""
        lines.append(f"| {row['program']} | {row['finding'] or ''} | {change} | {promised} | {measured} | {said} |")
    return "\n".join(lines)


def plot(rows: Sequence[Row], path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

    figure, axes = plt.subplots(figsize=(4.5, 4.5))
    most = 1.3 * max(max(row["promised"], row["interval"][1] if row["interval"] else row["gain"]) for row in rows)
    axes.fill_between(
        [0.8, most], [0.8 / (1 + _OFF), most / (1 + _OFF)], [0.8 / (1 - _OFF), most / (1 - _OFF)],
        color="grey", alpha=0.15, linewidth=0, label="within a quarter",
    )  # fmt: skip
    axes.plot([0.8, most], [0.8, most], color="grey", linewidth=1)
    for finding in sorted({row["finding"] for row in rows}):
        mine = [row for row in rows if row["finding"] == finding]
        ends = [row["interval"] or [row["gain"], row["gain"]] for row in mine]
        bars = [[r["gain"] - low for r, (low, _) in zip(mine, ends, strict=True)],
                [high - r["gain"] for r, (_, high) in zip(mine, ends, strict=True)]]  # fmt: skip
        axes.errorbar(
            [r["promised"] for r in mine], [r["gain"] for r in mine], yerr=bars, fmt="o", capsize=2, label=finding
        )
    axes.set(xlabel="promised", ylabel="measured, 95% interval", xscale="log", yscale="log")
    axes.set(xlim=(0.8, most), ylim=(0.8, most))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(FixedLocator([tick for tick in _TICKS if tick <= most]))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(ScalarFormatter())
    axes.legend(frameon=False, loc="upper left")
    figure.savefig(path, dpi=130, bbox_inches="tight")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", help="with their arguments, each as one word (default: those that fit)")
    parser.add_argument("--budget", default="60s", help="of each program")
    parser.add_argument("--keep", metavar="JSON", type=Path, help="the rows, kept from call to call")
    parser.add_argument("--plot", metavar="PNG", help="a reliability plot, with matplotlib")
    arguments = parser.parse_args()
    kept: dict[str, list[Row]] = {}
    if arguments.keep and arguments.keep.exists():
        kept = json.loads(arguments.keep.read_text())
    for program in arguments.programs or TRIED:
        if program in kept:
            continue
        kept[program] = changes_of(program, arguments.budget)
        print(table(kept[program]).splitlines()[-1], file=sys.stderr, flush=True)
        if arguments.keep:
            arguments.keep.write_text(json.dumps(kept, indent=1))
    rows = [row for found in kept.values() for row in found]
    print(table(rows))
    known = [row for row in rows if off(row) is not None]
    within = sum(abs(off(row) or 0.0) <= _OFF for row in known)
    print(f"\n{within} of {len(known)} promises within {_OFF:.0%} of what was measured")
    if arguments.plot and known:
        plot(known, arguments.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
