"""The source distribution holds all that a build reads, and nothing that a build has left behind."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Of a copy: a hundred thousand files of environments and builds would be looked at for seconds."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("sdist")
    for name in tracked("."):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tree / name)
    left_behind = git("ls-files", "--others", "--ignored", "--exclude-standard", "--directory")
    for name in {*left_behind, "build/", "python/trainperf/__pycache__/", "python/trainperf/_native.so"}:
        path = tree / name / "left.o" if name.endswith("/") else tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "-o", str(out), str(tree)]
    subprocess.run(command, capture_output=True, check=True)
    (archive,) = out.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        return {name.partition("/")[2] for name in tar.getnames()}


def git(*words: str) -> list[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def tracked(*patterns: str) -> set[str]:
    listing = git("ls-files", "--", *patterns)
    return {name for name in listing if not (ROOT / name).is_symlink() and (ROOT / name).exists()}


def test_holds_all_sources(names: set[str]) -> None:
    wanted = tracked(
        "CMakeLists.txt", "LICENSE", "README.md", "pyproject.toml", "cmake", "cpp", "docs/findings", "python"
    )
    assert "cpp/trainperf/run/schema.sql" in wanted
    assert wanted - names == set()


def test_holds_nothing_built(names: set[str]) -> None:
    assert [
        name for name in names if name.endswith((".so", ".pyc", ".o", ".a", ".tpr")) or name.startswith("build/")
    ] == []


def test_leaves_tests_and_papers_in_the_repository(names: set[str]) -> None:
    folders = {"tests", "benchmarks", "examples", "scripts", ".ci", ".github"}
    assert {name.split("/")[0] for name in names} & folders == set()
