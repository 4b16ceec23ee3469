"""What `try`, `sweep` and `lab` have in common: the script after --, the budget, and what trials may write."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trainperf.errors import TrainperfError

if TYPE_CHECKING:
    from trainperf.prove.prover import Prover

PROVEN, UNDECIDED, NOTHING, INTERRUPTED = 0, 4, 5, 130
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "": 1}


def add_options(parser: argparse.ArgumentParser, name: str, *, budget_s: float, page: str = "prove") -> None:
    parser.usage = f"trainperf {name} [options] -- [python] (SCRIPT | -m MODULE) ..."
    why = f"take at most this long: 90s, 10m (default {budget_s / 60:g}m)"
    parser.add_argument("--budget", metavar="TIME", type=duration, default=budget_s, help=why)
    writes = parser.add_mutually_exclusive_group()
    why = "refuse to run where what trials write cannot be discarded"
    writes.add_argument("--sandbox", action="store_true", help=why)
    why = "let trials write the files that the script writes"
    writes.add_argument("--allow-writes", action="store_true", help=why)
    parser.add_argument("--json", action="store_true", help=f"as JSON, see docs/{page}.md")


def add_script(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("script", nargs=argparse.REMAINDER, help="the script and its arguments")


def add_patch(parser: argparse.ArgumentParser) -> None:
    why = "the patch (default: fix.patch)"
    parser.add_argument("-o", "--output", metavar="FILE", default="fix.patch", help=why)
    parser.add_argument("-f", "--force", action="store_true", help="overwrite a patch that exists")


@contextlib.contextmanager
def proving(name: str, args: argparse.Namespace, parser: argparse.ArgumentParser) -> Iterator[Prover]:
    """What runs the trials. Raises TrainperfError where there is no such script."""
    from trainperf.prove.prover import Prover
    from trainperf.prove.trial import Command, Trials, ends_on_sigterm

    words = args.script[1:] if args.script[:1] == ["--"] else list(args.script)
    if not words:
        parser.error(f"say which script to try: trainperf {name} -- python train.py")
    command = Command.parse(words)
    if not command.module and not os.path.exists(command.target):
        raise TrainperfError(f"there is no script {command.target}")
    writes = "sandbox" if args.sandbox else "allow" if args.allow_writes else "auto"

    def say(text: str) -> None:
        print(f"trainperf {name}: {text}", file=sys.stderr, flush=True)

    with ends_on_sigterm(), Trials(command, writes=writes) as trials:
        yield Prover(trials, budget_s=args.budget, say=say, keep=getattr(args, "keep", None) or "")


@dataclass(frozen=True, slots=True)
class Patch:
    """What is proven, as a file; or why there is none, "" where nothing is proven."""

    file: str = ""
    note: str = ""  # how it is applied, or why there is none, and what else to set


def write_patch(
    settings: Mapping[str, Any], loader: Mapping[str, Any] | None, output: str, *, overwrite: bool = False
) -> Patch:
    from trainperf.output import by_options, replacing
    from trainperf.prove import patch
    from trainperf.prove.changes import Change, implied_by

    change = Change(tuple(settings.items()))
    arguments, others = change.of_loader, change.by_hand
    if not arguments or loader is None:
        return Patch(note=f"none: {others}" if others else "")
    call = patch.user_call(loader["chain"])
    now = loader.get("options", {})
    by_hand = arguments | {n: v for n, v in implied_by(arguments).items() if now.get(n, v) != v}
    wanted = ", ".join(f"{name}={value!r}" for name, value in by_hand.items())
    if call is None and loader["chain"] and f"{os.sep}transformers{os.sep}" in loader["chain"][0][0]:
        named = ", ".join(f"dataloader_{name}={value!r}" for name, value in by_hand.items())
        return Patch(note=f"none: Trainer makes the loader: TrainingArguments(..., {named})")
    if call is None:
        maker = os.path.basename(loader["chain"][0][0]) if loader["chain"] else "another library"
        return Patch(note=f"none: {maker} makes the loader: set {wanted} where you configure it")
    place = f"{os.path.relpath(call[0])}:{call[1]}"
    edit = f"set {wanted} where DataLoader is called: {place}"
    why = patch.why_no_libcst()
    if why:
        return Patch(note=f"none: {why}; or {edit}")
    try:
        text = patch.diff(*call, arguments, kind=loader["class"])
        with replacing(output, overwrite=overwrite, example="fix.patch") as made:
            Path(made).write_bytes(text)
    except Exception as error:  # of the file, or of a library that reads it: no reason to lose what was found
        kind = "" if isinstance(error, TrainperfError | OSError) else f"{type(error).__name__}: "
        return Patch(note=f"none: {kind}{by_options(' '.join(str(error).split()))}; {edit}")
    base = patch.base_of(call[0])
    apply = f"git apply {output}" if base == os.getcwd() else f"git -C {base} apply {os.path.abspath(output)}"
    note = f"{output}: {apply}" + (f"; and {others}" if others else "")
    count = loader.get("beside", 0)
    if count:
        them, get = ("another loader", "gets") if count == 1 else (f"{count} other loaders", "get")
        note += f"; the call at {place} also makes {them}, which {get} {wanted} too: no trial tested that"
    return Patch(output, note)


def duration(text: str) -> float:
    """ "90s", "10m", "1h" or "90": seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if match is None or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write 90s, or 10m")
    return float(match[1]) * _UNITS[match[2]]
