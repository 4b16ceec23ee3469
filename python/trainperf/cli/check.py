"""`trainperf check RUN`: which settings cost time in a run, which may, and which are fine."""

from __future__ import annotations

import argparse
import json
import sys


class Check:
    name = "check"
    help = "list settings, with what each costs in a run"
    description = (
        "Lists settings that make a training slow or may end it: debug modes, profilers, thread counts, loaders, "
        "optimizers, limits. Each is wrong with its price from this run, wrong without a known price, a risk, fine, or "
        "not seen. Of several ranks it reads the straggler."
    )

    epilog = """\
examples:
  trainperf run -o a.tpr train.py --epochs 1 && trainperf check a.tpr
  trainperf check a.tpr --json | jq '.settings[] | select(.state == "costs")'
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", metavar="RUN", help="a.tpr, or all ranks of one: a folder, or a pattern")
        parser.add_argument("--json", action="store_true", help="as JSON, see docs/check.md")

    def run(self, args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
        from trainperf.cli.progress import working
        from trainperf.findings.facts import Facts
        from trainperf.findings.rules.settings import check
        from trainperf.ranks import open_job, straggler
        from trainperf.report import check_console, console, model
        from trainperf.report.text import clean

        with open_job(args.run) as job:
            with working("reading the run"):
                run = job.runs[straggler(job.runs)]
                report = model.build(run)
                checked = check(Facts(run), report.findings, report.abstained)
            if args.json:
                json.dump(check_console.to_dict(report, checked), sys.stdout, indent=2, allow_nan=False)
                sys.stdout.write("\n")
            else:
                width = console.terminal_width(sys.stdout)
                console.emit(check_console.lines(report, checked, width=width), sys.stdout)
        sys.stdout.flush()
        for line in job.unreadable:
            print(f"trainperf check: {clean(line)}", file=sys.stderr)
        return 0
