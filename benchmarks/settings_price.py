"""What `trainperf check` says that a setting costs, against what a training saves without it.

    python benchmarks/settings_price.py [--keep rows.json] [CASE ...]

The truth is the difference of a step's time in pairs of runs that nothing watches, wrong and right; the price is of one
watched run. The right training is watched too: there the setting must have no cost.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch._dynamo  # noqa: F401 (each optimizer imports it, which takes a forked process two seconds)
import trainperf

PROGRAMS = Path(__file__).resolve().parent.parent / "tests" / "programs"
sys.path.insert(0, str(PROGRAMS))
import priced_setting  # noqa: E402 (from its folder, as a script is)

_PAIRS = 8
_SECONDS, _WATCHED_S = 1.0, 8.0

Row = dict[str, Any]


def forked(work: Callable[[], float]) -> float:
    """What it gives in a process of its own, whose settings end with it."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        warnings.simplefilter("ignore")
        os.write(write, f"{work()}\n".encode())
        os._exit(0)
    os.close(write)
    with open(read) as answer:
        said = answer.readline()
    os.waitpid(child, 0)
    return float(said)


def trained(name: str, wrong: bool, seconds: float, path: str = "") -> float:
    """A step's milliseconds; `path`: of the run file of one that is watched."""
    case = priced_setting.CASES[name]
    if case.environment or case.flags:  # there before the interpreter starts
        flags, environment = (case.flags, case.environment) if wrong else ((), {})
        words = [name, "wrong" if wrong else "right", str(seconds), *([path] if path else [])]
        done = subprocess.run(
            [sys.executable, *flags, priced_setting.__file__, *words],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
        )
        return float(done.stdout)

    def work() -> float:
        with trainperf.watch(path, verbose=False) if path else contextlib.nullcontext():
            return priced_setting.train(name, wrong, seconds)

    return forked(work)


def state(name: str, wrong: bool, folder: str) -> Row:
    path = str(Path(folder, f"{name}-{wrong}.tpr"))
    trained(name, wrong, _WATCHED_S, path)
    words = [sys.executable, "-m", "trainperf", "check", "--json", path]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    (told,) = [s for s in found["settings"] if s["id"] == name.partition(".")[0]]
    cost = told["cost_ns"] / found["steps"] / 1e6 if told["cost_ns"] else None
    return {"state": told["state"], "ms": cost, "is": told.get("cost_is") or "", "finding": told.get("finding") or ""}


def row(name: str) -> Row:
    saved, steps = [], []
    for number in range(_PAIRS):
        order = (True, False) if number % 2 else (False, True)
        ms = {wrong: trained(name, wrong, _SECONDS) for wrong in order}
        saved.append(ms[True] - ms[False])
        steps.append(ms[True])
    with tempfile.TemporaryDirectory() as folder:
        wrong, right = (state(name, of, folder) for of in (True, False))
    half = 1.96 * statistics.stdev(saved) / len(saved) ** 0.5
    step = statistics.median(steps)
    return {"id": name, "step": step, "saved": statistics.median(saved), "half": half, "wrong": wrong, "right": right}


def table(rows: list[Row]) -> str:
    lines = ["| Setting | Wrong | Step, ms | Saved by setting it right, ms | Said when wrong | Said when right |"]
    lines.append("|---|---|---|---|---|---|")
    for r in rows:
        state = {"unpriced": "wrong, without a price"}.get(r["wrong"]["state"], r["wrong"]["state"])
        said = " ".join(filter(None, (state, r["wrong"]["is"])))
        if r["wrong"]["ms"] is not None:
            said += f" {r['wrong']['ms']:.2f} ms ({r['wrong']['finding'] or 'no finding'})"
        truth = f"{r['saved']:.2f} ± {r['half']:.2f}"
        id, what = r["id"].partition(".")[0], priced_setting.CASES[r["id"]].what
        lines.append(f"| `{id}` | {what} | {r['step']:.2f} | {truth} | {said} | {r['right']['state']} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", nargs="*", metavar="CASE", help=f"default: {', '.join(priced_setting.CASES)}")
    parser.add_argument("--keep", metavar="JSON", type=Path, help="the rows, kept from call to call")
    arguments = parser.parse_args()
    kept: dict[str, Row] = {}
    if arguments.keep and arguments.keep.exists():
        kept = {r["id"]: r for r in json.loads(arguments.keep.read_text())}
    ids = arguments.ids or list(priced_setting.CASES)
    for id in ids:
        if id not in kept:
            kept[id] = row(id)
            print(table([kept[id]]).splitlines()[-1], file=sys.stderr, flush=True)
            if arguments.keep:
                arguments.keep.write_text(json.dumps(list(kept.values()), indent=1))
    print(table([kept[id] for id in ids]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
