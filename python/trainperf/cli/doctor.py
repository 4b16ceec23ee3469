"""`trainperf doctor`: which probes work here, in which tier, and why not better."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile

_WHAT = {
    "gil_waits": "how long threads wait for the GIL, and for whom",
    "gil_holds": "who holds the GIL; Python against native time",
    "stacks": "functions and lines",
    "throttling": "the container's CPU quota",
    "run_delay": "how long threads are ready, and wait for a CPU",
}


class Doctor:
    name = "doctor"
    help = "say which probes work here, and why others do not"
    description = "Starts every probe for a moment and says how it gets its numbers here."

    epilog = """\
example:
  trainperf doctor                 run it where training will run: in the container, on the node
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        pass

    def run(self, args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
        import trainperf
        from trainperf.report.text import clean

        print(f"trainperf {trainperf.__version__}, Python {platform.python_version()}, {platform.platform()}")
        # A file of our own, since a private one would be made in $TRAINPERF_DIR when that is set, and stay there.
        with tempfile.TemporaryDirectory(prefix="trainperf-") as folder:
            with trainperf.watch(os.path.join(folder, "doctor.tpr"), verbose=False) as watch:
                pass
            if not watch.path:
                print(watch.summary(), file=sys.stderr)
                return 1
            with watch.run as run:
                for probe, tier in sorted(run.tiers.items()):
                    what = f" ({_WHAT[probe]})" if probe in _WHAT else ""
                    print(f"  {probe:<14} {clean(tier.tier)}{': ' + clean(tier.why) if tier.why else ''}{what}")
                for note in run.notes:
                    print(f"  note: {clean(note)}")
        return 0
