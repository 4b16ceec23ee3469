"""`trainperf show RUN`: the verdict of a run file, its findings, and the same as JSON."""

from __future__ import annotations

import argparse
import json
import sys


class Show:
    name = "show"
    help = "show what a run file says"
    description = "Shows the verdict of a run, its findings with their evidence, and what could not be looked at."

    epilog = """\
examples:
  trainperf show a.tpr
  trainperf show a.tpr --json | jq .verdict.text
  trainperf show a.tpr --json --steps | jq '.per_step | max_by(.wall_ns)'
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", metavar="RUN", help="a run file (a.tpr)")
        parser.add_argument("--json", action="store_true", help="as JSON, see docs/show-json.md")
        parser.add_argument("--steps", action="store_true", help="with --json: every step too")

    def run(self, args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
        from trainperf.cli.progress import working
        from trainperf.report import console, model
        from trainperf.report import json as as_json
        from trainperf.run import Run

        if args.steps and not args.json:
            parser.error("--steps needs --json")
        with Run(args.run) as run:
            with working("reading the run"):
                report = model.build(run)
            if args.json:
                document = as_json.to_dict(report)
                if args.steps:
                    document["per_step"] = as_json.per_step(run)
                json.dump(document, sys.stdout, indent=None if args.steps else 2, allow_nan=False)
                sys.stdout.write("\n")
            else:
                console.emit(console.show_lines(report, width=console.terminal_width(sys.stdout)), sys.stdout)
        sys.stdout.flush()
        return 0
