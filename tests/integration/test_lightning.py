"""TrainPerf in all the ways that Lightning trains: steps, life cycle, files, other people's profilers and callbacks."""

from __future__ import annotations

import contextlib
import copy
import csv
import logging
import pickle
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import trainperf
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

pytest.importorskip("trainperf._native")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Lightning's own
    pytest.importorskip("lightning.pytorch")
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
    from lightning.pytorch.loggers import CSVLogger
    from lightning.pytorch.profilers import SimpleProfiler
    from lightning.pytorch.tuner import Tuner
    from lightning.pytorch.utilities.combined_loader import CombinedLoader
    from lightning_cases import Gan, Manual, Net, Stream, loader

from trainperf.findings.engine import find
from trainperf.integrations.lightning import TrainPerf

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
pytestmark = pytest.mark.filterwarnings("ignore", "error::trainperf.TrainperfWarning")
N = 12


def fit(
    tmp_path: Path, model: Any = None, train: Any = None, val: Any = None, *, prof: Any = None, **options: Any
) -> Any:
    """Trains under TrainPerf; returns it."""
    prof = prof or TrainPerf(verbose=False)
    trainer(tmp_path, prof, **options).fit(model or Net(8), loader(None, N) if train is None else train, val)
    return prof


def trainer(tmp_path: Path, prof: Any, **options: Any) -> Any:
    callbacks = [prof, *options.pop("callbacks", [])]
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    defaults = {"accelerator": "cpu", "default_root_dir": str(tmp_path), "max_epochs": 1, "logger": False} | quiet
    made = pl.Trainer(**(defaults | {"num_sanity_val_steps": 0, "callbacks": callbacks} | options))
    before = made.profiler
    made.untouched = lambda: check_untouched(made, before)
    return made


def check_untouched(made: Any, profiler: Any) -> None:
    assert made.profiler is profiler
    assert "save_checkpoint" not in vars(made)
    assert "run" not in vars(made.fit_loop.epoch_loop.val_loop)
    assert "on_batch_end" not in vars(made._logger_connector)
    for logger in made.loggers:
        assert "trainperf" not in type(logger).log_metrics.__code__.co_filename


def wall_to_wall(run: Any, steps: int) -> Any:
    assert run.step_count == steps
    ends = run.steps.start_ns + run.steps.wall_ns
    assert (ends[:-1] == run.steps.start_ns[1:]).all()
    return run


class Batches(pl.Callback):
    count = 0

    def on_train_batch_end(self, *_: Any) -> None:
        self.count += 1


# Loops.


def test_accumulated_gradients_are_a_step_per_batch(tmp_path: Path) -> None:
    run = wall_to_wall(fit(tmp_path, accumulate_grad_batches=4, max_epochs=2).run, 2 * N)
    assert run.steps.optimizer_steps.sum() == 2 * N // 4


def test_manual_optimization(tmp_path: Path) -> None:
    run = wall_to_wall(fit(tmp_path, Manual(lambda: time.sleep(0.004)), max_epochs=2).run, 2 * N)
    # Samples tell how much of it is waiting for OpenMP's threads: on a busy machine there are more of those waits.
    assert run.cause_ns("blocked_io") >= 0.5 * 2 * N * 4e6


def test_two_optimizers(tmp_path: Path) -> None:
    run = wall_to_wall(fit(tmp_path, Gan()).run, N)
    assert run.steps.optimizer_steps.sum() == 2 * N


def test_dataloader_iter(tmp_path: Path) -> None:
    class Pulls(Net):
        def training_step(self, dataloader_iter: Iterator[Any]) -> Any:
            batch, _, _ = next(dataloader_iter)
            return self.loss(batch)

    run = wall_to_wall(fit(tmp_path, Pulls(8), loader(None, N, lambda _: time.sleep(0.004)), max_epochs=2).run, 2 * N)
    assert run.cause_ns("data_wait") >= 0.8 * 2 * N * 4e6


@pytest.mark.alone
def test_a_batch_fetched_ahead_delays_the_step_before_it(tmp_path: Path) -> None:
    train = DataLoader(Stream(None, N, lambda index: time.sleep(0.06 if index == 5 else 0)), batch_size=None)
    run = wall_to_wall(fit(tmp_path, train=train, max_epochs=2).run, 2 * N)
    waits = run.steps.phases_ns[:, 0] / 1e6
    assert {i for i, ms in enumerate(waits) if ms > 50} == {4, N + 4}


def test_a_short_loader_that_goes_round_inside_of_next(tmp_path: Path) -> None:
    class Two(Net):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.loss(batch[0]) + self.loss(batch[1])

    for short_first in (True, False):
        short, long = loader(None, 5), loader(None, N)
        both = CombinedLoader([short, long] if short_first else [long, short], "max_size_cycle")
        wall_to_wall(fit(tmp_path, Two(8), both, max_epochs=2).run, 2 * N)


def test_batches_without_training_are_no_steps_but_their_time_is_kept(tmp_path: Path) -> None:
    class Skips(Net):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return None if batch_idx % 3 == 2 else self.loss(batch)

    wall_to_wall(fit(tmp_path, Skips(8)).run, N - N // 3)


def test_early_stopping(tmp_path: Path) -> None:
    class Rising(Net):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("bad", float(self.trainer.global_step), batch_size=1)

    stop = EarlyStopping("bad", patience=0)
    prof = fit(tmp_path, Rising(8), val=loader(None, 2), callbacks=[stop], val_check_interval=4, max_epochs=5)
    wall_to_wall(prof.run, 8)


@pytest.mark.alone
def test_validation_is_bracketed_and_the_sanity_check_is_no_step(tmp_path: Path) -> None:
    val = loader(None, 3, lambda _: time.sleep(0.003))
    prof = fit(tmp_path, val=val, val_check_interval=6, max_epochs=2, num_sanity_val_steps=2)
    run = wall_to_wall(prof.run, 2 * N)
    spans = run.spans("validation")
    assert [s.step for s in spans] == [-1, 5, 11, 17, 23]
    assert run.phase_ns("validation") >= 4 * 3 * 3e6
    assert run.cause_ns("data_wait") < 18e6  # validation's waits are validation


def test_a_worker_start_before_the_first_hook_is_seen(tmp_path: Path) -> None:
    rows = loader(None, N).dataset
    run = wall_to_wall(fit(tmp_path, train=DataLoader(rows, batch_size=None, num_workers=1), max_epochs=2).run, 2 * N)
    starts = [s.step for s in run.spans("loader_start")]
    assert len(starts) == 2 and starts[1] in (N - 1, N)  # epoch 0's is before on_train_start
    assert [s.step for s in run.spans("first_fetch")] == [0, N]


def test_checkpoints(tmp_path: Path) -> None:
    saves = ModelCheckpoint(str(tmp_path / "ckpt"), every_n_train_steps=4, save_top_k=-1)
    prof = fit(tmp_path, callbacks=[saves], enable_checkpointing=True)
    run = wall_to_wall(prof.run, N)
    assert {3, 7, 11} <= {s.step for s in run.spans("checkpoint")}
    # All of the trainer's saving is checkpoint, not only torch.save's part of it.
    assert run.phase_ns("checkpoint") > run.span_total("checkpoint").ns
    saved = torch.load(next((tmp_path / "ckpt").glob("*.ckpt")), weights_only=False)
    assert not [key for key in saved["callbacks"] if "TrainPerf" in str(key)]


# The life of a watch.


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
    from trainperf.watch import _current_here

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
    assert _current_here() is None and not (tmp_path / "a.tpr").exists()


def test_a_run_file_that_cannot_be_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.tpr").touch()
    prof = TrainPerf(tmp_path / "a.tpr", verbose=False, cuda="off")
    with pytest.raises(FileExistsError):
        fit(tmp_path, prof=prof)
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
    assert "lightning-callback" in [f.slug for f in watch.findings]
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


# Other people's things.


def test_the_users_profiler_goes_on_and_is_given_back(tmp_path: Path) -> None:
    class Mine(SimpleProfiler):
        answer = 42

    mine = Mine()

    class Asks(Net):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            assert self.trainer.profiler.answer == 42
            assert isinstance(self.trainer.profiler, pl.profilers.Profiler)
            assert type(copy.deepcopy(self.trainer.profiler)) is Mine
            with self.trainer.profiler.profile("my own action"):
                return self.loss(batch)

    prof = TrainPerf(verbose=False)
    made = trainer(tmp_path, prof, profiler=mine)
    made.fit(Asks(8), loader(None, N))
    made.untouched()
    assert made.profiler is mine and len(mine.recorded_durations["my own action"]) == N
    assert len(mine.recorded_durations["[_TrainingEpochLoop].train_dataloader_next"]) == N
    assert "Profiler Report" in mine.summary()
    wall_to_wall(prof.run, N)


def test_pickle_copy_and_state(tmp_path: Path) -> None:
    prof = fit(tmp_path)
    assert prof.state_dict() == {}
    for other in (pickle.loads(pickle.dumps(prof)), copy.deepcopy(prof), pickle.loads(pickle.dumps(TrainPerf()))):
        assert isinstance(other, TrainPerf) and isinstance(other, pl.Callback) and other.path == ""
    assert trainperf.TrainPerf is TrainPerf


def test_figures_and_flags(tmp_path: Path) -> None:
    flagged: list[Any] = []
    prof = TrainPerf(verbose=False, on_flag=flagged.append)
    logger = CSVLogger(str(tmp_path), flush_logs_every_n_steps=1)
    train = loader(None, 100, lambda _: time.sleep(0.003))
    fit(tmp_path, train=train, prof=prof, logger=logger, log_every_n_steps=5)
    assert any("data_starved" in step.flags for step in flagged)
    with open(Path(logger.log_dir) / "metrics.csv") as file:
        rows = [row for row in csv.DictReader(file) if row.get("trainperf/step_ms")]
    assert rows and all(int(row["step"]) % 5 == 4 for row in rows)
    waits = [float(row["trainperf/data_wait_ms"]) for row in rows]
    assert all(3 <= wait <= float(row["trainperf/step_ms"]) for wait, row in zip(waits, rows, strict=True))
    assert any(float(row["trainperf/data_starved_steps"]) > 0 for row in rows)
    logged = [d for kind, d in prof.run.objects.values() if kind == "logger"]
    assert logged[0]["class"] == "CSVLogger"
    assert 0 < logged[0]["hooks"]["log_metrics"]["count"] <= 20  # the module's loss; what we log is no cost of it


def test_a_logger_that_breaks_under_our_figures_does_not_break_training(tmp_path: Path) -> None:
    class Picky(CSVLogger):
        def log_metrics(self, metrics: Any, step: int | None = None) -> None:
            if any(key.startswith("trainperf") for key in metrics):
                raise ValueError("unknown metric")
            super().log_metrics(metrics, step)

    train = loader(None, 80, lambda _: time.sleep(0.004))
    prof = fit(tmp_path, train=train, logger=Picky(str(tmp_path)), log_every_n_steps=5)
    run = wall_to_wall(prof.run, 80)
    assert len([note for note in run.notes if "unknown metric" in note]) == 1


def test_only_hooks_that_a_callback_has_are_timed_and_other_time_is_not_forward(tmp_path: Path) -> None:
    class Hooks(pl.Callback):
        def on_before_backward(self, *_: Any) -> None:
            time.sleep(0.002)

        def on_before_optimizer_step(self, *_: Any) -> None:
            time.sleep(0.002)

    run = wall_to_wall(fit(tmp_path, callbacks=[Hooks()]).run, N)
    mine = next(d for kind, d in run.objects.values() if kind == "callback" and d["class"].endswith("Hooks"))
    assert {hook: h["count"] for hook, h in mine["hooks"].items()} == {
        "on_before_backward": N,
        "on_before_optimizer_step": N,
    }
    assert mine["hooks"]["on_before_backward"]["at"].rpartition(":")[0] == __file__
    assert run.phase_ns("other") >= N * 4e6
    assert len(run.spans("callback")) == 2 * N


def test_a_private_name_that_is_gone_is_said(tmp_path: Path) -> None:
    prof = TrainPerf(verbose=False)
    made = trainer(tmp_path, prof)
    made._logger_connector.on_batch_end = made._logger_connector.on_batch_end  # somebody else's
    made.fit(Net(8), loader(None, N))
    assert prof.run.tiers["lightning_progress_bar_metrics"].tier == "off"
    assert prof.run.tiers["lightning_validation"].tier == "exact"
    assert [a.id for a in find(prof.run).abstained if a.id == "TP703"] == ["TP703"]


def test_nets_in_a_module_dict_train_as_they_would_without(tmp_path: Path) -> None:
    def weights(prof: Any) -> list[Any]:
        torch.manual_seed(3)
        model = Gan()
        torch.manual_seed(4)
        trainer(tmp_path, prof).fit(model, loader(None, N))
        return list(model.parameters())

    for a, b in zip(weights(TrainPerf(verbose=False)), weights(pl.Callback()), strict=True):
        assert torch.equal(a, b)
    assert isinstance(Gan().nets, nn.ModuleDict)
