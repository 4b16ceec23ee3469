"""Fails where a function or class of the package is of rank D or worse by `radon cc`: a complexity of 21 or more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "python/trainperf"


def main() -> int:
    done = subprocess.run(
        [sys.executable, "-m", "radon", "cc", "--min", "D", "--json", PACKAGE],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    found = {file: blocks for file, blocks in json.loads(done.stdout).items() if blocks}
    for file, blocks in sorted(found.items()):
        for block in blocks:
            name = f"{block['classname']}.{block['name']}" if block.get("classname") else block["name"]
            print(f"{file} {name} is of rank {block['rank']} ({block['complexity']}): split it")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
