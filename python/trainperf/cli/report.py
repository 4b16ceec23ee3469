"""`trainperf report RUN -o a.html`: the report as one HTML file; of a folder, with all ranks beside each other."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


class Report:
    name = "report"
    help = "write a run's report as one HTML file"
    description = (
        "Writes a run's report as one HTML file that loads nothing: to read, to print, to send. "
        "RUN may be a run file, or a folder that holds the files of one run's ranks."
    )

    epilog = """\
examples:
  trainperf report a.tpr                  writes a.html
  trainperf report runs/job7 -o job7.html    a folder with a.rank0.tpr, a.rank1.tpr ...
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", metavar="RUN", help="a.tpr, or a folder with a.rank0.tpr, a.rank1.tpr ...")
        parser.add_argument("-o", "--output", metavar="FILE", help="the HTML file (default: beside the run, a.html)")
        parser.add_argument("-f", "--force", action="store_true", help="overwrite a file that exists")

    def run(self, args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
        from trainperf.cli.progress import working
        from trainperf.report.details.ranks import files_of, open_all, straggler
        from trainperf.report.html import render, write
        from trainperf.report.text import clean

        path = Path(args.run)
        files = files_of(path) if path.is_dir() else [path]
        output = args.output or str((path / path.resolve().name if path.is_dir() else path).with_suffix(".html"))
        runs, unreadable = open_all(files)
        try:
            with working("drawing the report"):
                about = runs.pop(straggler(runs))
            runs.insert(0, about)
            page = render(about, others=runs[1:], unreadable=unreadable)
        finally:
            for run in runs:
                run.close()
        written = write(page, output, overwrite=args.force)
        for line in unreadable:
            print(f"trainperf report: {clean(line)}", file=sys.stderr)
        print(clean(written))
        return 0
