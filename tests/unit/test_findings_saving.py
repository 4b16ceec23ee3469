"""TP304 on runs made by hand: what a function that calls torch.save does beside it, what is not its, and what a save
calls."""

from __future__ import annotations

import pytest
from runfiles import RunFile
from trainperf.findings.model import Finding
from verdicts import LINUX, TRAIN, Make, hook, lightning, said

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


@pytest.mark.parametrize(
    ("frame", "named", "in_a_thread"),
    [
        ("/x/site-packages/accelerate/accelerator.py:3600 Accelerator.save_state", "Accelerator.save_state", False),
        ("/x/site-packages/safetensors/torch.py:300 save_file", "save_file", True),
        ("/x/site-packages/numpy/lib/npyio.py:500 save", "numpy.save", False),
        (
            "/x/site-packages/torch/distributed/checkpoint/state_dict_saver.py:90 save",
            "torch.distributed.checkpoint.save",
            False,
        ),
        ("/x/site-packages/torch/serialization.py:900 save", "torch.save", True),
    ],
)
def test_what_saves_is_named_and_replaced_by_torch_save_only_where_that_saves_as_much(
    make: Make, frame: str, named: str, in_a_thread: bool
) -> None:
    """Accelerate's state is also the optimizer's, the scheduler's and the random numbers'."""
    file = make().steps(100, compute=2.0, checkpoint=0.5)
    file.detail("sample", 50, phase="checkpoint", state="native", stack=file.stack(SAVE, frame, MAIN), count=40)
    f = _told(file)["TP304"]
    assert f.why.startswith(f"{named} runs on the training thread, called by ")
    assert ("target=torch.save" in f.fix) == in_a_thread
    assert f.fix.startswith("# save less often" if in_a_thread else f"# call {named} less often")


@pytest.mark.parametrize(("storage", "no_help"), [(0.2, "; a faster disk: 5% of it waits for that"), (1.0, "")])
def test_a_faster_disk_is_said_not_to_help_where_little_waits_for_it(make: Make, storage: float, no_help: str) -> None:
    cells = {("checkpoint", "native"): 4.0 - storage, ("checkpoint", "blocked"): storage}
    f = _told(make().steps(100, cells, compute=36.0))["TP304"]
    assert f.will_not_help == f"a larger batch or more workers{no_help}"


@pytest.mark.parametrize("code", [FSYNC, RENAME])
def test_writing_the_file_is_the_checkpoints(make: Make, code: int) -> None:
    file = _other(_run(make), 600, "native", "/usr/lib/python3.11/shutil.py:9 copyfileobj", f"{TRAIN}:6 save")
    told = _told(_other(file, 400, "blocked", f"{TRAIN}:4 save", code=code))
    assert list(told) == ["TP304"] and told["TP304"].cost_ms_per_step == pytest.approx(12.0)
    assert any(
        e.startswith("83% of it is beside torch.save: ") and "save (train.py:6)" in e for e in told["TP304"].evidence
    )


def test_a_save_that_is_mostly_beside_torch_save_is_not_told_as_that(make: Make) -> None:
    """A copy of the file: torch.save by itself in a thread would save little."""
    copy = "/usr/lib/python3.11/shutil.py:9 copyfileobj"
    f = _told(_other(_run(make), 600, "native", copy, f"{TRAIN}:6 save"))["TP304"]
    assert f.where == "train.py:6" and "copyfileobj called by save (train.py:6) is 75% of it, torch.save 25%" in f.why
    assert "torch.save alone in a thread" in f.will_not_help and "target=torch.save" not in f.fix


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


HOOK = f"{TRAIN}:50 Slow.on_save_checkpoint"
IN_A_SAVE = (
    "/x/trainperf/integrations/lightning_patches.py:78 run",
    "/x/site-packages/lightning/pytorch/t.py:9 advance",
)
SLEEP, WRITE, SENDTO, SENDFILE = 230, 1, 44, 40


def _saving(make: Make, ms: float, state: str, *frames: str, code: int = 0) -> Finding:
    """Saves take 4 of 20 ms, 1 ms of it in torch.save; `ms` of all the 400 were seen where `frames` say."""
    file = make(platform=LINUX).steps(100, {("checkpoint", state): 3.0, ("checkpoint", "python"): 1.0}, compute=16.0)
    torch = file.stack("/x/site-packages/torch/serialization.py:900 save", *IN_A_SAVE, MAIN)
    file.detail("sample", 100, phase="checkpoint", state="python", stack=torch, count=10)
    file.detail("sample", 300 - ms, phase="checkpoint", state=state, stack=torch, code=WRITE if code else 0, count=10)
    at = file.stack(*frames, MAIN)
    file.detail("sample", ms, phase="checkpoint", state=state, stack=at, code=code, count=10)
    return _told(file)["TP304"]


@pytest.mark.parametrize(
    ("state", "code", "frames", "says"),
    [
        ("blocked", SLEEP, (HOOK, *IN_A_SAVE), "waits (clock_nanosleep)"),
        ("blocked", SENDTO, ("/usr/lib/python3.11/http/client.py:9 send", HOOK, *IN_A_SAVE), "waits (sendto)"),
        ("native", 0, (HOOK, *IN_A_SAVE), "is on the CPU"),
        ("blocked", SLEEP, (HOOK,), "waits (clock_nanosleep)"),  # in run.phase("checkpoint")
    ],
)
def test_what_a_save_calls_is_not_told_as_torch_save(
    make: Make, state: str, code: int, frames: tuple[str, ...], says: str
) -> None:
    f = _saving(make, 240, state, *frames, code=code)
    assert f.why.startswith("the save calls ")
    assert f.why.endswith(f"Slow.on_save_checkpoint (train.py:50), which {says}: 60% of it")
    assert f.where == "train.py:50" and f.fix.startswith("# in Slow.on_save_checkpoint (train.py:50): ")
    assert f.fix_share == pytest.approx(0.6) and not any("/s" in e or "storage" in e for e in f.evidence)


@pytest.mark.parametrize(
    ("ms", "state", "code", "frames"),
    [
        (240, "blocked", WRITE, (HOOK,)),  # it writes a file itself
        (240, "blocked", WRITE, ("/usr/lib/python3.11/shutil.py:9 copyfile", HOOK, *IN_A_SAVE)),
        (240, "blocked", SENDFILE, ("/usr/lib/python3.11/shutil.py:9 copyfile", HOOK, *IN_A_SAVE)),
        (240, "native", 0, (HOOK,)),  # it may pickle
        (240, "blocked", SLEEP, ("/x/site-packages/lightning/fabric/cloud_io.py:9 save", HOOK, *IN_A_SAVE)),
        (100, "blocked", SLEEP, (HOOK, *IN_A_SAVE)),  # the smaller part
    ],
)
def test_what_may_be_writing_is(make: Make, ms: float, state: str, code: int, frames: tuple[str, ...]) -> None:
    f = _saving(make, ms, state, *frames, code=code)
    assert f.why.startswith("torch.save runs on the training thread") and f.fix_share > 0.8
    assert any("25% of it is no writing: " in e for e in f.evidence) == (ms == 100)


def test_of_two_that_a_save_calls_each_has_its_own_share(make: Make) -> None:
    file = make(platform=LINUX).steps(
        100, {("checkpoint", "blocked"): 3.0, ("checkpoint", "python"): 2.0}, compute=15.0
    )
    for line, name, state, ms in ((50, "Slow.on_save_checkpoint", "blocked", 300), (60, "Slow.sums", "python", 200)):
        at = file.stack(f"{TRAIN}:{line} {name}", *IN_A_SAVE, MAIN)
        file.detail("sample", ms, phase="checkpoint", state=state, stack=at, code=SLEEP, count=20)
    f = _told(file)["TP304"]
    assert f.why.endswith("(train.py:50), which waits (clock_nanosleep): 60% of it; and Slow.sums (train.py:60): 40%")
    assert f.fix_share == pytest.approx(0.6)


def test_samples_that_stand_for_no_time_are_no_error(make: Make) -> None:
    file = make(platform=LINUX).steps(100, {("checkpoint", "blocked"): 4.0}, compute=16.0)
    hook = file.stack(HOOK, *IN_A_SAVE, MAIN)
    file.detail("sample", 0, phase="checkpoint", state="python", stack=hook, count=1)
    file.detail("sample", 400, phase="checkpoint", state="blocked", stack=hook, code=SLEEP, count=20)
    assert _told(file)["TP304"].why.endswith("waits (clock_nanosleep): 100% of it")


@pytest.mark.parametrize("spans", [True, False])
def test_how_often_is_told_by_the_steps_between_saves(make: Make, spans: bool) -> None:
    file = make().steps(400, compute=2.0, checkpoint=0.5)
    for step in range(59, 400, 60) if spans else (399,):
        file.span("checkpoint", 33, step=step)
    assert f"now every {60 if spans else 400} steps" in _told(file)["TP304"].fix


def test_the_files_of_one_step_are_one_save(make: Make) -> None:
    """Of a Hugging Face Trainer whose `_save_checkpoint` somebody replaced: weights, optimizer, scheduler, numbers."""
    file = make().steps(150, compute=2.0, checkpoint=0.5)
    for step in range(4, 150, 5):
        for _ in range(4):
            file.span("checkpoint", 0.625, step=step)
    f = _told(file)["TP304"]
    assert "now every 5 steps" in f.fix
    assert f.evidence[0] == "30 saves in 150 steps, 2.5 ms each, of 4 calls of torch.save"


def test_saves_in_pairs_are_told_by_their_mean(make: Make) -> None:
    """The last weights, and a step later the best."""
    file = make().steps(400, compute=2.0, checkpoint=0.5)
    for step in (99, 100, 199, 200, 299, 300):
        file.span("checkpoint", 33, step=step)
    assert "now every 67 steps" in _told(file)["TP304"].fix


def test_a_save_by_lightnings_trainer_is_not_to_be_replaced_by_a_bare_one(make: Make) -> None:
    trainer = "/x/site-packages/lightning/pytorch/trainer/trainer.py:1400 Trainer.save_checkpoint"
    file = lightning(make).steps(100, compute=2.0, checkpoint=0.5)
    hooks = {"on_train_batch_end": hook(1, at=f"{TRAIN}:30", other=0)}
    file.object(1, "callback", **{"class": "Keep", "module": "app", "at": f"{TRAIN}:29", "hooks": hooks})
    stack = file.stack(SAVE, trainer, f"{TRAIN}:33 Keep.on_train_batch_end", MAIN)
    file.detail("sample", 50, phase="checkpoint", state="native", stack=stack, count=40)
    fix = _told(file)["TP304"].fix
    assert fix.startswith("# in Keep.on_train_batch_end: call trainer.save_checkpoint less often")
    assert "torch.save" not in fix
