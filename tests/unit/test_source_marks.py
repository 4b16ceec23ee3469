"""Loops over weights: what their source says that they do, and the fused operation that a finding then advises."""

from __future__ import annotations

import json
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainperf.source_marks import marks_of, source_marks
from verdicts import TRAIN, Make, only

_PAIRS = "for a, b in zip(teacher.parameters(), student.parameters()):\n    "


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (f"{_PAIRS}a.data = a.data * m + b.data * (1 - m)", "lerp"),
        (f"{_PAIRS}a.mul_(m).add_(b, alpha=1 - m)", "lerp"),
        (f"{_PAIRS}a.mul_(m)\n    a.add_((1 - m) * b)", "lerp"),
        ("for a, b in zip(ours, theirs):\n    a.lerp_(b, 0.01)", "lerp"),
        ("for k in ours:\n    ours[k] = 0.9 * ours[k] + 0.1 * theirs[k]", "lerp"),
        (f"{_PAIRS}a.data.copy_(b.data)", "copy"),
        ("total = sum(p.grad.norm() ** 2 for p in model.parameters())", "clip"),
        ("for p in weights:\n    p.grad.clamp_(-1, 1)", "clip_value"),
        ("for p in model.parameters():\n    p.grad.mul_(factor)", "scale"),
        ("for p in model.parameters():\n    p.data.mul_(1 - rate * decay)", "decay"),
        ("for p in weights:\n    p.data -= rate * p.grad", "update"),
        ("seen = [p.std().item() for p in model.parameters()]", "statistics"),
        ("for x, y in loader:\n    loss = f(x, y)\n    loss.backward()\n    scale.mul_(0.9).add_(loss, alpha=0.1)", ""),
        ('with open(path, "w") as file:\n    json.dump(rows, file)', "rewrite"),
        ('with self.fs.open(path, mode="w") as file:\n    csv.writer(file).writerows(rows)', "rewrite"),
        ("path.write_text(json.dumps(rows))", "rewrite"),
        ("frame.to_csv(path)", "rewrite"),
        ('frame.to_csv(path, mode="a")', ""),
        ('with open(path, "a") as file:\n    json.dump(row, file)', ""),
        ('with open(path, "wb") as file:\n    pickle.dump(state, file)', ""),
        ('with open(f"{folder}/{step}.json", "w") as file:\n    json.dump(rows, file)', ""),
        ("import sqlite3\nrows.commit()", "database"),
        ("from psycopg2 import connect\ncursor.execute(text, row)", "database"),
        ("fcntl.flock(file, fcntl.LOCK_EX)", "file_lock"),
        ("from fcntl import lockf, LOCK_EX\nlockf(file, LOCK_EX | LOCK_NB)", "file_lock"),
        ("fcntl.flock(file, fcntl.LOCK_UN)", ""),
        ("self.rows = np.concatenate([self.rows, new])", "join"),
        ("rows = torch.cat((rows, new), dim=0)", "join"),
        ("frame = pd.concat([frame, row], ignore_index=True)", "join"),
        ("rows = np.append(rows, new, axis=0)", "join"),
        ("hidden = torch.cat([left, right])", ""),
        ("kept = kept.append(row)", ""),
        ("states = torch.stack([torch.tensor(row) for row in rows])", "convert"),
        ("actions = tuple(torch.from_numpy(row) for row in rows)", "convert"),
        ("for batch in batches:\n    x = torch.tensor(batch)", ""),
        ("runner.execute(plan)", ""),
        ("for i in range(9):\n    x = x * 2 + y * 3", ""),
        ("for p in model.parameters():\n    p.requires_grad = False", ""),
    ],
)
def test_a_loop_is_known_by_what_it_does(source: str, kind: str) -> None:
    assert [k for _, _, k in marks_of(source)] == ([kind] if kind else [])


def test_those_of_the_programs_own_modules_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, broken = tmp_path / "mine.py", tmp_path / "broken.py"
    mine.write_text(f"import torch\n{_PAIRS}a.lerp_(b, 0.1)\n")
    broken.write_text("for (")
    for file in (broken, mine):
        module = types.ModuleType(file.stem)
        module.__file__ = str(file)
        monkeypatch.setitem(sys.modules, f"source_marks_{file.stem}", module)
    monkeypatch.setattr("trainperf.source_marks._MOST_BYTES", 1 << 30)  # other tests' modules are imported, too
    recorded = json.loads(source_marks())
    assert recorded[str(mine)] == [[2, 3, "lerp"]] and str(broken) not in recorded
    assert not any("site-packages" in file for file in recorded)


def test_a_file_is_read_anew_once_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one of a library is none of the program's by whatever link it was found."""
    library, mine = tmp_path / "site-packages", tmp_path / "mine.py"
    library.mkdir()
    (library / "theirs.py").write_text(f"{_PAIRS}a.lerp_(b, 0.1)\n")
    (tmp_path / "theirs.py").symlink_to(library / "theirs.py")
    (tmp_path / "linked").symlink_to(library)
    files = [mine, tmp_path / "theirs.py", tmp_path / "linked" / "theirs.py"]
    modules = {file.stem + str(i): types.ModuleType(file.stem) for i, file in enumerate(files)}
    for module, file in zip(modules.values(), files, strict=True):
        module.__file__ = str(file)
    monkeypatch.setattr("trainperf.source_marks.sys", types.SimpleNamespace(modules=modules))
    read: list[str] = []

    def counted(source: str) -> Iterator[tuple[int, int, str]]:
        read.append(source)
        return marks_of(source)

    monkeypatch.setattr("trainperf.source_marks.marks_of", counted)
    for kind, operation in (("lerp", "a.lerp_(b, 0.1)"), ("lerp", "a.lerp_(b, 0.1)"), ("copy", "a.data.copy_(b.data)")):
        mine.write_text(f"{_PAIRS}{operation}\n")
        os.utime(mine, ns=(0, len(operation)))
        assert json.loads(source_marks()) == {str(mine): [[1, 2, kind]]}
    assert len(read) == 2


@pytest.mark.parametrize(
    ("call", "line", "waits"), [(230, 38, "database"), (75, 38, "database"), (75, 50, "written_file")]
)
def test_a_wait_in_a_call_of_a_database_is_for_that(make: Make, call: int, line: int, waits: str) -> None:
    """SQLite leaves no frame: it sleeps while another has its lock, and waits for the disk as it commits."""
    file = make(platform="Linux-6.1-x86_64-with-glibc2.36", source_marks=json.dumps({TRAIN: [[37, 39, "database"]]}))
    file.steps(100, compute=2.0, blocked_io=6.0)
    at = file.stack(f"{TRAIN}:{line} keep", f"{TRAIN}:95 <module>")
    f = only(file.detail("sample", 590, phase="other", state="blocked", code=call, stack=at, count=60))
    assert f.variant == waits, f


@pytest.mark.parametrize("state", ["python", "native"])
@pytest.mark.parametrize("helper", [False, True])
def test_the_fix_is_the_fused_operation_alone(make: Make, state: str, helper: bool) -> None:
    file = make(source_marks=json.dumps({TRAIN: [[1, 90, "copy"], [30, 33, "lerp"]]}))
    file.steps(100, {("other", state): 4.0, ("optimizer", "native"): 1.0}, compute=6.0)
    inner = (f"{TRAIN}:50 blend", f"{TRAIN}:31 follow") if helper else (f"{TRAIN}:31 follow",)
    file.detail("sample", 400, phase="other", state=state, stack=file.stack(*inner, f"{TRAIN}:95 <module>"))
    f = only(file)
    if helper:  # a loop around the line itself is nearer than its caller's
        assert "_foreach_copy_" in f.fix
    else:
        assert f.fix.startswith("# one fused operation for all weights: torch._foreach_lerp_(") and "\n" not in f.fix


def test_a_place_in_no_such_loop_has_the_usual_fix(make: Make) -> None:
    file = make(source_marks=json.dumps({TRAIN: [[30, 33, "lerp"]]}))
    file.steps(100, {("other", "python"): 4.0}, compute=6.0)
    file.detail(
        "sample", 400, phase="other", state="python", stack=file.stack(f"{TRAIN}:40 follow", f"{TRAIN}:95 <module>")
    )
    assert "fused" not in only(file).fix


@pytest.mark.parametrize("state", ["python", "native"])
def test_a_file_that_is_written_anew_is_to_be_appended_to(make: Make, state: str) -> None:
    file = make(source_marks=json.dumps({TRAIN: [[30, 31, "rewrite"]]}))
    file.steps(100, {("other", state): 4.0, ("optimizer", "native"): 1.0}, compute=6.0)
    at = file.stack("/usr/lib/python3.11/json/__init__.py:179 dump", f"{TRAIN}:31 History.save", f"{TRAIN}:95 <module>")
    file.detail("sample", 400, phase="other", state=state, stack=at)
    f = only(file)
    assert f.fix.startswith("# append the new row") and f.where == "train.py:31"
    assert "rewrites a whole file in json.dump called by History.save (train.py:31)" in f.why


@pytest.mark.parametrize(
    ("function", "log"),
    [
        *((name, True) for name in ("MetricLogger.save", "History.dump", "write_log", "stats.save", "Tracker.flush")),
        *((name, False) for name in ("save_all", "Trainer.save", "Catalog.save", "Dialog.save", "logistic_model")),
    ],
)
def test_what_keeps_a_log_saves_no_checkpoint(make: Make, function: str, log: bool) -> None:
    file = make().steps(100, {("checkpoint", "native"): 4.0}, compute=6.0)
    at = file.stack("/x/torch/serialization.py:850 save", f"{TRAIN}:31 {function}", f"{TRAIN}:95 <module>")
    file.detail("sample", 400, phase="checkpoint", state="native", stack=at)
    f = only(file)
    assert ("its log" in f.title, "append the new row" in f.fix, "checkpoints" in f.title) == (log, log, not log)


def test_a_meta_that_is_no_json_is_no_error(make: Make) -> None:
    file = make(source_marks="{")
    file.steps(100, {("other", "python"): 4.0}, compute=6.0)
    file.detail("sample", 400, phase="other", state="python", stack=file.stack(f"{TRAIN}:31 follow"))
    assert "fused" not in only(file).fix
