"""Whether `trainperf try` proves changes that are faster, and whether its interval holds by how much they are.

    python benchmarks/real_gains.py [--budget 90s] [--keep rows.json] [KIND:SIZE ...]

The truth of each is the ratio of 40 pairs of runs with nothing of trainperf in them, in which the setting is applied by
hand: half of them before the trial and half after it. With --keep a row in the file is not measured again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).resolve().parent.parent / "tests" / "programs" / "prove"
sys.path.insert(0, str(PROGRAMS))
import known_gain  # noqa: E402 (from its folder, as a script is)

TRIED = (
    "storage:0.15", "storage:0.2", "storage:0.3", "storage:0.4", "storage:0.5", "decoding:150", "decoding:200",
    "decoding:300", "decoding:400", "collections:3", "collections:5", "collections:10", "collections:30", "epochs:1",
    "epochs:2", "epochs:5", "denormals:10", "denormals:20", "denormals:40", "denormals:100",
)  # fmt: skip
_PAIRS = 20  # before the trial, and after it

Row = dict[str, Any]


def forked_ms(kind: str, size: float, *, apply: bool) -> float:
    """Of a step, in a process of its own."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        warnings.simplefilter("ignore")  # more workers than CPUs
        os.write(write, f"{known_gain.step_ms(kind, size, apply)}\n".encode())
        os._exit(0)
    os.close(write)
    with open(read) as answer:
        said = answer.readline()  # its workers have the pipe too, and live on for a moment
    os.waitpid(child, 0)
    return float(said)


def logs(kind: str, size: float) -> list[float]:
    """Of _PAIRS ratios of steps without the setting and with it, which of both is first changing."""
    found = []
    for number in range(_PAIRS):
        order = (False, True) if number % 2 else (True, False)
        ms = {apply: forked_ms(kind, size, apply=apply) for apply in order}
        found.append(math.log(ms[False] / ms[True]))
    return found


def row(name: str, budget: str) -> Row:
    kind, _, size = name.partition(":")
    change = known_gain.SETTINGS[kind]
    before = logs(kind, float(size))
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "trainperf", "try", "--json", "--budget", budget, "--change", change]
        script = [str(PROGRAMS / "known_gain.py"), kind, size]
        done = subprocess.run([*words, "--", *script], cwd=folder, capture_output=True, text=True, check=False)
    pairs = before + logs(kind, float(size))
    truth = {"truth": math.exp(statistics.median(pairs)), "truth_half": _half(pairs)}
    if not done.stdout:
        return {"name": name, "change": change, "verdict": "failed", "reason": done.stderr.strip()[-200:], **truth}
    (tried,) = json.loads(done.stdout)["changes"]
    return {"name": name, **tried, "change": change, **truth}


def _half(pairs: Sequence[float]) -> float:
    """Of the truth's own interval of 95 %, as a share: from the mean's standard error."""
    return 1.96 * statistics.stdev(pairs) / math.sqrt(len(pairs))


def holds(r: Row) -> bool:
    """The interval and the truth's own have a value in common."""
    if not r.get("interval"):
        return False
    low, high = r["interval"]
    return low <= r["truth"] * (1 + r["truth_half"]) and high >= r["truth"] * (1 - r["truth_half"])


def table(rows: Sequence[Row]) -> str:
    lines = ["| Training | Change | Truth | Verdict | Interval holds it | Pairs |", "|---|---|---|---|---|---|"]
    for r in rows:
        truth = f"{r['truth']:.2f}x ± {r['truth_half']:.0%}"
        said = r["verdict"] + (f": {r['reason']}" if r.get("reason") else "")
        if r.get("gain") and r.get("interval"):
            said = f"{r['verdict']} {r['gain']:.2f}x [{r['interval'][0]:.2f}, {r['interval'][1]:.2f}]"
        held = "yes" if holds(r) else "NO"
        lines.append(f"| {r['name']} | `{r['change']}` | {truth} | {said} | {held} | {r.get('pairs', '')} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="KIND:SIZE", help=f"default: {', '.join(TRIED)}")
    parser.add_argument("--budget", default="90s", help="of each trial")
    parser.add_argument("--keep", metavar="JSON", type=Path, help="the rows, kept from call to call")
    arguments = parser.parse_args()
    kept: dict[str, Row] = {}
    if arguments.keep and arguments.keep.exists():
        kept = {r["name"]: r for r in json.loads(arguments.keep.read_text())}
    names = arguments.names or TRIED
    for name in names:
        if name not in kept:
            kept[name] = row(name, arguments.budget)
            print(table([kept[name]]).splitlines()[-1], file=sys.stderr, flush=True)
            if arguments.keep:
                arguments.keep.write_text(json.dumps(list(kept.values()), indent=1))
    rows = [kept[name] for name in names]
    print(table(rows))
    proven = sum(r["verdict"] == "proven" for r in rows)
    print(f"\n{proven} of {len(rows)} proven; {sum(map(holds, rows))} intervals hold the truth.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
