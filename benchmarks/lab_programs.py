"""`trainperf lab` on six trainings of which it is known what limits them, and the sentence that it says of each.

python benchmarks/lab_programs.py [--keep rows.json] [NAME ...]
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parent.parent / "tests" / "programs" / "prove" / "precision.py"
# What the sentence must say of each.
NAMES = {
    "starved": "precision is not the limit, data loading is",
    "matmul": "bf16 gains [0-9]+%, as compute falls|compute, which bf16 does not speed up here",
    "python": "precision is not the limit, Python code on the training thread is",
    "gil": "precision is not the limit, waiting for the GIL is",
    "tiny": "bf16 loses .* its conversions cost more than it saves",
    "breaks": "Compiling(: nothing was compiled| gains nothing| loses)",
}

Row = dict[str, Any]


def row(name: str, budget: str) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "trainperf", "lab", "--json", "--budget", budget, "--", str(SCRIPT), name]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if not done.stdout:
        return {"name": name, "sentence": (done.stderr.strip().splitlines() or ["no answer"])[-1], "runs": []}
    found = json.loads(done.stdout)
    return {"name": name, "sentence": found["sentence"], "runs": found["runs"], "seconds": found["seconds"]}


def right(r: Row) -> bool:
    return re.search(NAMES[r["name"]], r["sentence"]) is not None


def table(rows: Sequence[Row]) -> str:
    lines = ["| Training | ms/step: as it is, bf16, compiled too | Sentence | Right |", "|---|---|---|---|"]
    for r in rows:
        rates = ", ".join(f"{run['step_ms']:.1f}" if run["step_ms"] else "-" for run in r["runs"])
        lines.append(f"| {r['name']} | {rates} | {r['sentence']} | {'yes' if right(r) else 'NO'} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: {', '.join(NAMES)}")
    parser.add_argument("--budget", default="200s", help="of each training")
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
    print(f"\n{sum(map(right, rows))} of {len(rows)} sentences are right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
