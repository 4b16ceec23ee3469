"""The page that says how to add a finding is true: its rule, its message and its test work as they stand there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from trainperf.findings import facts, frames, messages, model, rules, text
from trainperf.findings.rule import rule
from trainperf.findings.text import Message
from trainperf.findings.thresholds import limit
from trainperf.runfile import Frame
from verdicts import Make, only, said

PAGE = Path(__file__).resolve().parents[2] / "docs" / "contributing" / "add-a-finding.md"


def test_the_pages_example_works(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    of_rule, of_message, of_test = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names = {**vars(model), **vars(text), "Facts": facts.Facts, "Frame": Frame, "Sequence": Sequence, "frames": frames}
    names |= {"rule": rule, "limit": limit, "Message": Message, "Make": Make, "only": only}
    for code in (of_rule, of_message, of_test):
        exec(code, names)
    monkeypatch.setattr(messages, "MESSAGES", messages.MESSAGES)
    for id, variants in names["MESSAGES"].items():
        monkeypatch.setitem(messages.MESSAGES, id, variants)
    monkeypatch.setattr(rules, "ALL", (names["deep_copies"], *rules.ALL))
    names["test_deep_copies_in_each_step"](make)
    file = make().steps(100, python=10.0)
    at = file.stack("/usr/lib/python3.11/copy.py:128 deepcopy", "/home/me/job/train.py:12 snapshot")
    (f,) = (f for f in said(file.detail("sample", 1000, state="python", stack=at)).findings if f.id == "TP399")
    assert f.fix == "state = {k: v.clone() for k, v in model.state_dict().items()}"
    assert f.evidence == ("10.0 ms a step in copy.deepcopy",) and f.title == "copy.deepcopy takes much of the step"
