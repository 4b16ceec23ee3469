"""Fails where a function or class of the package is of rank D or worse by `radon cc`: a complexity of 21 or more.

scripts/complexity.txt names those of the findings that are still so, a line "path name" each. It only shrinks: a line
that is no longer true fails too.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "python/trainperf"
KNOWN = ROOT / "scripts" / "complexity.txt"


def main() -> int:
    done = subprocess.run(
        [sys.executable, "-m", "radon", "cc", "--min", "D", "--json", PACKAGE],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    found = {
        f"{file} {name}": rank for file, blocks in json.loads(done.stdout).items() for name, rank in _ranks(blocks)
    }
    known = set(KNOWN.read_text(encoding="utf-8").split("\n")) - {""}
    for what in sorted(found.keys() - known):
        print(f"{what} is of {found[what]}: split it")
    for what in sorted(known - found.keys()):
        print(f"{what} is no longer of rank D: take its line out of {KNOWN.relative_to(ROOT)}")
    return 1 if found.keys() ^ known else 0


def _ranks(blocks: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for block in blocks:
        name = f"{block['classname']}.{block['name']}" if block.get("classname") else block["name"]
        yield name, f"rank {block['rank']} ({block['complexity']})"


if __name__ == "__main__":
    sys.exit(main())
