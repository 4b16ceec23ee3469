"""`trainperf export RUN -o FILE`: a run for other programs; the file's name gives the format."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from trainperf.errors import RunFileError, TrainperfError
from trainperf.export import FORMATS, Format, choose


class Export:
    name = "export"
    help = "write a run for other programs: Parquet, CSV, JSON, Perfetto, TensorBoard ..."
    description = "Writes a run in another format, chosen by the file name or by --format."
    epilog = "formats, with the ending that chooses them:\n"
    epilog += "".join(
        f"  {f.name:<12} {''.join(f.suffixes[:1]) or '-':<9} {f.what}{f.option and '; '}{f.option}\n" for f in FORMATS
    )
    epilog += """
examples:
  trainperf export a.tpr -o steps.parquet
  trainperf export a.tpr -o timeline.json.gz     open it in ui.perfetto.dev
  trainperf export runs/*.tpr -o steps/          Parquet, for DuckDB or Spark
  trainperf export a.tpr --format tensorboard -o logs
  trainperf export a.tpr --format mlflow -o sqlite:///mlflow.db
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", metavar="RUN", nargs="+", help="a run file (a.tpr); several for a folder")
        parser.add_argument("-o", "--output", metavar="FILE", required=True, help="where to write, such as t.json.gz")
        parser.add_argument(
            "--format",
            choices=[f.name for f in FORMATS],
            metavar="FORMAT",
            help="one of those below, for any file name",
        )
        parser.add_argument("-f", "--force", action="store_true", help="overwrite existing files")

    def run(self, args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
        from trainperf.cli.progress import working
        from trainperf.report.text import clean

        chosen = choose(args.output, args.format)
        if len(args.run) > 1 and chosen.into == "file":
            raise TrainperfError(f"{args.output} holds one run: give a folder (steps/), or export one by one")
        status = 0
        for number, path in enumerate(args.run):
            with working("exporting") as at:
                at(f"{number} of {len(args.run)}" if len(args.run) > 1 else "")
                written, damage = _write(path, args.output, chosen, args.force, args.run)
            print(f"wrote {clean(written)} ({chosen.name})", file=sys.stderr)
            if damage:
                print(f"trainperf export: {clean(damage)}; what this format needs could be read", file=sys.stderr)
                status = 1
        return status


def _no_database_of(uri: str, inputs: Sequence[str]) -> None:
    """Raises TrainperfError for sqlite:///a.tpr: a tracking service would make its tables in the run file."""
    from trainperf.output import check_target

    scheme, _, rest = uri.partition("://")
    if scheme.startswith("sqlite"):
        for name in {rest.partition("?")[0].removeprefix("/"), rest.partition("?")[0]}:
            if name and os.path.isfile(name):
                check_target(name, overwrite=True, inputs=inputs)


def _write(path: str, output: str, chosen: Format, force: bool, inputs: Sequence[str]) -> tuple[str, str]:
    """The place, and which parts of the run are damaged; "" for none."""
    from trainperf.output import check_target, exists_already
    from trainperf.run import Run

    with Run(path) as run:
        place = chosen.place(run, output)
        if place and chosen.one_file:
            check_target(place, overwrite=force, inputs=inputs)
        elif place and os.path.lexists(place):
            if not os.path.isdir(place):
                raise TrainperfError(f"{place} is not a folder, and {chosen.name} needs one: give another name")
            if not force:
                raise exists_already(place)
        elif chosen.into == "service":
            _no_database_of(output, inputs)
        chosen.write(run, output)
        try:
            run.check()
        except RunFileError as error:
            return place or output, str(error)
    return place or output, ""
