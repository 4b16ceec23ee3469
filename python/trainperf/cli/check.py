"""`trainperf check RUN`, or `-- python train.py`: which settings cost time, which may, and which are fine."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainperf.cli import trial_options

if TYPE_CHECKING:
    from trainperf.run import Run

_FORMS = "trainperf check [options] RUN\n       trainperf check [options] -- [python] (SCRIPT | -m MODULE) ..."


class Check:
    name = "check"
    help = "list settings, with what each costs in a run"
    description = (
        "Lists settings that make a training slow or may end it: debug modes, profilers, thread counts, loaders, "
        "optimizers, limits. Each is wrong with its price from this run, wrong without a known price, a risk, fine, or "
        "not seen. Of several ranks it reads the straggler. A script is run, unedited, until it has trained for five "
        "seconds; what it writes until then is discarded."
    )

    epilog = """\
examples:
  trainperf check -- python train.py --epochs 3
  trainperf run -o a.tpr train.py --epochs 1 && trainperf check a.tpr
  trainperf check --json a.tpr | jq '.settings[] | select(.state == "costs")'
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        trial_options.add_options(parser, self.name, budget_s=300.0, page="check")
        parser.usage = _FORMS
        what = "a.tpr, or all ranks of one: a folder, or a pattern; or, after --, a script and its arguments"
        parser.add_argument("words", nargs="*", metavar="RUN", help=what)

    def run(self, args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
        if is_script(args.words):
            args.script = args.words
            with trial_options.proving(self.name, args, parser) as prover:
                file = prover.watch(more=False).trial.run_file
                return _of_file(file, as_json=args.json, named=args.words)
        if len(args.words) != 1:
            parser.error("give one RUN, or a script after --: trainperf check -- python train.py")
        return _of_file(args.words[0], as_json=args.json)


def is_script(words: Sequence[str]) -> bool:
    """Whether they are a command that trains, and no run file."""
    first = words[0] if words else ""
    return first == "-m" or first.endswith(".py") or os.path.basename(first).startswith("python")


def _of_file(pattern: str, *, as_json: bool, named: Sequence[str] = ()) -> int:
    """`named`: the command that was run for it, whose run file is not kept."""
    from trainperf.cli.progress import working
    from trainperf.ranks import open_job, straggler
    from trainperf.report.text import clean

    with open_job(pattern) as job:
        with working("reading the run"):
            run = job.runs[straggler(job.runs)]
        _say(run, as_json=as_json, named=named)
    for line in job.unreadable:
        print(f"trainperf check: {clean(line)}", file=sys.stderr)
    return 0


def _say(run: Run, *, as_json: bool, named: Sequence[str]) -> None:
    from trainperf.findings.facts import Facts
    from trainperf.findings.rules.settings import check
    from trainperf.report import check_console, console, model

    report = model.build(run)
    checked = check(Facts(run), report.findings, report.abstained)
    if as_json:
        of_run = check_console.to_dict(report, checked)
        json.dump({**of_run, "run": " ".join(named) or of_run["run"]}, sys.stdout, indent=2, allow_nan=False)
        sys.stdout.write("\n")
    else:
        width = console.terminal_width(sys.stdout)
        console.emit(check_console.lines(report, checked, width=width), sys.stdout)
    sys.stdout.flush()
