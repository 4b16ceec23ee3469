"""`trainperf compare A B`: what changed from one run to another, and whether it is more than noise."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

SAME, REGRESSED, CANNOT_TELL, DIFFERENT = 0, 3, 4, 5


class Compare:
    name = "compare"
    help = "say what changed from one run to another, and whether it is noise"
    description = (
        "Compares two runs: how much faster or slower the second is, through which causes, and how sure that is. For "
        "jobs of several ranks (folders, or patterns): their mean step, and each rank. "
        "Exit codes: 0 no difference beyond noise, 5 a difference, 4 cannot tell; with --fail-over: 3 a regression, "
        "4 cannot tell, 0 otherwise."
    )
    epilog = """\
examples:
  trainperf compare before.tpr after.tpr
  trainperf compare before/ after/      all ranks of two jobs, by their numbers
  trainperf compare main.tpr branch.tpr --fail-over 5%
      in CI: exit code 3 when 5% slower, beyond noise
  trainperf compare before.tpr after.tpr -o changed.html
  trainperf compare before.tpr after.tpr --json | jq .causes.data_wait
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "before", metavar="A", help="the run to compare with: a.tpr, or a folder or pattern of its ranks"
        )
        parser.add_argument("after", metavar="B", help="the run to judge, likewise")
        parser.add_argument("more", nargs="*", default=(), help=argparse.SUPPRESS)  # a pattern that the shell took
        why = "exit with 3 if B is slower by this much (5%%), beyond noise"
        parser.add_argument("--fail-over", metavar="PERCENT", type=share, help=why)
        why = "by how much two runs of one program differ on this machine if nothing else runs (default: 5%%)"
        parser.add_argument("--noise", metavar="PERCENT", type=share, help=why)
        parser.add_argument("-o", "--output", metavar="FILE", help="also write one HTML file")
        parser.add_argument("-f", "--force", action="store_true", help="overwrite an existing file")
        parser.add_argument("--json", action="store_true", help="as JSON, see docs/compare.md")
        parser.add_argument("--seed", type=int, default=0, help="seed of the bootstrap (default: 0)")

    def run(self, args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
        from trainperf.cli.progress import working
        from trainperf.comparison import compare_jobs
        from trainperf.output import check_target
        from trainperf.ranks import files_of, open_job
        from trainperf.report import compare_console, compare_json, console
        from trainperf.report.text import clean

        if args.more:
            parser.error("compare takes two: quote a pattern, as in trainperf compare 'a.rank*.tpr' 'b.rank*.tpr'")
        inputs = [*files_of(Path(args.before)), *files_of(Path(args.after))] if args.output else []
        if args.output:  # before the work, too
            check_target(args.output, overwrite=args.force, inputs=inputs)
        with open_job(args.before) as before, open_job(args.after) as after, working("comparing"):
            comparison = compare_jobs(before, after, seed=args.seed, between_runs=args.noise)
        for line in (*before.unreadable, *after.unreadable):
            print(f"trainperf compare: {clean(line)}", file=sys.stderr)
        if args.output:
            from trainperf.report import compare_html, html

            html.write(compare_html.render(comparison), args.output, overwrite=args.force, inputs=inputs)
        if args.json:
            json.dump(compare_json.to_dict(comparison), sys.stdout, indent=2, allow_nan=False)
            sys.stdout.write("\n")
        else:
            console.emit(compare_console.lines(comparison, width=console.terminal_width(sys.stdout)), sys.stdout)
        sys.stdout.flush()
        if args.fail_over is not None and comparison.regressed(args.fail_over):
            why = f"slower by {args.fail_over:.2%} or more, as --fail-over asks".replace(".00%", "%")
            print(f"trainperf compare: {why}", file=sys.stderr)
            return REGRESSED
        if comparison.kind == "unknown":
            return CANNOT_TELL
        return SAME if comparison.kind == "same" or args.fail_over is not None else DIFFERENT


def share(text: str) -> float:
    """ "5%", "5 %" or "5": 0.05."""
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 < value < 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage: write 5%, or 2.5%")
    return value / 100
