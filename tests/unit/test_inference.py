"""Runs that train nothing: the same verdicts, without the words of training."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from runfiles import RunFile
from trainperf.findings.model import Finding
from verdicts import loud, said

OF_TRAINING = re.compile(r"\b(train\w*|backward|epochs?|validat\w*|optimizer|gradients?|loss)\b")


def inference(path: Path, steps: int = 100, **causes: float) -> RunFile:
    cells = {("forward", "native"): causes.pop("compute", 0.0)}
    return RunFile(path / "a.tpr").steps(steps, cells, backwards=0, optimizer_steps=0, **causes)


def words_of(finding: Finding) -> str:
    texts = (finding.title, finding.why, finding.fix, finding.will_not_help, *finding.evidence)
    return " ".join(texts)


def test_a_healthy_loop_is_healthy(tmp_path: Path) -> None:
    file = inference(tmp_path, compute=10.0)
    layer, module = (
        "/x/site-packages/torch/nn/modules/conv.py:1 forward",
        "/x/site-packages/torch/nn/modules/module.py:1",
    )
    file.detail("sample", 1000, phase="forward", state="native", stack=file.stack(layer, f"{module} _call_impl"))
    found = said(file)
    assert found.verdict.kind == "healthy" and "compute-bound" in found.verdict.text
    assert not OF_TRAINING.search(found.verdict.text)


@pytest.mark.parametrize("cause", ["data_wait", "blocked_io", "gc", "gil_wait", "descheduled", "throttled", "logging"])
def test_no_word_of_training(tmp_path: Path, cause: str) -> None:
    found = said(inference(tmp_path, compute=5.0, **{cause: 5.0}))
    for finding in found.findings:
        assert not OF_TRAINING.search(words_of(finding)), words_of(finding)
    assert not OF_TRAINING.search(found.verdict.text)


def test_the_same_troubles_are_found(tmp_path: Path) -> None:
    trained = RunFile(tmp_path / "b.tpr").steps(100, compute=5.0, blocked_io=5.0)
    assert loud(inference(tmp_path, compute=5.0, blocked_io=5.0)) == loud(trained) != []


def test_what_the_loop_computes_beside_the_model_may_be_a_part_of_it(tmp_path: Path) -> None:
    file = inference(tmp_path, compute=10.0)
    layer = (
        "/x/site-packages/torch/nn/modules/conv.py:1 Conv.forward",
        "/x/site-packages/torch/nn/modules/module.py:1",
    )
    for ms, frames in ((600, ("/job/eval.py:4 decode",)), (400, (layer[0], f"{layer[1]} _call_impl"))):
        at = file.stack(*frames, "/job/eval.py:9 main")
        file.detail("sample", ms, phase="forward", state="native", stack=at)
    (f,) = said(file).findings
    assert (f.id, f.variant, f.severity, f.finds_out) == ("TP310", "without_training", "info", True)
    assert not OF_TRAINING.search(words_of(f))
