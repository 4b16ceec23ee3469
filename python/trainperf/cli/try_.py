"""`trainperf try -- python train.py`: applies what the findings advise, and proves it or refutes it."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from typing import TYPE_CHECKING

from trainperf.cli import trial_options
from trainperf.cli.trial_options import INTERRUPTED, NOTHING, PROVEN, UNDECIDED
from trainperf.errors import TrainperfError

if TYPE_CHECKING:
    from trainperf.prove.attempt import Result
    from trainperf.prove.changes import Change


class Try:
    name = "try"
    help = "try what the findings advise, and prove it"
    description = (
        "Runs a training script, unedited, for some seconds at a time: first as it is, then with the changes that its "
        "findings advise, in pairs. Says whether each change is faster, by how much, and whether the training is the "
        "same; writes what is proven as a patch. Exit codes: 0 something is proven, 5 nothing to gain, 4 undecided, 1 "
        "an error."
    )
    epilog = """\
examples:
  trainperf try -- python train.py --epochs 3
  trainperf try --budget 10m -- train.py
  trainperf try --change num_workers=4 -- train.py
      this change, whatever the findings say; may be given several times
  trainperf try --from run.tpr -- train.py
  trainperf try --patch my.diff -- train.py
  trainperf try --against "train_new.py" -- train.py
      another script (or other arguments) in place of a change
  trainperf try --json -- train.py | jq .changes
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        trial_options.add_options(parser, self.name, budget_s=300.0)
        parser.add_argument("--change", metavar="NAME=VALUE", action="append", default=[], help="try this change")
        parser.add_argument("--from", dest="run", metavar="RUN", help="try what the findings of this run advise")
        parser.add_argument("--patch", metavar="DIFF", help="try this edit of the script, as git apply takes it")
        parser.add_argument("--against", metavar="COMMAND", help="try this command in place of the script")
        parser.add_argument("--keep", metavar="FOLDER", help="keep a run file of each side of each change")
        parser.add_argument(
            "--html", metavar="FILE", help="also as an HTML page: each change and the script without it"
        )
        trial_options.add_patch(parser)
        trial_options.add_script(parser)

    def run(self, args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
        from trainperf.output import check_target
        from trainperf.prove.attempt import attempt
        from trainperf.prove.changes import Change
        from trainperf.report import console, try_console, try_json

        changes = [Change.parse(text) for text in args.change]
        if args.run:
            changes += advised_by(args.run)
        if args.patch:
            if not os.path.isfile(args.patch):
                raise TrainperfError(f"there is no patch {args.patch}")
            changes.append(Change(patch=os.path.abspath(args.patch)))
        if args.against:
            changes.append(Change(against=tuple(shlex.split(args.against))))
        check_target(args.output, overwrite=args.force, example="fix.patch")
        if args.html:
            check_target(args.html, overwrite=args.force, example="tried.html")
        with trial_options.proving(self.name, args, parser) as prover:
            result = attempt(prover, changes)
        settings = dict(result.accepted.settings)
        patch = trial_options.write_patch(settings, result.loader, args.output, overwrite=args.force)
        if args.json:
            json.dump(
                try_json.to_dict(result, patch=patch.file, note=patch.note), sys.stdout, indent=2, allow_nan=False
            )
            sys.stdout.write("\n")
        else:
            width = console.terminal_width(sys.stdout)
            console.emit(try_console.lines(result, patch=patch.note, width=width), sys.stdout)
        if args.html:
            from trainperf.report import html, try_html

            script = os.path.basename(prover.trials.script)
            page = try_html.render(result, script=script, patch=patch.file, note=patch.note)
            html.write(page, args.html, overwrite=args.force)
        return exit_code(result)


def advised_by(path: str) -> list[Change]:
    """Raises TrainperfError for a run whose findings advise nothing that can be tried."""
    import trainperf
    from trainperf.prove.candidates import candidates

    with trainperf.open(path) as run:
        step_ms = run.wall_ns / max(1, run.step_count) / 1e6
        found = candidates(run.judged.findings, step_ms)
    if not found:
        raise TrainperfError(f"{path}: none of its findings has a fix that can be tried without an edit")
    return found


def exit_code(result: Result) -> int:
    verdicts = {outcome.verdict for outcome in result.outcomes}
    if "proven" in verdicts:
        return PROVEN
    if result.interrupted:
        return INTERRUPTED
    return UNDECIDED if "undecided" in verdicts else NOTHING
