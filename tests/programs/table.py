"""Runs all test programs and prints the table of truth and report, and what was wrong.

python -m tests.programs.table [--markdown FILE] [--verdicts] [PROGRAM ...]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.programs import judge


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="*", help="all, when none is named")
    parser.add_argument("--markdown", type=Path, help="write the table there too")
    parser.add_argument("--verdicts", action="store_true", help="print what trainperf printed")
    arguments = parser.parse_args()
    rows, wrong = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.program or judge.programs():
            try:
                outcome = judge.run(name, Path(folder))
            except RuntimeError as error:
                print(f"{name}: {error}", file=sys.stderr)
                rows.append((name, "", "", "", "FAILED"))
                wrong += 1
                continue
            rows.append(judge.row(outcome))
            found = [] if outcome.skipped else judge.problems(outcome)
            wrong += bool(found)
            print(f"{name}: {'; '.join(found) or outcome.skipped or 'ok'}", file=sys.stderr, flush=True)
            if arguments.verdicts:
                print(outcome.printed, file=sys.stderr, flush=True)
    text = judge.table(rows)
    print(text)
    if arguments.markdown:
        arguments.markdown.write_text(text + "\n", encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
