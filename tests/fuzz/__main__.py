"""Fuzzes run files for so many seconds; exit code 1 when a view fails."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from fuzz.run_files import base_files, try_one  # noqa: E402  # the path comes first


def main(seconds: float, first: int) -> int:
    until, seed, failed = time.monotonic() + seconds, first, 0
    with tempfile.TemporaryDirectory(prefix="trainperf-fuzz-") as name:
        folder = Path(name)
        bases = base_files(folder)
        while time.monotonic() < until:
            wrong = try_one(seed, bases, folder)
            if wrong:
                failed += 1
                print(wrong, flush=True)
            seed += 1
    print(f"{seed - first} damaged run files, {failed} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0, int(sys.argv[2]) if len(sys.argv) > 2 else 0))
