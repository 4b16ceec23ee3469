"""`trainperf export RUN -o FILE`: a run for other programs; the file's name tells the format."""

from __future__ import annotations

import argparse
import os
import sys

from trainperf.errors import TrainperfError
from trainperf.export import FORMATS, choose


class Export:
    name = "export"
    help = "write a run for other programs: a Perfetto timeline ..."
    description = "Writes a run in another format. The name of the file tells which: " + "; ".join(
        f"{', '.join(f.suffixes)}: {f.what}" for f in FORMATS
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", metavar="RUN", help="a run file (a.tpr)")
        parser.add_argument("-o", "--output", metavar="FILE", required=True, help="where to write, such as t.json.gz")
        parser.add_argument("--format", choices=[f.name for f in FORMATS], help="whatever the file's name says")
        parser.add_argument("-f", "--force", action="store_true", help="overwrite what exists")

    def run(self, args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
        from trainperf.run import Run

        path: str = args.output
        chosen = choose(path, args.format)
        if os.path.lexists(path) and not args.force:
            raise TrainperfError(f"{path} exists: use -f to overwrite it, or give another name")
        with Run(args.run) as run:
            if os.path.exists(path) and os.path.samefile(path, args.run):
                raise TrainperfError(f"{path} is the run itself: give another name")
            chosen.write(run, path)
        print(f"wrote {path} ({chosen.name})", file=sys.stderr)
        return 0
