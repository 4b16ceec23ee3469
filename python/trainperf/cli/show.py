"""`trainperf show RUN`: the verdict of a run file, its findings, and the same as JSON."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys


class Show:
    name = "show"
    help = "show what a run file says"
    description = (
        "Shows the verdict of a run, its findings with their evidence, and the checks that were skipped. With several "
        "ranks (a folder, or a pattern): compares the ranks, and shows the straggler in detail."
    )

    epilog = """\
examples:
  trainperf show a.tpr
  trainperf show runs/job7                 all ranks: which is slow, and why
  trainperf show a.tpr --json | jq .verdict.text
  trainperf show a.tpr --json --steps | jq '.per_step | max_by(.wall_ns)'
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "run", metavar="RUN", help="a.tpr, or all ranks of one: a folder, or a pattern such as 'a.rank*.tpr'"
        )
        parser.add_argument("--json", action="store_true", help="as JSON, see docs/show-json.md")
        parser.add_argument("--steps", action="store_true", help="with --json: every step too")

    def run(self, args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
        from trainperf.cli.progress import working
        from trainperf.ranks import open_job, ranks, straggler
        from trainperf.report import console, model, ranks_console
        from trainperf.report import json as as_json
        from trainperf.report.text import clean

        if args.steps and not args.json:
            parser.error("--steps needs --json")
        with open_job(args.run) as job:
            with working("reading the run"):
                run = job.runs[straggler(job.runs)]
                beside = ranks(job.runs, unreadable=job.unreadable)
                report = model.build(run, standing=beside.standing(run) if beside is not None else "")
                if beside is not None:  # "More" names what shows them all, not one of the files
                    report = dataclasses.replace(report, path=args.run)
            if args.json:
                document = as_json.to_dict(report, ranks=beside)
                if args.steps:
                    document["per_step"] = as_json.per_step(run)
                json.dump(document, sys.stdout, indent=None if args.steps else 2, allow_nan=False)
                sys.stdout.write("\n")
            else:
                width = console.terminal_width(sys.stdout)
                above = ranks_console.lines(beside, run, width=width) if beside is not None else []
                console.emit(above + console.show_lines(report, width=width), sys.stdout)
        sys.stdout.flush()
        for line in job.unreadable:
            print(f"trainperf show: {clean(line)}", file=sys.stderr)
        return 0
