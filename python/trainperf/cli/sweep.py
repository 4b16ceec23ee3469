"""`trainperf sweep -- python train.py`: the best setting of the data loader, and how much there is to gain at most."""

from __future__ import annotations

import argparse
import json
import sys

from trainperf.cli import trial_options
from trainperf.cli.trial_options import INTERRUPTED, NOTHING, PROVEN, UNDECIDED


class Sweep:
    name = "sweep"
    help = "find the data loader's best number of workers"
    description = (
        "Measures the most that data loading can save, predicts the step for each number of workers from what a batch "
        "costs, tries the few best, and proves the cheapest within 2% of the best in pairs of runs. Exit codes as of "
        "trainperf try."
    )
    epilog = """\
examples:
  trainperf sweep -- python train.py
  trainperf sweep --data-only -- train.py
      the loader alone: samples/s for each number of workers
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        trial_options.add_options(parser, self.name, budget_s=300.0)
        why = "read the loader without training: no proof, no patch"
        parser.add_argument("--data-only", action="store_true", help=why)
        trial_options.add_patch(parser)
        trial_options.add_script(parser)

    def run(self, args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
        from trainperf.output import check_target
        from trainperf.prove.sweep import sweep
        from trainperf.report import console, sweep_console, try_json

        if not args.data_only:
            check_target(args.output, overwrite=args.force, example="fix.patch")
        with trial_options.proving(self.name, args, parser) as prover:
            found = sweep(prover, data_only=args.data_only)
        best = dict(found.best.settings) if found.best is not None else {}
        patch = trial_options.write_patch(best, found.loader, args.output, overwrite=args.force)
        if args.json:
            json.dump(
                try_json.of_sweep(found, patch=patch.file, note=patch.note), sys.stdout, indent=2, allow_nan=False
            )
            sys.stdout.write("\n")
        else:
            width = console.terminal_width(sys.stdout)
            console.emit(sweep_console.lines(found, patch=patch.note, width=width), sys.stdout)
        if found.best is not None or args.data_only:
            return PROVEN
        if found.interrupted:
            return INTERRUPTED
        return UNDECIDED if found.outcome is not None and found.outcome.verdict == "undecided" else NOTHING
