"""`trainperf run train.py ...`: an unmodified script or module, watched, in this process."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from trainperf.errors import TrainperfError
from trainperf.program import of_module, of_script

if TYPE_CHECKING:
    from trainperf.watch import Watch

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Run:
    name = "run"
    help = "run a training script and say why it is slow"
    description = (
        "Runs a script (or a module with -m) as python would, watches its training loop, and prints the verdict at the "
        "end. The exit code is the script's."
    )

    epilog = """\
examples:
  trainperf run train.py --epochs 3
  trainperf run -o runs/ --name resnet train.py
      a new file in runs/; says when it is slower than the last five
  trainperf run -m package.train --lr 0.1
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = "trainperf run [-o FILE] [--name NAME] [-f] (SCRIPT | -m MODULE) ..."
        parser.add_argument("-o", "--output", metavar="FILE", help="the run file (default: SCRIPT-DATE-TIME.tpr)")
        parser.add_argument("--name", help="the run's name in reports")
        parser.add_argument("-f", "--force", action="store_true", help="overwrite an existing run file")
        # A flag, not an option with a value: so that everything from the module's name on is the script's own.
        parser.add_argument("-m", dest="module", action="store_true", help="run a module, as python -m does")
        parser.add_argument("script", nargs=argparse.REMAINDER, help="the script and its arguments")

    def run(self, args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
        import trainperf

        words = list(args.script)
        if words and words[0] == "--":
            words = words[1:]
        if not words:
            parser.error("say which script to run, or which module with -m")
        target, arguments = words[0], words[1:]
        if target.startswith("-"):
            parser.error(f"{target} is not an option of trainperf run; options come before the script")
        program = of_module(target) if args.module else of_script(target)
        path = args.output
        if path is None and not os.environ.get("TRAINPERF_DIR"):
            path = f"{Path(target).stem or 'run'}-{time.strftime('%Y%m%d-%H%M%S')}.tpr"
        program.become_main(arguments)
        watch = trainperf.watch(path, name=args.name, overwrite=args.force)
        watch.gives_way = True
        with _Outcome() as outcome, watch:
            outcome.started = True
            try:
                exec(program.code(), program.module.__dict__)
            except SystemExit as leaving:
                if _only_read_arguments(leaving, arguments) and _nobody_trained(watch):
                    watch.leave_no_run("the script ended as it read its arguments")
                raise
        if args.output and watch.gave_way:
            print(f"trainperf run: {target} watches itself, so {args.output} was not written", file=sys.stderr)
        return outcome.code


class _Outcome:
    """Turns how the script ended into an exit code, and shows its exception as python would: without our frames."""

    def __init__(self) -> None:
        self.code = 0
        self.started = False  # before that, an error is trainperf's own

    def __enter__(self) -> _Outcome:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if error is None or kind is None or not self.started:
            return False
        if isinstance(error, SystemExit):
            self.code = _exit_code(error)
            return True
        stripped = _without_our_frames(traceback)
        error.__traceback__ = stripped
        sys.last_type, sys.last_value, sys.last_traceback = kind, error, stripped
        if sys.version_info >= (3, 12):
            sys.last_exc = error
        sys.excepthook(kind, error, stripped)
        self.code = 130 if isinstance(error, KeyboardInterrupt) else 1
        return True


def _only_read_arguments(leaving: SystemExit, arguments: Sequence[str]) -> bool:
    """Whether that was the script's --help, or argparse refusing an argument: then nobody asks why training is slow."""
    if {"-h", "--help"}.intersection(arguments):
        return True
    innermost = leaving.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    return innermost is not None and innermost.tb_frame.f_globals.get("__name__") == "argparse"


def _nobody_trained(watch: Watch) -> bool:
    """Asked of the run file: the first steps of a run close late, all of a short one at its end."""
    if not (watch.running and watch.path):
        return False
    try:
        with watch.run as run:
            return run.meta.get("step_thread", "0") == "0"
    except TrainperfError:
        return False  # the end of the watch tells what is wrong with the file


def _exit_code(leaving: SystemExit) -> int:
    """As python's own: None is success, a number is the code, anything else is printed and 1."""
    if leaving.code is None:
        return 0
    if isinstance(leaving.code, int):
        return leaving.code & 0xFF
    print(leaving.code, file=sys.stderr)
    return 1


def _without_our_frames(traceback: TracebackType | None) -> TracebackType | None:
    """From the script's first frame on. Frames of ours further in (a wrapped function) stay: they are the truth."""
    first = traceback
    while first is not None and first.tb_frame.f_code.co_filename.startswith((_HERE, "<frozen")):
        first = first.tb_next
    return first
