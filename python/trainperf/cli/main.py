"""Reads the command line and calls the subcommand."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from trainperf.cli.analyze import Analyze
from trainperf.cli.check import Check
from trainperf.cli.command import Command
from trainperf.cli.compare import Compare
from trainperf.cli.completion import Completion
from trainperf.cli.doctor import Doctor
from trainperf.cli.errors import one_line
from trainperf.cli.explain import Explain
from trainperf.cli.export import Export
from trainperf.cli.history import History
from trainperf.cli.lab import Lab
from trainperf.cli.report import Report
from trainperf.cli.run import Run
from trainperf.cli.show import Show
from trainperf.cli.sweep import Sweep
from trainperf.cli.try_ import Try
from trainperf.errors import TrainperfError

OK, ERROR, USAGE, INTERRUPTED = 0, 1, 2, 130


_EPILOG = """\
to begin with:
  trainperf run train.py --epochs 1     train as usual; then the verdict
  trainperf show train-20260102-030405.tpr
  trainperf explain data-starved        what a finding means, and what to do
trainperf COMMAND -h says more, with examples.
"""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Wraps the description, and leaves the examples below it as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, width, indent)


def make_parser() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    import trainperf

    parser = argparse.ArgumentParser(
        prog="trainperf",
        description="Says why PyTorch training is slow.",
        epilog=_EPILOG,
        formatter_class=_Help,
    )
    parser.add_argument("--version", action="version", version=f"trainperf {trainperf.__version__}")
    parser.add_argument("-v", "--verbose", action="count", default=0, help="log progress (-vv: everything)")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    parsers = {}
    for command in COMMANDS:
        sub = subparsers.add_parser(
            command.name,
            help=command.help,
            description=command.description,
            epilog=getattr(command, "epilog", None),
            formatter_class=_Help,
        )
        command.configure(sub)
        parsers[command.name] = sub
    return parser, parsers


COMMANDS: tuple[Command, ...] = (
    Run(),
    Show(),
    Analyze(),
    Report(),
    Check(),
    Compare(),
    Try(),
    Sweep(),
    Lab(),
    Export(),
    History(),
    Explain(),
    Doctor(),
    Completion(make_parser, lambda: {command.name: command.help for command in COMMANDS}),
)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: 0, 1 for an error, 2 for wrong usage; of `run`, the script's own."""
    parser, parsers = make_parser()
    try:
        args, unknown = parser.parse_known_args(argv)
        if unknown:  # said with the usage of the command that was meant
            parsers.get(args.command, parser).error(f"unrecognized arguments: {' '.join(unknown)}")
    except SystemExit as leaving:  # argparse has printed; main() returns instead of leaving
        return leaving.code if isinstance(leaving.code, int) else OK
    if args.verbose:
        logging.basicConfig(level=logging.DEBUG if args.verbose > 1 else logging.INFO, stream=sys.stderr)
    command = next((c for c in COMMANDS if c.name == args.command), None)
    if command is None:
        parser.print_help(sys.stderr)
        return USAGE
    try:
        return command.run(args, parsers[command.name])
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else OK
    except BrokenPipeError:
        # Who reads us has left (| head). Python would complain of it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ERROR
    except KeyboardInterrupt:
        return INTERRUPTED
    except (TrainperfError, OSError, ValueError) as error:
        if args.verbose > 1:
            raise
        print(f"trainperf {command.name}: {one_line(error)}", file=sys.stderr)
        return ERROR
    except Exception as error:  # ours, or of a file that was made to cause it
        if args.verbose > 1:
            raise
        what = f"{type(error).__name__}: {one_line(error)}"[:300]
        where = f"trainperf -vv {command.name} shows where: please report it"
        print(f"trainperf {command.name}: unexpected {what} ({where})", file=sys.stderr)
        return ERROR
