"""Fixes in the words of Hugging Face's Trainer."""

from __future__ import annotations

import pytest
from trainperf.findings.framework import arguments, in_its_words

HF = {"transformers": '{"version": "5.0", "save_steps": 10}'}


@pytest.mark.parametrize(
    ("fix", "said"),
    [
        ("DataLoader(..., num_workers=4)  # why", "TrainingArguments(dataloader_num_workers=4)  # why"),
        (
            "DataLoader(..., num_workers=2, persistent_workers=True)",
            "TrainingArguments(dataloader_num_workers=2, dataloader_persistent_workers=True)",
        ),
        ('DataLoader(..., multiprocessing_context="fork")', 'DataLoader(..., multiprocessing_context="fork")'),
        ("run it in a process", "run it in a process"),
    ],
)
def test_fix(fix: str, said: str) -> None:
    assert in_its_words(HF, fix) == said
    assert in_its_words({}, fix) == fix


def test_meta_that_is_damaged_is_no_trainers() -> None:
    assert arguments({"transformers": "{"}) == {} and arguments({"transformers": "[1]"}) == {}
    assert arguments(HF)["save_steps"] == 10
