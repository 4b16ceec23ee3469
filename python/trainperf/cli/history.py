"""`trainperf history [DIR]`: the runs in a folder, and the trend of their steps."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys

from trainperf.errors import TrainperfError


class History:
    name = "history"
    help = "list the runs of a folder, with their trend"
    description = (
        "Lists the runs of a folder, oldest first: when, how many steps, the median step, how that compares with the "
        "last five of the same name, host and rank, and the verdict. Give runs a name and a folder: "
        'trainperf.watch("runs/", name="resnet").'
    )
    epilog = """\
examples:
  trainperf run -o runs/ --name resnet train.py
  trainperf history runs --name resnet
  trainperf history runs --json | jq '.runs[-1].median_ms'
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("folder", metavar="DIR", nargs="?", default=".", help="where the runs are (default: .)")
        parser.add_argument("--name", help="only runs of this name")
        parser.add_argument("-n", type=_count, default=20, metavar="N", help="the last N (default: 20); 0: all")
        parser.add_argument("--json", action="store_true", help="as JSON")

    def run(self, args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
        from trainperf import history
        from trainperf.cli.progress import working
        from trainperf.report import console
        from trainperf.report import history as report

        if not os.path.isdir(args.folder):
            file = os.path.exists(args.folder)
            wrong = "is a file: trainperf show reads one" if file else "does not exist: name one that has run files"
            raise TrainperfError(f"{args.folder} {wrong}")
        with working("reading runs") as at:
            paths = list(itertools.islice(history.scan(args.folder, args.name), args.n or None))
            found = report.build(paths, lambda number: at(f"{number} of {len(paths)}"))
        if args.json:
            json.dump(report.to_dict(found), sys.stdout, indent=2, allow_nan=False)
            sys.stdout.write("\n")
        else:
            console.emit(report.lines(found, width=console.terminal_width(sys.stdout)), sys.stdout)
        sys.stdout.flush()
        return 0 if found.rows or not found.unread else 1


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of runs: write 20, or 0 for all")
    return value
