"""TP304 on runs made by hand: what a function that calls torch.save does beside it, what is not its, and what a save
calls."""

from __future__ import annotations

import pytest
from runfiles import RunFile
from trainperf.findings.model import Finding, Said
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


def _fix(f: Finding) -> Said:
    fix = f.params["fix"]
    assert isinstance(fix, Said)
    return fix


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
    assert (f.variant, f.params["saver"]) == ("writing", named) and f.params["function"]
    assert _fix(f).key == ("save_in_a_thread" if in_a_thread else "save_less_often")


@pytest.mark.parametrize("storage", [0.2, 1.0])
def test_a_faster_disk_is_said_not_to_help_where_little_waits_for_it(make: Make, storage: float) -> None:
    cells = {("checkpoint", "native"): 4.0 - storage, ("checkpoint", "blocked"): storage}
    f = _told(make().steps(100, cells, compute=36.0))["TP304"]
    assert f.params["storage"] == storage / 4 and f.params["fast_disk"] == (storage == 0.2)


@pytest.mark.parametrize("code", [FSYNC, RENAME])
def test_writing_the_file_is_the_checkpoints(make: Make, code: int) -> None:
    file = _other(_run(make), 600, "native", "/usr/lib/python3.11/shutil.py:9 copyfileobj", f"{TRAIN}:6 save")
    told = _told(_other(file, 400, "blocked", f"{TRAIN}:4 save", code=code))
    assert list(told) == ["TP304"] and told["TP304"].cost_ms_per_step == pytest.approx(12.0)
    params = told["TP304"].params
    assert params["beside"] == pytest.approx(10 / 12) and "save (train.py:6)" in str(params["beside_place"])


def test_a_save_that_is_mostly_beside_torch_save_is_not_told_as_that(make: Make) -> None:
    """A copy of the file: torch.save by itself in a thread would save little."""
    copy = "/usr/lib/python3.11/shutil.py:9 copyfileobj"
    f = _told(_other(_run(make), 600, "native", copy, f"{TRAIN}:6 save"))["TP304"]
    assert (f.variant, f.where) == ("beside", "train.py:6") and _fix(f).key == "save_all_in_a_thread"
    assert (f.params["share"], f.params["saver_share"], f.params["saver"]) == (0.75, 0.25, "torch.save")
    assert f.params["place"] == "shutil.copyfileobj called by save (train.py:6)"


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
    ("state", "code", "frames", "call"),
    [
        ("blocked", SLEEP, (HOOK, *IN_A_SAVE), "clock_nanosleep"),
        ("blocked", SENDTO, ("/usr/lib/python3.11/http/client.py:9 send", HOOK, *IN_A_SAVE), "sendto"),
        ("native", 0, (HOOK, *IN_A_SAVE), None),  # on the CPU
        ("blocked", SLEEP, (HOOK,), "clock_nanosleep"),  # in run.phase("checkpoint")
    ],
)
def test_what_a_save_calls_is_not_told_as_torch_save(
    make: Make, state: str, code: int, frames: tuple[str, ...], call: str | None
) -> None:
    f = _saving(make, 240, state, *frames, code=code)
    assert (f.variant, f.where, f.params["call"]) == ("own_work", "train.py:50", call)
    assert str(f.params["place"]).endswith("Slow.on_save_checkpoint (train.py:50)")
    assert _fix(f) == Said("save_own_work", {"function": "Slow.on_save_checkpoint (train.py:50)"})
    assert f.params["share"] == f.fix_share == pytest.approx(0.6)
    assert f.params["speed"] is None and f.params["storage"] is None


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
    assert (f.variant, f.params["saver"]) == ("writing", "torch.save") and f.fix_share > 0.8
    assert [row["share"] for row in f.params["called"]] == ([pytest.approx(0.25)] if ms == 100 else [])


def test_of_two_that_a_save_calls_each_has_its_own_share(make: Make) -> None:
    file = make(platform=LINUX).steps(
        100, {("checkpoint", "blocked"): 3.0, ("checkpoint", "python"): 2.0}, compute=15.0
    )
    for line, name, state, ms in ((50, "Slow.on_save_checkpoint", "blocked", 300), (60, "Slow.sums", "python", 200)):
        at = file.stack(f"{TRAIN}:{line} {name}", *IN_A_SAVE, MAIN)
        file.detail("sample", ms, phase="checkpoint", state=state, stack=at, code=SLEEP, count=20)
    f = _told(file)["TP304"]
    assert (f.variant, f.where, f.params["second"]) == ("own_work", "train.py:50", "Slow.sums (train.py:60)")
    assert f.params["share"] == f.fix_share == pytest.approx(0.6)
    assert f.params["second_share"] == pytest.approx(0.4)


def test_samples_that_stand_for_no_time_are_no_error(make: Make) -> None:
    file = make(platform=LINUX).steps(100, {("checkpoint", "blocked"): 4.0}, compute=16.0)
    hook = file.stack(HOOK, *IN_A_SAVE, MAIN)
    file.detail("sample", 0, phase="checkpoint", state="python", stack=hook, count=1)
    file.detail("sample", 400, phase="checkpoint", state="blocked", stack=hook, code=SLEEP, count=20)
    params = _told(file)["TP304"].params
    assert (params["call"], params["share"]) == ("clock_nanosleep", 1.0)


@pytest.mark.parametrize("spans", [True, False])
def test_how_often_is_told_by_the_steps_between_saves(make: Make, spans: bool) -> None:
    file = make().steps(400, compute=2.0, checkpoint=0.5)
    for step in range(59, 400, 60) if spans else (399,):
        file.span("checkpoint", 33, step=step)
    assert _fix(_told(file)["TP304"]).params["now"] == (60 if spans else 400)


def test_the_files_of_one_step_are_one_save(make: Make) -> None:
    """Of a Hugging Face Trainer whose `_save_checkpoint` somebody replaced: weights, optimizer, scheduler, numbers."""
    file = make().steps(150, compute=2.0, checkpoint=0.5)
    for step in range(4, 150, 5):
        for _ in range(4):
            file.span("checkpoint", 0.625, step=step)
    f = _told(file)["TP304"]
    assert _fix(f).params["now"] == 5
    assert (f.params["saves"], f.params["files"]) == (30, 4) and f.params["each"] == pytest.approx(2.5e6)


def test_saves_in_pairs_are_told_by_their_mean(make: Make) -> None:
    """The last weights, and a step later the best."""
    file = make().steps(400, compute=2.0, checkpoint=0.5)
    for step in (99, 100, 199, 200, 299, 300):
        file.span("checkpoint", 33, step=step)
    assert _fix(_told(file)["TP304"]).params["now"] == 67


def test_a_save_by_lightnings_trainer_is_not_to_be_replaced_by_a_bare_one(make: Make) -> None:
    trainer = "/x/site-packages/lightning/pytorch/trainer/trainer.py:1400 Trainer.save_checkpoint"
    file = lightning(make).steps(100, compute=2.0, checkpoint=0.5)
    hooks = {"on_train_batch_end": hook(1, at=f"{TRAIN}:30", other=0)}
    file.object(1, "callback", **{"class": "Keep", "module": "app", "at": f"{TRAIN}:29", "hooks": hooks})
    stack = file.stack(SAVE, trainer, f"{TRAIN}:33 Keep.on_train_batch_end", MAIN)
    file.detail("sample", 50, phase="checkpoint", state="native", stack=stack, count=40)
    fix = _fix(_told(file)["TP304"])
    assert (fix.key, fix.params["callback"]) == ("save_by_trainer", "Keep.on_train_batch_end")
