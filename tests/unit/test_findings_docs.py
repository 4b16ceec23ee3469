"""Rules, their pages and the table of thresholds agree."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from trainperf.findings import thresholds
from trainperf.findings.rule import Rule
from trainperf.findings.rules import ALL
from trainperf.runfile.schema import CAUSES, MECHANISMS, PHASES, cause_of

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = [
    "What it means",
    "How it is measured",
    "How sure",
    "What to do",
    "What will not help",
    "Known false positives",
]


def test_ids_and_slugs_are_unique() -> None:
    assert len({r.id for r in ALL}) == len(ALL) == len({r.slug for r in ALL})


def test_every_rule_is_registered_and_its_name_is_its_slug() -> None:
    """A rule is a value of its module's; or a class, in a module of its slug."""
    defined = set()
    for file in (ROOT / "python" / "trainperf" / "findings" / "rules").glob("[a-z]*.py"):
        for name, value in vars(import_module(f"trainperf.findings.rules.{file.stem}")).items():
            slug, mine = (
                getattr(value, "slug", None),
                not isinstance(value, type) or value.__module__.endswith(file.stem),
            )
            if mine and isinstance(slug, str) and hasattr(value, "check"):
                assert (file.stem if isinstance(value, type) else name) == slug.replace("-", "_")
                defined.add(value.id)
    assert defined == {r.id for r in ALL}


@pytest.mark.parametrize("rule", ALL, ids=lambda r: r.id)
def test_each_rule_has_its_page(rule: Rule) -> None:
    text = (ROOT / "docs" / "findings" / f"{rule.id}.md").read_text()
    assert text.startswith(f"# {rule.id} {rule.slug}: ")
    assert re.findall(r"^## (.*)$", text, re.M) == SECTIONS
    assert len(text.split()) <= 300, "a page is read while a training waits"


def test_the_index_lists_each_page_by_its_title() -> None:
    titles = [(f.stem, f.read_text().splitlines()[0][2:]) for f in sorted((ROOT / "docs" / "findings").glob("*.md"))]
    lines = [f"- [{id}](findings/{id}.md) {title.removeprefix(id).lstrip()}" for id, title in titles]
    assert [line for line in (ROOT / "docs" / "findings.md").read_text().splitlines() if "](findings/" in line] == lines


def test_links_between_pages_lead_somewhere() -> None:
    for file in (ROOT / "docs" / "findings.md", *(ROOT / "docs" / "findings").glob("*.md")):
        for target in re.findall(r"\]\(([\w/.-]+\.md)\)", file.read_text()):
            assert (file.parent / target).exists(), (file, target)


def test_each_page_has_its_rule() -> None:
    assert {f.stem for f in (ROOT / "docs" / "findings").glob("*.md")} == {r.id for r in ALL}


def test_the_table_of_thresholds_is_the_codes() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "thresholds.py")]
    page = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    assert (ROOT / "docs" / "thresholds.md").read_text() == page


def test_each_threshold_is_used_and_each_use_is_in_the_table() -> None:
    used: set[str] = set()
    for file in (ROOT / "python" / "trainperf").rglob("*.py"):
        used |= set(re.findall(r'\blimit\("(\w+)"\)', file.read_text()))
    assert used == set(thresholds.TABLE)
    assert all(t.source for t in thresholds.TABLE.values())


def test_hardly_a_rule_compares_with_a_share_of_its_own() -> None:
    """Those that do compare shapes, of waits and of a series, and not costs."""
    rules = (ROOT / "python" / "trainperf" / "findings" / "rules").glob("*.py")
    own = {rule.stem for rule in rules if re.search(r"[<>]=? 0\.[1-9]", rule.read_text())}
    assert own <= {"chores", "growth", "run", "waits"}


def test_the_cores_default_flags_are_the_tables() -> None:
    header = (ROOT / "cpp" / "trainperf" / "timeline" / "timeline.h").read_text()
    shares = {float(x) for x in re.findall(r"double \w+_share = ([\d.]+);", header)}
    assert shares == {thresholds.limit("warn_share")}


def test_cause_of_is_the_cores_table() -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    from runfiles_causes import cause_of as of_the_schema

    for phase in PHASES:
        for mechanism in MECHANISMS:
            assert cause_of(phase, mechanism, feeds_device=False) == of_the_schema(phase, mechanism)
            assert cause_of(phase, mechanism, feeds_device=True) in CAUSES
    assert cause_of("forward", "native", feeds_device=True) == "launch"


def test_pages_hold_no_path_of_a_machine() -> None:
    for file in (ROOT / "docs" / "findings").glob("*.md"):
        assert not re.search(r"/(work|root|tmp|home)/", file.read_text()), file
