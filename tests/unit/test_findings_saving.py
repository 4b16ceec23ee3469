"""TP304 on runs made by hand: what a function that calls torch.save does beside it, and what is not its."""

from __future__ import annotations

import pytest
from runfiles import RunFile
from trainperf.findings.model import Finding
from verdicts import LINUX, TRAIN, Make, said

SAVE = "/x/site-packages/torch/serialization.py:900 save"
MAIN = f"{TRAIN}:15 <module>"
FSYNC, FUTEX, RENAME = 74, 202, 82


def _run(make: Make, *, holder: str = "save", other: float = 6.0, blocked: float = 4.0) -> RunFile:
    """torch.save into memory, which takes 2 of 40 ms."""
    cells = {("checkpoint", "native"): 2.0, ("other", "native"): other, ("other", "blocked"): blocked}
    file = make(platform=LINUX).steps(100, cells, compute=38.0 - other - blocked)
    stack = file.stack(SAVE, f"{TRAIN}:5 {holder}", MAIN)
    return file.detail("sample", 200, phase="checkpoint", state="native", stack=stack, count=10)


def _other(file: RunFile, ms: float, state: str, *frames: str, code: int = 0) -> RunFile:
    stack = file.stack(*frames, MAIN)
    return file.detail("sample", ms, phase="other", state=state, stack=stack, code=code, count=10)


def _told(file: RunFile) -> dict[str, Finding]:
    return {f.id: f for f in said(file).findings}


@pytest.mark.parametrize("code", [FSYNC, RENAME])
def test_writing_the_file_is_the_checkpoints(make: Make, code: int) -> None:
    file = _other(_run(make), 600, "native", "/usr/lib/python3.11/shutil.py:9 copyfileobj", f"{TRAIN}:6 save")
    told = _told(_other(file, 400, "blocked", f"{TRAIN}:4 save", code=code))
    assert list(told) == ["TP304"] and told["TP304"].cost_ms_per_step == pytest.approx(12.0)
    assert any(
        e.startswith("83% of it is beside torch.save: ") and "save (train.py:6)" in e for e in told["TP304"].evidence
    )


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ((f"{TRAIN}:3 save",), 0),  # before torch.save: a metric, perhaps
        (("/x/site-packages/numpy/core/x.py:9 argsort", f"{TRAIN}:6 save"), 0),
        ((f"{TRAIN}:30 metric", f"{TRAIN}:6 save"), 0),
        ((f"{TRAIN}:6 save",), FUTEX),  # a lock, a queue
    ],
)
def test_what_else_such_a_function_does_is_not(make: Make, frames: tuple[str, ...], code: int) -> None:
    state = "blocked" if code else "native"
    file = _run(make, other=0.0 if code else 10.0, blocked=10.0 if code else 0.0)
    told = _told(_other(file, 1000, state, *frames, code=code))
    assert told["TP301" if code else "TP310"].cost_ms_per_step == pytest.approx(10.0)
    assert told["TP304"].cost_ms_per_step == pytest.approx(2.0)


@pytest.mark.parametrize("holder", ["train", "<module>"])
def test_the_function_that_holds_the_loop_is_not_one_that_saves(make: Make, holder: str) -> None:
    file = _run(make, holder=holder)
    backward = file.stack("/x/site-packages/torch/_tensor.py:623 Tensor.backward", f"{TRAIN}:4 {holder}", MAIN)
    file.detail("sample", 1000, phase="backward", state="native", stack=backward)
    _other(file, 600, "native", f"{TRAIN}:6 {holder}")
    told = _told(_other(file, 400, "blocked", f"{TRAIN}:6 {holder}", code=FSYNC))
    assert told["TP304"].cost_ms_per_step == pytest.approx(2.0) and "TP301" in told and "TP310" in told


def test_what_is_left_of_a_wait_names_its_own_place(make: Make) -> None:
    file = _other(_run(make, other=0.0, blocked=10.0), 600, "blocked", f"{TRAIN}:6 save", code=FSYNC)
    told = _told(_other(file, 400, "blocked", f"{TRAIN}:40 fetch", code=FSYNC))
    assert told["TP304"].cost_ms_per_step == pytest.approx(8.0)
    assert told["TP301"].where == "train.py:40" and told["TP301"].cost_ms_per_step == pytest.approx(4.0)
