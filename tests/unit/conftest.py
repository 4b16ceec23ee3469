"""Fixtures of the unit tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from runfiles import RunFile
from verdicts import LINUX, Make


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """make(**meta) begins a run made by hand."""

    def build(**meta: str) -> RunFile:
        return RunFile(tmp_path / "a.tpr", **({"cwd": "/home/me/job", "platform": LINUX, "cpus": "4"} | meta))

    return build
