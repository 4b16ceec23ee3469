"""`trainperf lab -- python train.py`: as it is, in bf16, and compiled; what the jumps between them mean."""

from __future__ import annotations

import argparse
import json
import sys

from trainperf.cli import trial_options
from trainperf.cli.trial_options import INTERRUPTED, UNDECIDED


class Lab:
    name = "lab"
    help = "compare fp32, bf16 and torch.compile on a script"
    description = (
        "Runs a training script, unedited, as it is, under bf16 autocast, and compiled too: samples per second, "
        "memory, and one sentence on what limits it. bf16 changes the numbers: nothing is called the same training. "
        "Exit code 0, 4 where the runs cannot be compared, 1 for an error."
    )
    epilog = """\
examples:
  trainperf lab -- python train.py
  trainperf lab --budget 10m --json -- train.py
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        trial_options.add_options(parser, self.name, budget_s=600.0)
        trial_options.add_script(parser)

    def run(self, args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
        from trainperf.prove.lab import lab
        from trainperf.report import console, lab_console, try_json

        with trial_options.proving(self.name, args, parser) as prover:
            found = lab(prover)
        if args.json:
            json.dump(try_json.of_lab(found), sys.stdout, indent=2, allow_nan=False)
            sys.stdout.write("\n")
        else:
            width = console.terminal_width(sys.stdout)
            console.emit(lab_console.lines(found, width=width), sys.stdout)
        if found.interrupted:
            return INTERRUPTED
        return 0 if all(run.rate for run in found.runs[:2]) else UNDECIDED
