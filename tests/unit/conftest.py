"""Fixtures of the unit tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import texts
from runfiles import RunFile
from trainperf.findings import render
from verdicts import LINUX, Make


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--accept-texts", action="store_true", help="keep what findings say now, in tests/unit/texts")


@pytest.fixture(scope="session", autouse=True)
def accept_texts(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collects a run's params for each variant, when asked to."""
    if not request.config.getoption("--accept-texts", default=False):
        yield
        return
    seen = texts.Seen()
    finding, abstained = render.finding, render.abstained

    def found(facts: Any, rule: Any, diagnosis: Any) -> Any:
        made = finding(facts, rule, diagnosis)
        seen.add(rule.id, diagnosis.variant, made.params)
        return made

    def unsure(facts: Any, rule: Any, said: Any) -> Any:
        seen.add(rule.id, f"?{said.variant}", said.params)
        return abstained(facts, rule, said)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(render, "finding", found)
        patch.setattr(render, "abstained", unsure)
        yield
    seen.accept()


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """make(**meta) begins a run made by hand."""

    def build(**meta: str) -> RunFile:
        return RunFile(tmp_path / "a.tpr", **({"cwd": "/home/me/job", "platform": LINUX, "cpus": "4"} | meta))

    return build
