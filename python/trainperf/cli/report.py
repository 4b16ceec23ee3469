"""`trainperf report RUN -o a.html`: the report as one HTML file; for a folder, with all its ranks."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


class Report:
    name = "report"
    help = "write a run's report as one HTML file"
    description = (
        "Writes a run's report as one HTML file that loads nothing: to read, to print, to send. "
        "RUN may be a run file, or all ranks of one run: a folder, or a pattern ('a.rank*.tpr')."
    )

    epilog = """\
examples:
  trainperf report a.tpr                     writes a.html
  trainperf report runs/job7 -o job7.html    a folder: a.rank0.tpr, a.rank1.tpr
  trainperf report 'runs/a.rank*.tpr'        of a folder with more than one run
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "run", metavar="RUN", help="a.tpr, or all ranks of one: a folder, or a pattern such as 'a.rank*.tpr'"
        )
        parser.add_argument("-o", "--output", metavar="FILE", help="the HTML file (default: a.html, next to the run)")
        parser.add_argument("-f", "--force", action="store_true", help="overwrite an existing file")

    def run(self, args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
        from trainperf.cli.progress import working
        from trainperf.output import check_target
        from trainperf.ranks import files_of, open_job, ranks, straggler
        from trainperf.report.html import render, write
        from trainperf.report.text import clean

        inputs = files_of(Path(args.run))
        if args.output:  # before the work, too
            check_target(args.output, overwrite=args.force, inputs=inputs)
        with open_job(args.run) as job, working("drawing the report"):
            about = job.runs[straggler(job.runs)]
            page = render(about, ranks=ranks(job.runs, unreadable=job.unreadable))
        target = args.output or _beside(Path(args.run), Path(about.path))
        written = write(page, target, overwrite=args.force, inputs=inputs)
        for line in job.unreadable:
            print(f"trainperf report: {clean(line)}", file=sys.stderr)
        print(clean(written))
        return 0


def _beside(asked: Path, run: Path) -> str:
    """runs/job7/job7.html of a folder, a.html of a.tpr, a.html of a pattern that matches a.rank*.tpr."""
    if asked.is_dir():
        return str(asked / f"{asked.resolve().name}.html")
    if asked.exists():
        return str(asked.with_suffix(".html"))
    return str(run.with_name(run.stem.partition(".rank")[0] + ".html"))
