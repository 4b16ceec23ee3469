"""`trainperf explain TP101`: the page of a finding; without an id, the list of all."""

from __future__ import annotations

import argparse
import difflib
import sys
from importlib import resources

from trainperf.errors import TrainperfError


def page(id: str) -> str:
    """The text of docs/findings/<id>.md, as shipped in the package."""
    file = resources.files("trainperf") / "docs" / "findings" / f"{id}.md"
    try:
        return file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise TrainperfError(f"the page of {id} is missing from this installation: install trainperf again") from error


class Explain:
    name = "explain"
    help = "explain a finding, such as TP101"
    description = (
        "Explains a finding: what it means, how it is measured, how sure it is, what to do. Without: lists all."
    )

    epilog = """\
examples:
  trainperf explain                list all findings
  trainperf explain TP201          or by name: trainperf explain gil-hog
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("id", metavar="ID", nargs="?", help="an id or a name: TP101, data-starved")

    def run(self, args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
        from trainperf.findings.rules import ALL

        rules = sorted(ALL, key=lambda r: r.id)
        if args.id is None:
            for rule in rules:
                title = page(rule.id).splitlines()[0].lstrip("# ")
                print(title)
            return 0
        wanted = args.id.strip().lower().replace("_", "-")
        found = next((r for r in rules if wanted in (r.id.lower(), r.slug)), None)
        if found is None:
            names = [r.id for r in rules] + [r.slug for r in rules]
            near = difflib.get_close_matches(args.id.upper(), names, n=1) or difflib.get_close_matches(
                wanted, names, n=1
            )
            hint = f": did you mean {near[0]}?" if near else ": trainperf explain lists all"
            raise TrainperfError(f"there is no finding {args.id!r}{hint}")
        sys.stdout.write(page(found.id))
        return 0
