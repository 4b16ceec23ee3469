"""What the programs of this folder print of themselves, as tests/replay keeps it."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def tell(finding: str, share: float, who: str) -> None:
    """The trouble is on the line of the program that ends with "# trouble"."""
    program = Path(sys.argv[0])
    lines = program.read_text(encoding="utf-8").splitlines()
    where = [f"{program.name}:{i}" for i, line in enumerate(lines, 1) if line.endswith("# trouble")]
    print(
        json.dumps(
            {
                "finding": finding,
                "share": share,
                "who": who,
                "where": where,
                "program": program.stem,
                "gil": sys._is_gil_enabled(),
            }
        )
    )
