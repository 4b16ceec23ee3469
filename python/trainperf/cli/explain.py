"""`trainperf explain TP101`: the page of a finding; without an id, the list of all."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, Final

from trainperf.errors import TrainperfError

if TYPE_CHECKING:
    from trainperf.findings.rule import Rule


_CLOSE: Final = 0.75  # of the letters are the same: a slip or two of the keyboard
_FEW: Final = 5


def page(id: str) -> str:
    """The text of docs/findings/<id>.md, as shipped in the package."""
    file = resources.files("trainperf") / "docs" / "findings" / f"{id}.md"
    try:
        return file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise TrainperfError(f"the page of {id} is missing from this installation: install trainperf again") from error


def _near(wanted: str, rules: Sequence[Rule]) -> list[str]:
    """The ids and names that begin so, unless they are many; else a name that is nearly so: ids are all near."""
    begins = [name for rule in rules for name in (rule.id, rule.slug) if name.lower().startswith(wanted)]
    if begins:
        return begins if len(begins) <= _FEW else []
    return difflib.get_close_matches(wanted, [rule.slug for rule in rules], n=1, cutoff=_CLOSE)


class Explain:
    name = "explain"
    help = "explain a finding, such as TP101"
    description = (
        "Explains a finding: what it means, how it is measured, how sure it is, what to do. Without an id, lists all."
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
            near = _near(wanted, rules)
            hint = f": did you mean {' or '.join(near)}?" if near else ": trainperf explain lists all"
            raise TrainperfError(f"there is no finding {args.id!r}{hint}")
        from trainperf.prove.candidates import explained

        sys.stdout.write(f"{page(found.id).rstrip()}\n\n## Proving the fix\n\n{explained(found.id)}\n")
        return 0
