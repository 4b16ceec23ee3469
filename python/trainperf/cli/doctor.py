"""`trainperf doctor`: which probes work here, in which tier, and why not better."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from typing import Any

_WHAT = {
    "gil_waits": "how long threads wait for the GIL, and for whom",
    "interpreter_waits": "without a GIL: stop-the-world pauses, and waits for locks of objects",
    "gil_holds": "who holds the GIL; Python against native time",
    "stacks": "functions and lines",
    "throttling": "the container's CPU quota",
    "cuda": "what GPUs do, in all steps or in windows of them",
    "nvml": "clocks, power and heat of GPUs, once the program uses one",
    "run_delay": "how long threads are ready, and wait for a CPU",
}


class Doctor:
    name = "doctor"
    help = "say which probes work here, and why others do not"
    description = "Starts every probe for a moment and says how it gets its numbers here."

    epilog = """\
example:
  trainperf doctor            run it where training runs: in its container
  trainperf doctor --json | jq .tiers.gil_waits
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="as JSON")

    def run(self, args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
        import trainperf
        from trainperf import core
        from trainperf.cli.progress import working
        from trainperf.report.text import clean

        found: dict[str, Any] = {
            "trainperf": trainperf.__version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
        }
        with working("importing torch"):
            found["torch"] = _torch()
        # A file of our own, since a private one would be made in $TRAINPERF_DIR when that is set, and stay there.
        with tempfile.TemporaryDirectory(prefix="trainperf-") as folder:
            with trainperf.watch(os.path.join(folder, "doctor.tpr"), verbose=False) as watch:
                pass
            if not watch.path:
                print(watch.summary(), file=sys.stderr)
                return 1
            with watch.run as run:
                tiers = {probe: {"tier": tier.tier, "why": tier.why} for probe, tier in sorted(run.tiers.items())}
                stale = [core.STALE] if core.is_stale(core.load()) else []
                found |= {"tiers": tiers, "notes": [*stale, *run.notes]}
        if args.json:
            json.dump(found, sys.stdout, indent=2)
            print()
            return 0
        print("trainperf {trainperf}, Python {python}, torch {torch}, {platform}".format(**found))
        longest = max(map(len, tiers), default=0)
        for probe, tier in tiers.items():
            what = f" ({_WHAT[probe]})" if probe in _WHAT else ""
            print(f"  {probe:<{longest}} {clean(tier['tier'])}{': ' + clean(tier['why']) if tier['why'] else ''}{what}")
        for note in found["notes"]:
            print(f"  note: {clean(note)}")
        return 0


def _torch() -> str:
    """Its version. Imported as a training would, so that its hooks and its CUPTI are checked."""
    try:
        import torch
    except Exception as error:  # a broken installation says so in many ways
        return f"(none: {type(error).__name__}: {' '.join(str(error).split())[:200]})"
    return str(torch.__version__)
