"""The documentation: links lead somewhere, every page is found from the first, and it builds."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def text_of(page: Path) -> str:
    """Without code, in which brackets are not links."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    return re.sub(r"`[^`\n]*`", "code", text)


@cache
def anchors(page: Path) -> set[str]:
    """As GitHub and mkdocs make them of headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    titles = [re.sub(r"[`*\[\]]|\(.*?\)", "", title) for title in re.findall(r"^#+ +(.*)$", text, re.M)]
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", title.strip().lower())) for title in titles}


def local_links(page: Path) -> list[tuple[Path, str]]:
    found = []
    for link in LINK.findall(text_of(page)):
        if not re.match(r"[a-z]+:", link):
            path, _, anchor = link.partition("#")
            found.append(((page.parent / path).resolve() if path else page, anchor))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in local_links(page):
        assert target.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {target.name}#{anchor}"


def test_every_page_is_reached_from_the_first() -> None:
    nav = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert all((ROOT / "docs" / page).exists() for page in nav)
    seen: set[Path] = set()
    waiting = [ROOT / "docs" / page for page in nav]
    while waiting:
        page = waiting.pop()
        if page not in seen:
            seen.add(page)
            waiting += [target for target, _ in local_links(page) if target.suffix == ".md"]
    lost = {page.relative_to(ROOT) for page in PAGES if page.is_relative_to(ROOT / "docs")} - {
        page.relative_to(ROOT) for page in seen if page.is_relative_to(ROOT)
    }
    assert lost == set(), "link to them, or name them under nav in mkdocs.yml"


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "findings").glob("*.md")), ids=lambda p: p.stem)
def test_a_page_of_a_finding_is_read_in_two_minutes(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").split()) <= 300


def test_the_readme_fits_a_screen_or_two() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 90 and max(map(len, lines)) <= 100


def test_commands_in_the_documentation_are_commands() -> None:
    from trainperf.cli.main import COMMANDS

    known = {command.name for command in COMMANDS}
    for page in PAGES:
        for word in re.findall(r"(?:`|\$ )trainperf ([a-z]+)\b", page.read_text(encoding="utf-8")):
            assert word in known, f"{page.name}: trainperf {word}"


def test_it_builds(tmp_path: Path) -> None:
    if shutil.which("mkdocs") is None:
        pytest.skip("mkdocs is not installed")
    command = ["mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(PAGES) - 4
    outside = [p.name for p in pages if re.search(r'<(?:script|link|img)[^>]+(?:src|href)="https?://', p.read_text())]
    assert outside == []


def written_facts() -> set[str]:
    """The keys of meta that the sources write: by name, and of the process as a dictionary, in trainperf/meta.py."""
    core = [f.read_text() for f in (ROOT / "cpp" / "trainperf").rglob("*.cc") if not f.stem.endswith("_test")]
    package = [f.read_text() for f in (ROOT / "python" / "trainperf").rglob("*.py")]
    process = (ROOT / "python" / "trainperf" / "meta.py").read_text()
    keys = re.findall(r'SetMeta\("(\w+)"', "".join(core)) + re.findall(r'set_meta\("(\w+)"', "".join(package))
    keys += re.findall(r'"(\w+)": |meta\["(\w+)"\] =', process)
    named = {key if isinstance(key, str) else "".join(key) for key in keys}
    return named | {variable.lower() for variable in re.findall(r'"([A-Z_]*(?:RANK|WORLD_SIZE))"', process)}


def test_the_page_of_the_run_file_tells_of_every_fact_and_no_other() -> None:
    page = (ROOT / "docs" / "run-file.md").read_text()
    section = page.split("\n## Facts\n")[1].split("\n## ")[0]
    told = [re.findall(r"`(\w+)`", row) for row in re.findall(r"^\| (`[^|]*) \|", section, re.M)]
    written = written_facts()
    assert {"wall_ns", "thread_cpu", "host", "torch", "local_rank", "history", "launch"} <= written
    assert sorted(key for keys in told for key in keys) == sorted(written)
