"""TrainPerfCallback in the life of a Trainer."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import socket
import subprocess
import sys
import textwrap
import time
import warnings
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs
    pytest.importorskip("transformers")
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from huggingface_cases import BATCH, Rows
    from huggingface_trainings import Boom, N, trainer

import trainperf
from trainperf.integrations.transformers import TrainPerfCallback
from trainperf.integrations.transformers_fit import TransformersFit
from trainperf.watching import process
from transformers import Trainer, TrainerCallback
from unpatched import assert_unpatched

pytestmark = [
    pytest.mark.filterwarnings("ignore", "error::trainperf.TrainperfWarning"),
    pytest.mark.usefixtures("one_thread"),
]


def patchable() -> dict[str, Any]:
    import accelerate.data_loader
    import transformers.modeling_utils
    import transformers.trainer

    return {
        **{f"Trainer.{name}": vars(Trainer)[name] for name in ("evaluate", "predict", "log", "save_model", "train")},
        "save": torch.save,
        "send_to_device": accelerate.data_loader.send_to_device,
        "safe_save_file": transformers.modeling_utils.safe_save_file,
    }


def test_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = patchable()
    callback = TrainPerfCallback()
    trainer(tmp_path, [callback]).train()
    assert_unpatched(before, patchable())
    assert Path(callback.path).parent == tmp_path / "out" / "trainperf"
    assert callback.run.step_count == N and callback.run.ended == "normally"
    printed = capsys.readouterr().err
    assert printed.count("trainperf show") == 1 and "20 steps" in printed
    assert callback.run.meta["framework"].startswith("transformers ")


def test_two_trainings_two_files(tmp_path: Path) -> None:
    callback = TrainPerfCallback(tmp_path / "a.tpr", verbose=False)
    first = trainer(tmp_path, [callback])
    first.train()
    first.train()
    second = trainer(tmp_path, [callback])
    second.train()
    for name in ("a.tpr", "a-2.tpr", "a-3.tpr"):
        with trainperf.open(tmp_path / name) as run:
            assert run.step_count == N
    assert callback.path == str(tmp_path / "a-3.tpr")


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception(tmp_path: Path, error: type[BaseException]) -> None:
    before = patchable()
    callback = TrainPerfCallback(tmp_path / "a.tpr", verbose=False)
    failing = trainer(tmp_path, [callback, boom := Boom(error)])
    with pytest.raises(error, match="boom"):
        failing.train()
    assert not callback.watch.running
    assert_unpatched(before, patchable())
    assert callback.run.ended == "exception" and callback.run.meta["exception"] == error.__name__
    assert callback.run.step_count == 5
    assert "on_step_end" not in vars(boom)  # other callbacks are as they were
    failing.remove_callback(Boom)
    failing.train()
    assert callback.run.step_count == N and callback.path == str(tmp_path / "a-2.tpr")


def test_ctrl_c_while_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainperf.integrations.transformers_fit import TransformersFit
    from trainperf.watching.process import current

    time_callbacks = TransformersFit._time_callbacks

    def interrupted(fit: TransformersFit, trainer: Any) -> None:
        time_callbacks(fit, trainer)
        raise KeyboardInterrupt

    before = patchable()
    made = trainer(tmp_path, [TrainPerfCallback(tmp_path / "a.tpr", verbose=False), boom := Boom(RuntimeError, -1)])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(TransformersFit, "_time_callbacks", interrupted)
        made.train()
    assert current() is None and "on_step_end" not in vars(boom)
    assert_unpatched(before, patchable())


def test_nothing_stays_in_the_trainer_or_its_class(tmp_path: Path) -> None:
    """From on_init_end to the end of the first training Trainer.train is ours; a trainer dies when it is let go of."""
    before = patchable()
    gc.disable()
    try:
        callback = TrainPerfCallback(tmp_path / "a.tpr", verbose=False)
        trainer(tmp_path, [callback]).train()  # a temporary: nothing else holds it
        assert callback.run.step_count == N
        assert_unpatched(before, patchable())
        unused, used = trainer(tmp_path, [TrainPerfCallback(verbose=False)]), trainer(tmp_path, [callback])
        used.train()
        assert "train" not in vars(unused) and "train" not in vars(used)  # so it pickles as far as it would without
        models = [weakref.ref(unused.model), weakref.ref(used.model)]
        del unused, used
        assert [model() for model in models] == [None, None]
        assert_unpatched(before, patchable())
    finally:
        gc.enable()


def test_a_second_training_that_raises_is_over_when_it_is_asked_for(tmp_path: Path) -> None:
    before = patchable()
    callback = TrainPerfCallback(tmp_path / "a.tpr", verbose=False)
    failing = trainer(tmp_path, [callback])
    failing.train()
    failing.add_callback(Boom(RuntimeError))
    with pytest.raises(RuntimeError, match="boom"):
        failing.train()
    assert callback.run.ended == "exception" and callback.run.step_count == 5
    assert callback.path == str(tmp_path / "a-2.tpr")
    assert_unpatched(before, patchable())


def test_a_callback_that_was_added_later_ends_at_the_next_training(tmp_path: Path) -> None:
    """No on_init_end: nothing tells it that training raised."""
    callback = TrainPerfCallback(tmp_path / "a.tpr", verbose=False)
    failing = trainer(tmp_path, [Boom(RuntimeError)])
    failing.add_callback(callback)
    with pytest.raises(RuntimeError):
        failing.train()
    failing.remove_callback(Boom)
    failing.train()
    with trainperf.open(tmp_path / "a.tpr") as run:
        assert run.ended == "exception"
    assert callback.run.step_count == N and callback.run.ended == "normally"


def test_a_training_that_nobody_heard_the_end_of_gives_way_to_another_callbacks(tmp_path: Path) -> None:
    """As where a smaller batch is tried after an error, with a Trainer and a callback of its own."""
    before = patchable()
    lost = TrainPerfCallback(tmp_path / "a.tpr", verbose=False)
    failing = trainer(tmp_path, [boom := Boom(RuntimeError)])
    failing.add_callback(lost)
    with pytest.raises(RuntimeError):
        failing.train()
    callback = TrainPerfCallback(tmp_path / "b.tpr", verbose=False)
    trainer(tmp_path, [callback]).train()
    assert "on_step_end" not in vars(boom)
    for path, steps, ended in ((lost.path, 5, "exception"), (callback.path, N, "normally")):
        with trainperf.open(path) as run:
            assert (run.step_count, run.ended) == (steps, ended)
    assert Path(callback.path).name == "b.tpr"
    assert_unpatched(before, patchable())


def test_a_ctrl_c_while_it_ends_leaves_no_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next training has its own."""

    def interrupted(fit: TransformersFit) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(TransformersFit, "_describe", interrupted)
        trainer(tmp_path, [TrainPerfCallback(tmp_path / "a.tpr", verbose=False)]).train()
    assert process.current() is None
    callback = TrainPerfCallback(tmp_path / "b.tpr", verbose=False)
    trainer(tmp_path, [callback]).train()
    assert callback.path == str(tmp_path / "b.tpr") and callback.run.step_count == N


def test_resume(tmp_path: Path) -> None:
    trainer(tmp_path, [], save_strategy="steps", save_steps=8).train()
    callback = TrainPerfCallback(tmp_path / "a.tpr", verbose=False)
    resumed = trainer(tmp_path, [callback])
    resumed.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-8"))
    assert resumed.state.global_step == N
    assert callback.run.step_count == N - 8
    assert '"first_step": 8' in callback.run.meta["transformers"]


def test_evaluate_and_predict_outside_of_train(tmp_path: Path) -> None:
    callback = TrainPerfCallback(tmp_path / "a.tpr", verbose=False)
    evaluating = trainer(tmp_path, [callback])
    evaluating.evaluate()
    evaluating.predict(Rows(None, 8))
    assert callback.path == "" and not os.path.exists(tmp_path / "a.tpr")
    with pytest.raises(trainperf.TrainperfError, match="nothing was trained"):
        _ = callback.run
    evaluating.train()
    evaluating.evaluate()
    assert callback.run.step_count == N


@pytest.mark.parametrize("k", [1, 3])
def test_one_step_of_ours_is_one_of_the_optimizers(tmp_path: Path, k: int) -> None:
    """With epochs that do not divide evenly, evaluation, checkpoints, and an epoch of one batch."""
    callback = TrainPerfCallback(tmp_path / "a.tpr", verbose=False)
    training = trainer(
        tmp_path,
        [callback],
        Rows(None, 13 * BATCH),
        num_train_epochs=3,
        gradient_accumulation_steps=k,
        eval_strategy="steps",
        eval_steps=3,
        save_strategy="steps",
        save_steps=4,
    )
    training.train()
    run = callback.run
    assert run.step_count == training.state.global_step >= 3 * (13 // k)
    assert (run.steps.optimizer_steps == 1).all()
    assert k * (run.step_count - 3) < int(run.steps.backwards.sum()) <= int(run.steps.fetches.sum()) <= 39
    assert run.span_total("checkpoint").count == training.state.global_step // 4 + (training.state.global_step % 4 > 0)
    assert run.incomplete == 0
    single = TrainPerfCallback(tmp_path / "b.tpr", verbose=False)
    trainer(tmp_path, [single], Rows(None, BATCH), num_train_epochs=5).train()
    assert single.run.step_count == 5


def test_figures_reach_what_the_trainer_reports_to(tmp_path: Path) -> None:
    seen: list[dict[str, float]] = []

    class Reporter(TrainerCallback):  # type: ignore[misc]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            seen.append(dict(logs))

    slow = Rows(None, 80 * BATCH, lambda: time.sleep(0.004))
    training = trainer(tmp_path, [Reporter(), TrainPerfCallback(tmp_path / "a.tpr", verbose=False)], slow)
    training.train()
    figures = [logs for logs in seen if "trainperf/step_ms" in logs]
    assert figures and all("loss" in logs for logs in figures)
    shares = [f["trainperf/data_wait_ms"] / f["trainperf/step_ms"] for f in figures]
    assert all(0 < share < 1 for share in shares) and max(shares) > 0.2
    assert any("trainperf/step_ms" in logs for logs in training.state.log_history)
    seen.clear()
    trainer(tmp_path, [Reporter(), TrainPerfCallback(tmp_path / "b.tpr", verbose=False, log_metrics=False)]).train()
    assert seen and not any("trainperf/step_ms" in logs for logs in seen)


def test_within_a_watch_of_the_programs_own(tmp_path: Path) -> None:
    callback = TrainPerfCallback(tmp_path / "never.tpr")
    with trainperf.watch(tmp_path / "a.tpr", verbose=False) as watch:
        trainer(tmp_path, [callback]).train()
        assert watch.running
    assert watch.run.step_count == N and callback.watch is watch
    assert not (tmp_path / "never.tpr").exists()
    assert watch.run.tiers["callback_costs"].tier == "exact"


def test_auto_find_batch_size_begins_again(tmp_path: Path) -> None:
    class Memory(TrainerCallback):  # type: ignore[misc]
        failed = False

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 3 and not Memory.failed:
                Memory.failed = True
                raise RuntimeError("CUDA out of memory.")

    callback = TrainPerfCallback(tmp_path / "a.tpr", verbose=False)
    training = trainer(tmp_path, [callback, Memory()], auto_find_batch_size=True)
    training.train()
    assert not (tmp_path / "a-2.tpr").exists()
    assert callback.run.step_count >= training.state.global_step
    assert any("began again" in note for note in callback.run.notes)


def test_pickling_and_on_flag(tmp_path: Path) -> None:
    flagged: list[Any] = []
    callback = TrainPerfCallback(tmp_path / "a.tpr", verbose=False, on_flag=flagged.append)
    slow = Rows(None, 60 * BATCH, lambda: time.sleep(0.004))
    trainer(tmp_path, [callback], slow).train()
    assert any("data_starved" in step.flags for step in flagged)
    copy = pickle.loads(pickle.dumps(TrainPerfCallback(tmp_path / "b.tpr", verbose=False)))
    trainer(tmp_path, [copy]).train()
    assert copy.run.step_count == N
    with pytest.raises(ValueError, match="sampler_hz"):
        TrainPerfCallback(sampler_hz=-1)


def test_a_subclass_has_events_of_its_own(tmp_path: Path) -> None:
    """All of them, from the first on, also those at which ours does nothing, or no more."""

    class Counts(TrainPerfCallback):  # type: ignore[misc,valid-type]
        begun = ended = 0

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.begun += 1
            super().on_step_begin(args, state, control, **kwargs)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.ended += 1
            super().on_step_end(args, state, control, **kwargs)

    callback = Counts(tmp_path / "a.tpr", verbose=False)
    trainer(tmp_path, [callback]).train()
    assert (callback.begun, callback.ended, callback.run.step_count) == (N, N, N)


@pytest.mark.parametrize("first", [True, False])
def test_a_class_beside_ours_has_its_events(tmp_path: Path, first: bool) -> None:
    class Stops(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            control.should_training_stop = state.global_step == 3

    bases = (TrainPerfCallback, Stops) if first else (Stops, TrainPerfCallback)
    callback = type("Both", bases, {})(tmp_path / "a.tpr", verbose=False)
    training = trainer(tmp_path, [callback])
    training.train()
    assert training.state.global_step == 3 and callback.run.step_count == 3


def test_where_it_has_nothing_to_do_a_function_in_c_does_it(tmp_path: Path) -> None:
    """While its training runs; and what the program has put there, stays."""
    from trainperf._native import nothing

    quiet: list[set[str]] = []
    patched: list[Any] = []

    class Looks(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            quiet.append({name for name, value in vars(callback).items() if value is nothing})
            copied = copy.deepcopy(callback)
            assert not any(value is nothing for value in vars(copied).values())
            if state.global_step == 3:
                raise RuntimeError("enough")

    callback = TrainPerfCallback(tmp_path / "a.tpr", verbose=False)
    callback.on_step_end = lambda *args, **kwargs: patched.append(args)
    with pytest.raises(RuntimeError, match="enough"):
        trainer(tmp_path, [Looks(), callback]).train()
    assert {"on_step_begin", "on_pre_optimizer_step", "on_optimizer_step", "on_log"} <= quiet[0]
    assert not {"on_train_begin", "on_train_end", "on_step_end"} & quiet[0] and len(patched) == 2
    assert [name for name in vars(callback) if name.startswith("on_")] == ["on_step_end"]


@pytest.mark.parametrize("by_default", [False, True])
def test_what_somebody_put_around_every_callbacks_event_is_called(
    tmp_path: Path, monkeypatch: Any, by_default: bool
) -> None:
    """Around the empty one of TrainerCallback, where all names are in its closure or its defaults."""
    logged: list[Any] = []
    original, heard = TrainerCallback.on_log, logged.append
    if by_default:

        def on_log(self: Any, *args: Any, _heard: Any = heard, _original: Any = original, **kwargs: Any) -> Any:
            _heard(self)
            return _original(self, *args, **kwargs)
    else:

        def on_log(self: Any, *args: Any, **kwargs: Any) -> Any:
            heard(self)
            return original(self, *args, **kwargs)

    monkeypatch.setattr(TrainerCallback, "on_log", on_log)
    callback = TrainPerfCallback(tmp_path / "a.tpr", verbose=False)
    trainer(tmp_path, [callback], logging_steps=1, max_steps=3).train()
    assert sum(one is callback for one in logged) >= 3


def test_what_is_put_back_after_the_end_is_gone_in_the_next_training(tmp_path: Path) -> None:
    """As by mock.patch.object, whose end comes after ours."""
    from trainperf._native import nothing

    class Ends(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            pass

    callback = TrainPerfCallback(tmp_path / "a.tpr", verbose=False)
    callback.on_step_begin = callback.on_log = nothing
    trainer(tmp_path, [callback, Ends()], max_steps=3).train()
    assert not any(value is nothing for value in vars(callback).values())
    described = (d for kind, d in callback.run.objects.values() if d.get("class", "").endswith("Ends"))
    cost = next(described)["hooks"]["on_step_end"]
    assert cost["count"] == 3  # on_step_begin, which says that the loop has begun, was called


@pytest.mark.live
@pytest.mark.timeout(100)
def test_two_ranks_two_files(tmp_path: Path) -> None:
    """And only rank 0 prints. A child per rank, as torchrun starts them."""
    script = textwrap.dedent(
        f"""
        import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})
        from pathlib import Path
        from huggingface_cases import *
        callback = TrainPerfCallback()
        trainer = Trainer(model=Net(16), args=arguments(Path({str(tmp_path)!r}), ddp_backend="gloo"),
                          train_dataset=Rows(None, 80), callbacks=[callback])
        trainer.train()
        print(callback.path, callback.run.step_count, trainer.state.global_step)
        """
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", script],
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    outputs = [rank.communicate(timeout=90) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    said = [out.strip().splitlines()[-1].rsplit(" ", 2) for out, _ in outputs]
    assert [steps for _, *steps in said] == [["10", "10"]] * 2
    paths = [Path(path) for path, *_ in said]
    assert paths[0].parent == paths[1].parent
    assert [path.name for path in paths] == ["run.rank0.tpr", "run.rank1.tpr"]
    assert ["trainperf" in err and "ms/step" in err for _, err in outputs] == [True, False]


def test_without_transformers(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['transformers'] = None\n"
        "import trainperf.integrations.transformers as t\n"
        "try: t.TrainPerfCallback\n"
        "except ImportError as e: assert 'pip install transformers' in str(e), e\n"
        "else: raise SystemExit(1)\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
