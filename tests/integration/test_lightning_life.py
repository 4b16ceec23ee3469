"""How a watch under Lightning begins and ends: errors, Ctrl-C, several fits, tuners, files."""

from __future__ import annotations

import contextlib
import copy
import logging
import pickle
import time
import warnings
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import trainperf
from torch.utils.data import DataLoader, TensorDataset

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Lightning's own
    pytest.importorskip("lightning.pytorch")
    import lightning.pytorch as pl
    from lightning.pytorch.loggers import CSVLogger
    from lightning.pytorch.profilers import SimpleProfiler
    from lightning.pytorch.tuner import Tuner
    from lightning_cases import Net, loader
    from lightning_fits import Batches, N, fit, trainer, wall_to_wall

from trainperf.integrations.lightning import TrainPerf

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
pytestmark = pytest.mark.filterwarnings("ignore", "error::trainperf.TrainperfWarning")


def test_an_exception_ends_the_run_and_leaves_nothing(tmp_path: Path) -> None:
    class Breaks(Net):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx == 7:
                raise RuntimeError("mine")
            return self.loss(batch)

    prof = TrainPerf(verbose=False)
    made = trainer(tmp_path, prof, logger=CSVLogger(str(tmp_path)))
    with pytest.raises(RuntimeError, match="mine"):
        made.fit(Breaks(8), loader(None, N))
    made.untouched()
    assert prof.run.meta["ended"] == "exception" and prof.run.meta["exception"] == "RuntimeError"
    assert prof.run.step_count == 7


def test_ctrl_c(tmp_path: Path) -> None:
    class Interrupted(Net):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx == 5:
                raise KeyboardInterrupt
            return self.loss(batch)

    import signal

    before = signal.getsignal(signal.SIGINT)
    prof = TrainPerf(verbose=False)
    made = trainer(tmp_path, prof)
    try:
        with pytest.raises((SystemExit, KeyboardInterrupt)):
            made.fit(Interrupted(8), loader(None, N))
    finally:
        signal.signal(signal.SIGINT, before)  # Lightning ignores it from here on
    made.untouched()
    assert prof.run.meta["exception"] == "KeyboardInterrupt" and prof.run.step_count == 5


def test_ctrl_c_while_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import signal

    from trainperf.integrations.lightning_fit import LightningFit
    from trainperf.watching.process import current

    install = LightningFit._install

    def interrupted(fit: LightningFit) -> None:
        install(fit)
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    prof = TrainPerf(tmp_path / "a.tpr", verbose=False)
    made = trainer(tmp_path, prof)
    try:
        with monkeypatch.context() as patch, pytest.raises((SystemExit, KeyboardInterrupt)):
            patch.setattr(LightningFit, "_install", interrupted)
            made.fit(Net(8), loader(None, N))
    finally:
        signal.signal(signal.SIGINT, before)
    made.untouched()
    assert current() is None and not (tmp_path / "a.tpr").exists()


def test_a_run_file_that_cannot_be_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.tpr").touch()
    prof = TrainPerf(tmp_path / "a.tpr", verbose=False, cuda="off")
    with pytest.raises(FileExistsError):
        fit(tmp_path, prof=prof)
    (tmp_path / "a.tpr").unlink()
    assert fit(tmp_path, prof=prof).path == str(tmp_path / "a.tpr")
    (tmp_path / "b.rank1.tpr").touch()
    prof = TrainPerf(tmp_path / "b.tpr", verbose=False)
    watch, own = prof._begin_watch("", rank=1, world_size=2)  # the others would wait for this rank
    assert own and watch.running and "unwatched" in caplog.text
    watch.step()
    watch.stop()
    assert not watch.running
    with pytest.raises(ValueError, match="cuda"):
        TrainPerf(cuda="no")


def test_the_users_profiler_is_ended_when_ours_is_interrupted() -> None:
    from trainperf.integrations.lightning_tee import make_tee

    def interrupt() -> None:
        raise KeyboardInterrupt

    mine = SimpleProfiler()
    actions = {"starts": (interrupt, lambda: None), "stops": (lambda: None, interrupt)}
    tee = make_tee(mine, actions.get)
    for name in actions:
        with pytest.raises(KeyboardInterrupt), tee.profile(name):
            pass
    assert not mine.current_actions and set(mine.recorded_durations) == set(actions)


def test_where_the_user_has_no_profiler_ours_is_like_lightnings() -> None:
    from concurrent.futures import ThreadPoolExecutor

    from lightning.pytorch.profilers import PassThroughProfiler
    from trainperf.integrations.lightning_tee import make_tee

    heard: list[str] = []
    action = (lambda: heard.append("starts"), lambda: heard.append("stops"))
    inner = PassThroughProfiler()
    inner.mine = 42
    tee = make_tee(inner, {"heard": action}.get)
    assert isinstance(tee, PassThroughProfiler) and tee.mine == 42 and type(copy.copy(tee)) is PassThroughProfiler

    def use(name: str) -> None:
        with tee.profile(name) as outer, tee.profile(action_name=name) as inner:  # the same within itself
            assert outer == inner == name

    @tee.profile("heard")
    def decorated() -> None:
        heard.append("runs")

    use("unheard")
    assert heard == []
    use("heard")
    decorated()
    assert heard == ["starts", "starts", "stops", "stops", "starts", "runs", "stops"]
    heard.clear()
    with ThreadPoolExecutor(1) as pool:  # its actions lie beside the loop's, not in it
        pool.submit(use, "heard").result()
    for number in range(5000):
        use(f"step {number}")
    tee.forget("heard")
    use("heard")
    assert heard == [] and len(tee._brackets) <= 4096 >= len(tee._actions)
    with pytest.raises(TypeError, match="acton_name"), tee.profile(acton_name="unheard"):
        pass


class Broken(Exception):
    pass


class Ended(StopIteration):
    pass


@pytest.mark.parametrize("error", [None, Broken, Ended])
def test_how_a_fetch_from_what_is_no_dataloader_ends(
    error: type[BaseException] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainperf import _native

    batches = list(loader(None, N))

    class Batches:  # no len(): Lightning fetches until the end
        def __iter__(self) -> Batches:
            self.left = iter(batches)
            return self

        def __next__(self) -> Any:
            try:
                return next(self.left)
            except StopIteration:
                raise error or StopIteration  # noqa: B904

    end, ends = _native.end, []
    batch, exhausted, raised = _native.FETCHED_BATCH, _native.FETCH_EXHAUSTED, _native.FETCH_RAISED

    def heard(bracket: int, how: int = 0) -> None:
        if bracket == _native.FETCH:
            ends.append(how)
        end(bracket, how)

    monkeypatch.setattr(_native, "end", heard)
    try:
        raise StopIteration("the program's own, which it handles while it trains")
    except StopIteration:
        with pytest.raises(Broken) if error is Broken else contextlib.nullcontext():
            fit(tmp_path, train=Batches())
    assert ends == [batch] * N + [raised if error is Broken else exhausted]


def test_trouble_before_training_leaves_no_run(tmp_path: Path) -> None:
    class Unfit(Net):
        def train_dataloader(self) -> Any:
            raise OSError("no data")

    prof = TrainPerf(verbose=False)
    made = trainer(tmp_path, prof)
    with pytest.raises(OSError, match="no data"):
        made.fit(Unfit(8))
    made.untouched()
    assert prof.path == "" and not list(tmp_path.rglob("*.tpr"))
    with pytest.raises(trainperf.TrainperfError, match="nothing was trained"):
        _ = prof.run


class Copies(pl.Callback):
    made: ClassVar[list[Any]] = []

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.made.extend((copy.deepcopy(trainer), pickle.loads(pickle.dumps(trainer))))


def test_a_copy_of_the_trainer_is_its_own(tmp_path: Path) -> None:
    """What is put into the trainer for a fit goes with a copy, and there acts on the copy."""
    made = trainer(tmp_path, TrainPerf(verbose=False), callbacks=[Copies()])
    del made.untouched  # a lambda, which nobody can pickle
    made.fit(Net(8), DataLoader(TensorDataset(torch.randn(N, 64), torch.randint(0, 10, (N,)))))
    assert len(Copies.made) == 2
    for copied in Copies.made:
        assert copied is not made and copied.save_checkpoint.__self__ is copied
        assert type(copied.profiler).__name__ == "PassThroughProfiler"
    Copies.made.clear()


def test_fit_twice_then_validate_and_test(tmp_path: Path) -> None:
    prof = TrainPerf(tmp_path / "a.tpr", verbose=False)
    made = trainer(tmp_path, prof, max_epochs=1)
    model = Net(8)
    model.test_step = model.validation_step
    made.fit(model, loader(None, N))
    made.fit_loop.max_epochs = 3
    made.fit(model, loader(None, N))
    made.validate(model, loader(None, 2), verbose=False)
    made.test(model, loader(None, 2), verbose=False)
    made.untouched()
    assert prof.path == str(tmp_path / "a-2.tpr")
    assert [trainperf.open(tmp_path / name).step_count for name in ("a.tpr", "a-2.tpr")] == [N, 2 * N]
    assert len(list(tmp_path.rglob("*.tpr"))) == 2


def test_where_the_file_goes_and_who_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    below = Path(fit(tmp_path).path)
    assert below.parent == tmp_path / "trainperf" and below.suffix == ".tpr"
    assert capfd.readouterr().err == ""
    monkeypatch.setenv("TRAINPERF_DIR", str(tmp_path / "runs"))
    assert Path(fit(tmp_path, prof=TrainPerf(name="mine")).path).parent == tmp_path / "runs"
    assert capfd.readouterr().err.count("12 steps)") == 1
    monkeypatch.setenv("TRAINPERF_DISABLE", "1")
    prof = fit(tmp_path, prof=TrainPerf())
    assert prof.path == "" and prof.findings == [] and capfd.readouterr().err == ""


def test_options_are_checked_before_training(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="gil='exat'"):
        TrainPerf(gil="exat")
    with pytest.raises(TypeError, match="on_flag"):
        TrainPerf(on_flag=3)
    (tmp_path / "a.tpr").write_text("somebody's")
    with pytest.raises(FileExistsError):
        fit(tmp_path, prof=TrainPerf(tmp_path / "a.tpr", verbose=False))


def test_a_watch_of_the_programs_own_hears_of_callbacks_too(tmp_path: Path) -> None:
    class Slow(pl.Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            time.sleep(0.003)

    with trainperf.watch(tmp_path / "own.tpr", verbose=False) as watch:
        prof = fit(tmp_path, callbacks=[Slow()])
        assert watch.running and prof.watch is watch
    assert "callback" in [f.slug for f in watch.findings]
    assert not (tmp_path / "trainperf").exists()


def test_two_of_us_are_one(tmp_path: Path) -> None:
    first, second = TrainPerf(verbose=False), TrainPerf(verbose=False)
    made = trainer(tmp_path, first, callbacks=[second], fast_dev_run=N)
    made.fit(Net(8), loader(None, N), loader(None, 2))
    made.untouched()
    wall_to_wall(first.run, N)
    assert second.path == "" and len(list(tmp_path.rglob("*.tpr"))) == 1


def test_tuner(tmp_path: Path) -> None:
    class Tunable(Net):
        lr, batch_size = 0.01, 2

        def train_dataloader(self) -> Any:
            rows = TensorDataset(torch.randn(40, 64), torch.randint(0, 10, (40,)))
            return DataLoader(rows, batch_size=self.batch_size)

        val_dataloader = train_dataloader

    prof = TrainPerf(verbose=False)
    made, model = trainer(tmp_path, prof, limit_val_batches=0), Tunable(8)
    tuner = Tuner(made)
    tuner.lr_find(model, num_training=30, update_attr=True)
    tuner.scale_batch_size(model, steps_per_trial=2, max_trials=2, init_val=2)
    made.untouched()
    assert prof.path == "" and not list(tmp_path.rglob("*.tpr"))  # trials are no training
    made.fit(model)
    made.untouched()
    wall_to_wall(prof.run, made.num_training_batches)
    # And within a fit, where the trials run just before training.
    finder, seen = pl.callbacks.LearningRateFinder(num_training_steps=30), Batches()
    wall_to_wall(fit(tmp_path, Tunable(8), Tunable(8).train_dataloader(), callbacks=[finder, seen]).run, seen.count)
    assert seen.count == 20 or pl.__version__.startswith("2.4.")  # which stops after its trials


def test_trouble_in_a_tuners_trial_leaves_nothing(tmp_path: Path) -> None:
    class Breaks(Net):
        lr = 0.01

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            raise RuntimeError("mine")

    prof = TrainPerf(verbose=False)
    finder = pl.callbacks.LearningRateFinder(num_training_steps=8)
    for made in (trainer(tmp_path, prof), trainer(tmp_path, prof, callbacks=[finder])):
        with pytest.raises(RuntimeError, match="mine"):
            made.fit(Breaks(8), loader(None, N)) if finder in made.callbacks else Tuner(made).lr_find(
                Breaks(8), loader(None, N)
            )
        made.untouched()
    assert prof.path == ""
