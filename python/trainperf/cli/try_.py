"""`trainperf try -- python train.py`: applies what the findings advise, and proves it or refutes it."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trainperf.errors import TrainperfError

if TYPE_CHECKING:
    from trainperf.prove.attempt import Result

PROVEN, UNDECIDED, NOTHING, INTERRUPTED = 0, 4, 5, 130
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "": 1}


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
  trainperf try --against "train_new.py" -- train.py
      another script (or other arguments) in place of a change
  trainperf try --json -- train.py | jq .changes
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = "trainperf try [options] -- [python] (SCRIPT | -m MODULE) ..."
        parser.add_argument(
            "--budget", metavar="TIME", type=duration, default=300.0, help="at most: 90s, 10m (default 5m)"
        )
        parser.add_argument("--change", metavar="NAME=VALUE", action="append", default=[], help="try this change")
        parser.add_argument("--against", metavar="COMMAND", help="try this command in place of the script")
        writes = parser.add_mutually_exclusive_group()
        writes.add_argument(
            "--sandbox", action="store_true", help="refuse to run where what trials write cannot be discarded"
        )
        writes.add_argument(
            "--allow-writes", action="store_true", help="let trials write the files that the script writes"
        )
        parser.add_argument(
            "-o", "--output", metavar="FILE", default="fix.patch", help="the patch (default: fix.patch)"
        )
        parser.add_argument("-f", "--force", action="store_true", help="overwrite a patch that exists")
        parser.add_argument("--json", action="store_true", help="as JSON, see docs/prove.md")
        parser.add_argument("script", nargs=argparse.REMAINDER, help="the script and its arguments")

    def run(self, args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
        from trainperf.output import check_target
        from trainperf.prove.attempt import Attempt
        from trainperf.prove.changes import Change
        from trainperf.prove.trial import Command, Trials, ends_on_sigterm
        from trainperf.report import console, try_console, try_json

        words = args.script[1:] if args.script[:1] == ["--"] else list(args.script)
        if not words:
            parser.error("say which script to try: trainperf try -- python train.py")
        command = Command.parse(words)
        if not command.module and not os.path.exists(command.target):
            raise TrainperfError(f"there is no script {command.target}")
        changes = [Change.parse(text) for text in args.change]
        if args.against:
            changes.append(Change(against=tuple(shlex.split(args.against))))
        check_target(args.output, overwrite=args.force, example="fix.patch")
        writes = "sandbox" if args.sandbox else "allow" if args.allow_writes else "auto"

        def say(text: str) -> None:
            print(f"trainperf try: {text}", file=sys.stderr, flush=True)

        with ends_on_sigterm(), Trials(command, writes=writes) as trials:
            result = Attempt(trials, budget_s=args.budget, say=say).run(changes)
        patch, note = self._patch(result, args)
        if args.json:
            json.dump(try_json.to_dict(result, patch=patch), sys.stdout, indent=2, allow_nan=False)
            sys.stdout.write("\n")
        else:
            width = console.terminal_width(sys.stdout)
            console.emit(try_console.lines(result, patch=patch, patch_note=note, width=width), sys.stdout)
        return exit_code(result)

    def _patch(self, result: Result, args: argparse.Namespace) -> tuple[str, str]:
        """(its file, ""), or ("", why there is none); both empty where nothing is proven."""
        from trainperf.output import replacing
        from trainperf.prove import patch

        arguments = result.accepted.of_loader
        others = [f"{n}={v}" for n, v in result.accepted.settings if n not in arguments]
        if not arguments or result.loader is None:
            return "", f"set {', '.join(others)} yourself" if others else ""
        call = patch.user_call(result.loader["chain"])
        wanted = ", ".join(f"{n}={v!r}" for n, v in arguments.items())
        if call is None:
            maker = os.path.basename(result.loader["chain"][0][0]) if result.loader["chain"] else "another library"
            return "", f"{maker} makes the loader: set {wanted} where you configure it"
        why = patch.why_no_libcst()
        if why:
            return "", f"{why}; or by hand, at {os.path.relpath(call[0])}:{call[1]}: DataLoader(..., {wanted})"
        try:
            text = patch.diff(*call, arguments, kind=result.loader["class"], base=os.getcwd())
        except TrainperfError as error:
            return "", f"{error}: DataLoader(..., {wanted})"
        with replacing(args.output, overwrite=args.force, example="fix.patch") as made:
            Path(made).write_bytes(text.encode())
        return args.output, ""


def exit_code(result: Result) -> int:
    verdicts = {outcome.verdict for outcome in result.outcomes}
    if "proven" in verdicts:
        return PROVEN
    if result.interrupted:
        return INTERRUPTED
    return UNDECIDED if "undecided" in verdicts else NOTHING


def duration(text: str) -> float:
    """ "90s", "10m", "1h" or "90": seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if match is None or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write 90s, or 10m")
    return float(match[1]) * _UNITS[match[2]]
