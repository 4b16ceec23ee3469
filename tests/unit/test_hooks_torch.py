"""The hooks on torch's own functions, on the recorded sequence of marks."""

from __future__ import annotations

import gc
import inspect
import io
import json
import multiprocessing
import pickle
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from recorder import Recorder, Session
from torch import nn
from torch.utils.checkpoint import checkpoint
from trainperf.hooks.backward import BackwardHook
from trainperf.hooks.checkpoint import CheckpointHook, DistributedCheckpointHook
from trainperf.hooks.children import ChildNamesHook
from trainperf.hooks.device import DeviceHook
from trainperf.hooks.eval_mode import EvalModeHook
from trainperf.hooks.gc_pauses import GcHook
from trainperf.hooks.optimizer import OptimizerHook
from trainperf.hooks.threads import ThreadNamesHook

Install = Callable[..., Session]


def scalar() -> torch.Tensor:
    return torch.ones(2, requires_grad=True).sum()


# backward


def test_backward_by_tensor_and_by_function(hooked: Install, recorder: Recorder) -> None:
    hooked(BackwardHook())
    scalar().backward()
    torch.autograd.backward([scalar(), scalar()])
    assert recorder.words() == ["begin BACKWARD", "end BACKWARD"] * 2


def test_grad_of_parameters_is_the_backward_of_a_loop_without_one(hooked: Install, recorder: Recorder) -> None:
    from torch.autograd import grad

    hooked(BackwardHook())
    layer, x = nn.Linear(2, 1), torch.ones(1, 2, requires_grad=True)
    grad(layer(x).sum(), layer.parameters())  # type: ignore[arg-type]  # a generator works
    torch.autograd.grad(layer(x).sum(), layer.weight)
    assert recorder.words() == ["begin BACKWARD", "end BACKWARD"] * 2
    recorder.marks.clear()
    grad(layer(x).sum(), x)  # a force, a penalty, an attack
    grad(layer(x).square().sum(), layer.parameters(), create_graph=True)  # type: ignore[arg-type]  # an inner loop
    assert not recorder.marks
    with pytest.raises(RuntimeError, match="does not require grad"):
        grad(torch.ones(1).sum(), layer.weight)
    assert recorder.words() == ["begin BACKWARD", "end BACKWARD"]


def test_grad_beside_a_backward_is_none(hooked: Install, recorder: Recorder) -> None:
    before = torch.autograd._engine_run_backward  # type: ignore[attr-defined]
    hooked(BackwardHook())
    assert torch.autograd._engine_run_backward is not before  # type: ignore[attr-defined]
    layer = nn.Linear(2, 1)
    layer(torch.ones(1, 2)).sum().backward()
    assert recorder.words() == ["begin BACKWARD", "end BACKWARD"]
    assert torch.autograd._engine_run_backward is before, "it costs nothing from here on"  # type: ignore[attr-defined]
    torch.autograd.grad(layer(torch.ones(1, 2)).sum(), list(layer.parameters()))
    assert len(recorder.marks) == 2


def test_backward_that_raises_ends_its_bracket(hooked: Install, recorder: Recorder) -> None:
    hooked(BackwardHook())
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.ones(1).sum().backward()
    assert recorder.words() == ["begin BACKWARD", "end BACKWARD"]
    scalar().backward()
    assert len(recorder.marks) == 4


@pytest.mark.filterwarnings("ignore:.torch.cpu.amp.autocast")  # torch 2.4 warns of itself
def test_a_backward_inside_of_a_backward_is_one(hooked: Install, recorder: Recorder) -> None:
    hooked(BackwardHook())
    layer = nn.Linear(2, 2)
    checkpoint(layer, torch.ones(1, 2, requires_grad=True), use_reentrant=True).sum().backward()
    assert layer.weight.grad is not None
    assert recorder.words() == ["begin BACKWARD", "end BACKWARD"]


def test_a_tensor_subclass_nests(hooked: Install, recorder: Recorder) -> None:
    class Mine(torch.Tensor):
        seen: list[Any] = []  # noqa: RUF012

        @classmethod
        def __torch_function__(cls, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
            cls.seen.append(func)
            return super().__torch_function__(func, kinds, args, kwargs or {})

    torch.autograd.backward(torch.ones(1, requires_grad=True).as_subclass(Mine).sum())
    asked = torch.autograd.backward in Mine.seen  # an older torch does not ask
    hooked(BackwardHook())
    torch.autograd.backward(torch.ones(1, requires_grad=True).as_subclass(Mine).sum())
    assert recorder.words() in (["begin BACKWARD"] * n + ["end BACKWARD"] * n for n in (1, 2))
    assert (torch.autograd.backward in Mine.seen) == asked


def test_backward_on_two_threads(hooked: Install, recorder: Recorder) -> None:
    hooked(BackwardHook())
    threads = [threading.Thread(target=lambda: [scalar().backward() for _ in range(20)]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    by_thread: dict[int, list[str]] = {}
    for mark in recorder.marks:
        by_thread.setdefault(mark.thread, []).append(str(mark))
    assert sum(len(words) for words in by_thread.values()) == 80
    assert all(words == ["begin BACKWARD", "end BACKWARD"] * (len(words) // 2) for words in by_thread.values())


def test_the_patched_function_looks_like_the_original(hooked: Install) -> None:
    plain = torch.autograd.backward
    facts = (plain.__name__, plain.__doc__, plain.__module__, inspect.signature(plain))
    hooked(BackwardHook())
    patched = torch.autograd.backward
    assert patched is not plain
    assert (patched.__name__, patched.__doc__, patched.__module__, inspect.signature(patched)) == facts
    assert patched.__wrapped__ is plain


# optimizer


def test_each_optimizer_has_its_id(hooked: Install, recorder: Recorder) -> None:
    session = hooked(OptimizerHook())
    parameters = [torch.ones(1, requires_grad=True) for _ in range(2)]
    one, two = torch.optim.SGD(parameters[:1]), torch.optim.AdamW(parameters[1:])
    for parameter in parameters:
        parameter.grad = torch.ones(1)
    for optimizer in (one, two, one):
        optimizer.step()
    assert recorder.words() == ["begin OPTIMIZER", "end OPTIMIZER"] * 3
    assert [mark.object for mark in recorder.marks if mark.kind == "begin"] == [1, 2, 1]
    assert [kind for kind, _ in session.objects.values()] == ["optimizer", "optimizer"]
    assert "AdamW" in session.objects[2][1]


def test_an_optimizer_is_described_by_its_groups(hooked: Install) -> None:
    session = hooked(OptimizerHook())
    weights = [torch.ones(1, requires_grad=True) for _ in range(3)]
    torch.optim.AdamW([{"params": weights[:2]}, {"params": weights[2:], "lr": 0.1}], fused=True).step()
    described = json.loads(session.objects[1][1])
    assert described["module"] == "torch.optim.adamw" and described["device"] == "cpu"
    assert (described["groups"], described["parameters"]) == (2, 3)
    assert (described["fused"], described["foreach"]) == (True, False)


def test_an_optimizer_that_is_not_torchs_own_is_not_asked_for_its_groups(hooked: Install, recorder: Recorder) -> None:
    class Odd(torch.optim.Optimizer):
        asked = False

        @property
        def param_groups(self) -> Any:
            if Odd.asked:
                raise RuntimeError("not now")
            return vars(self)["param_groups"]

        @param_groups.setter
        def param_groups(self, value: Any) -> None:
            vars(self)["param_groups"] = value

        def step(self, closure: Any = None) -> None:
            pass

    session = hooked(OptimizerHook())
    odd = Odd([torch.ones(1, requires_grad=True)], {"lr": 0.1})
    Odd.asked = True
    odd.step()
    assert json.loads(session.objects[1][1])["class"].endswith("Odd")
    assert recorder.words() == ["begin OPTIMIZER", "end OPTIMIZER"]


def test_a_step_that_raises_raises(hooked: Install, recorder: Recorder) -> None:
    """torch calls no hook after it: the timeline closes the bracket."""
    hooked(OptimizerHook())
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)])

    def closure() -> float:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        optimizer.step(closure)
    optimizer.step()
    assert recorder.words() == ["begin OPTIMIZER", "begin OPTIMIZER", "end OPTIMIZER"]


@pytest.mark.parametrize("named", [False, True])
def test_lbfgs_is_one_step_with_many_backwards(hooked: Install, recorder: Recorder, named: bool) -> None:
    """Where each of its closures begins is marked: before lies the optimizer's own work."""
    hooked(OptimizerHook(), BackwardHook())
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], max_iter=4)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = ((weight - 3) ** 4).sum()
        loss.backward()
        return loss

    for _ in range(2):
        recorder.marks.clear()
        optimizer.step(**{"closure": closure}) if named else optimizer.step(closure)  # type: ignore[arg-type]
        words = recorder.words()
        assert words[0] == "begin OPTIMIZER" and words[-1] == "end OPTIMIZER"
        each = ["begin_phase forward", "end_phase forward", "begin BACKWARD", "end BACKWARD"]
        assert words[1:-1] == each * words.count("begin BACKWARD") and len(words) > 6


def test_grad_scaler_steps_once(hooked: Install, recorder: Recorder) -> None:
    hooked(OptimizerHook())
    weight = torch.ones(1, requires_grad=True)
    optimizer, scaler = torch.optim.SGD([weight]), torch.amp.GradScaler("cpu")
    scaler.scale((weight * 2).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert recorder.words() == ["begin OPTIMIZER", "end OPTIMIZER"]


# checkpoint


def test_an_interrupt_as_a_checkpoint_begins_leaves_none_open(
    hooked: Install, recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooked(CheckpointHook())
    begin = recorder.begin

    def interrupted(bracket: int, /) -> None:
        begin(bracket)
        raise KeyboardInterrupt

    monkeypatch.setattr(recorder, "begin", interrupted)
    with pytest.raises(KeyboardInterrupt):
        torch.save(torch.ones(1), tmp_path / "a.pt")
    monkeypatch.undo()
    torch.save(torch.ones(1), tmp_path / "a.pt")
    assert recorder.words() == ["begin CHECKPOINT", "end CHECKPOINT"] * 2


def test_checkpoint_counts_its_bytes(hooked: Install, recorder: Recorder, tmp_path: Path) -> None:
    hooked(CheckpointHook())
    path = tmp_path / "model.pt"
    torch.save({"w": torch.ones(100)}, path)
    torch.save({"w": torch.ones(100)}, str(path))
    torch.save(obj={"w": torch.ones(100)}, f=str(path))
    stream = io.BytesIO()
    stream.write(b"header")
    torch.serialization.save({"w": torch.ones(100)}, stream)
    values = [mark.value for mark in recorder.of("CHECKPOINT") if mark.kind == "end"]
    assert recorder.words() == ["begin CHECKPOINT", "end CHECKPOINT"] * 4
    assert values[2] == path.stat().st_size
    assert values[3] == len(stream.getvalue()) - len(b"header")
    assert all(value > 400 for value in values)


def test_what_saves_can_be_sent_to_another_process(hooked: Install) -> None:
    import torch.distributed.checkpoint as dcp

    hooked(CheckpointHook(), DistributedCheckpointHook())
    for save in (torch.save, torch.serialization.save, dcp.save, dcp.state_dict_saver.save):
        assert pickle.loads(pickle.dumps(save)) is save


def test_checkpoint_to_a_stream_that_cannot_tell(hooked: Install, recorder: Recorder) -> None:
    class Pipe(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            return len(data)

        def tell(self) -> int:
            raise io.UnsupportedOperation("not seekable")

    hooked(CheckpointHook())
    torch.save({"w": torch.ones(2)}, Pipe())  # type: ignore[arg-type]
    assert recorder.marks[-1].value == -1


def test_checkpoint_that_fails_ends_its_bracket(hooked: Install, recorder: Recorder, tmp_path: Path) -> None:
    hooked(CheckpointHook())
    with pytest.raises(RuntimeError):
        torch.save({}, tmp_path / "missing" / "model.pt")
    assert recorder.words() == ["begin CHECKPOINT", "end CHECKPOINT"]
    assert recorder.marks[-1].value == -1


@pytest.mark.filterwarnings("ignore:torch.distributed is (disabled|unavailable)", "ignore:TypedStorage")
def test_a_distributed_checkpoint_is_one(hooked: Install, recorder: Recorder, tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp

    hooked(CheckpointHook(), DistributedCheckpointHook())
    state = nn.Sequential(*(nn.Linear(8, 8) for _ in range(3))).state_dict()
    for i, save in enumerate((dcp.save, dcp.state_dict_saver.save)):
        save(state, checkpoint_id=tmp_path / str(i))
    assert recorder.words() == ["begin CHECKPOINT", "end CHECKPOINT"] * 2


# eval mode


def test_only_a_roots_switch_counts(hooked: Install, recorder: Recorder) -> None:
    session = hooked(EvalModeHook())
    model = nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.Dropout(), nn.ReLU()))
    assert model.train() is model  # it trains already
    assert recorder.words() == []
    with torch.no_grad():
        model.eval()
    model.eval()
    model.train(mode=True)
    assert recorder.words() == ["begin EVAL", "end EVAL"]
    assert recorder.marks[0].flags == recorder.GRAD_DISABLED and recorder.marks[0].object == 1
    assert session.objects[1][0] == "module" and "Sequential" in session.objects[1][1]
    assert all(module.training for module in model.modules())


def test_a_module_that_overrides_train(hooked: Install, recorder: Recorder) -> None:
    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(1)

        def train(self, mode: bool = True) -> Frozen:
            super().train(mode)
            self.norm.eval()
            return self

    hooked(EvalModeHook())
    model = Frozen()
    model.eval()
    model.train()
    assert not model.norm.training and model.training
    words = recorder.words()
    assert words[0] == "begin EVAL" and words.count("end EVAL") == 1


def test_a_wrong_mode_raises_as_before(hooked: Install, recorder: Recorder) -> None:
    hooked(EvalModeHook())
    model = nn.Linear(1, 1)
    with pytest.raises(ValueError, match="boolean"):
        model.train("yes")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        model.train(True, True)  # type: ignore[call-arg]
    model.eval()
    assert recorder.words() == ["begin EVAL"]


# gc, logging, threads, device


def test_gc_is_reported_from_c(hooked: Install, recorder: Recorder) -> None:
    hooked(GcHook())
    gc.collect()
    assert recorder.gc_marks >= 2
    assert gc.callbacks[-1] == recorder.gc_callback


def test_gc_callbacks_of_others_stay(recorder: Recorder) -> None:
    def mine(phase: str, info: dict[str, int]) -> None:
        pass

    hook = GcHook()
    from trainperf.hooks import Hooks

    hooks = Hooks(recorder, Session(), [hook])
    hooks.install()
    gc.callbacks.append(mine)
    try:
        hooks.remove()
        assert gc.callbacks[-1] is mine
        assert recorder.gc_callback not in gc.callbacks
    finally:
        gc.callbacks.remove(mine)


def test_threads_get_their_names(hooked: Install, recorder: Recorder) -> None:
    session = hooked(ThreadNamesHook(), BackwardHook())
    ready, done = threading.Event(), threading.Event()

    def work() -> None:
        ready.set()
        done.wait(20)

    thread = threading.Thread(target=work, name="prefetcher")
    thread.start()
    ready.wait(20)
    assert thread.native_id is not None
    session.unnamed = [thread.native_id, threading.get_native_id(), 2**22 + 1]
    scalar().backward()
    assert session.names == {thread.native_id: "prefetcher", threading.get_native_id(): "MainThread"}
    done.set()
    thread.join()


def test_processes_get_their_names(hooked: Install, recorder: Recorder) -> None:
    session = hooked(ChildNamesHook(), BackwardHook())
    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,), name="decoder")
    process.start()
    try:
        assert process.pid is not None
        session.children = [process.pid, 2**22 + 1]
        scalar().backward()
        assert session.names == {process.pid: "decoder"}
    finally:
        process.kill()
        process.join()


def test_names_are_asked_for_at_most_ten_times_a_second(hooked: Install, recorder: Recorder) -> None:
    session = hooked(ThreadNamesHook(), BackwardHook())
    asked: list[int] = []
    session.unnamed_threads = lambda: asked.append(1) or []  # type: ignore[method-assign,assignment,func-returns-value]
    for _ in range(50):
        scalar().backward()
    assert 1 <= len(asked) <= 5


def test_a_chore_that_fails_is_dropped(hooked: Install, recorder: Recorder) -> None:
    session = hooked(ThreadNamesHook(), BackwardHook())

    def broken() -> list[int]:
        raise RuntimeError("no table")

    session.unnamed_threads = broken  # type: ignore[method-assign]
    scalar().backward()
    assert len(session.notes) == 1 and "threads hook is off" in session.notes[0]


def test_a_device_is_reported_once_cuda_runs(
    hooked: Install, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = hooked(DeviceHook(), BackwardHook())
    scalar().backward()
    assert "feeds_device" not in session.meta
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    train_until(lambda: session.meta.get("feeds_device") == "1")
    assert "process_group" not in session.meta
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    train_until(lambda: session.meta.get("process_group") == "1")


def train_until(seen: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not seen():
        assert time.monotonic() < end
        scalar().backward()
        time.sleep(0.01)


def test_a_device_that_came_after_the_last_look_is_seen(
    hooked: Install, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = DeviceHook()
    session = hooked(hook, BackwardHook())
    scalar().backward()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    hook.remove()
    assert session.meta["feeds_device"] == "1"
