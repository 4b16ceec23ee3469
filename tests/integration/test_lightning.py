"""TrainPerf in all the ways that Lightning trains: steps, and other people's profilers, loggers and callbacks."""

from __future__ import annotations

import copy
import csv
import inspect
import logging
import pickle
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import trainperf
from torch import nn
from torch.utils.data import DataLoader

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Lightning's own
    pytest.importorskip("lightning.pytorch")
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
    from lightning.pytorch.loggers import CSVLogger
    from lightning.pytorch.profilers import SimpleProfiler
    from lightning.pytorch.utilities.combined_loader import CombinedLoader
    from lightning_cases import Gan, Manual, Net, Stream, loader
    from lightning_fits import N, fit, trainer, wall_to_wall

from trainperf.findings.engine import find
from trainperf.integrations.lightning import TrainPerf
from truth import Truth

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
pytestmark = pytest.mark.filterwarnings("ignore", "error::trainperf.TrainperfWarning")


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


# Other people's things.


def test_a_logger_with_a_static_method_is_called_as_without_us(tmp_path: Path) -> None:
    calls: list[Any] = []

    class Mine(CSVLogger):
        @staticmethod
        def log_graph(model: Any, *more: Any) -> None:
            calls.append((model, more))

    model = Net(8)
    fit(tmp_path, model, logger=Mine(str(tmp_path)))
    assert calls == [(model, ())]


def test_what_the_program_logs_by_itself_is_summed_apart(tmp_path: Path) -> None:
    class Mine(pl.Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            trainer.logger.log_metrics({"mine": 1.0}, trainer.global_step)

    class Asks(Net):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx == 5:
                self.logger.log_metrics({"batch": batch_idx}, self.trainer.global_step)
            return super().training_step(batch, batch_idx)

    callbacks = [Mine(), LearningRateMonitor("step")]  # which logs as often as the trainer
    prof = fit(tmp_path, Asks(8), logger=CSVLogger(str(tmp_path)), log_every_n_steps=4, callbacks=callbacks)
    (logger,) = (d for kind, d in prof.run.objects.values() if kind == "logger")
    counts = {hook.partition(" at ")[0]: told["count"] for hook, told in logger["hooks"].items()}
    names = ("Mine.on_train_batch_end", "Asks.training_step") if sys.version_info >= (3, 11) else (
        "on_train_batch_end", "training_step")  # fmt: skip
    assert counts[f"log_metrics by {names[0]}"] == N and counts[f"log_metrics by {names[1]}"] == 1
    assert counts["log_metrics"] == 2 * (N // 4)
    (place,) = (hook.partition(" at ")[2] for hook in logger["hooks"] if "training_step" in hook)
    file, _, line = place.rpartition(":")
    assert file == __file__ and "self.logger.log_metrics" in Path(file).read_text().splitlines()[int(line) - 1]


@pytest.mark.parametrize("hook", ["on_train_start", "on_validation_epoch_end"])
def test_what_a_callback_trains_before_the_loop_is_no_step(tmp_path: Path, hook: str) -> None:
    """Also in the sanity check."""

    def train(*_: Any) -> None:
        with torch.inference_mode(False), torch.enable_grad():
            probe = nn.Linear(4, 1)
            optimizer = torch.optim.SGD(probe.parameters(), 0.01)
            for x in DataLoader(torch.randn(40, 4), batch_size=2):
                optimizer.zero_grad()
                probe(x).pow(2).mean().backward()
                optimizer.step()

    trains = type("Trains", (pl.Callback,), {hook: train})()
    prof = fit(tmp_path, val=loader(None, 2), callbacks=[trains], num_sanity_val_steps=2)
    wall_to_wall(prof.run, N)
    assert prof.run.incomplete == 0 and [s.step for s in prof.run.spans("validation")] == [-1, N - 1]


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
    # Of a sleep of 3 ms, what another program's turn fell into is told as descheduled.
    assert all(2.5 <= wait <= float(row["trainperf/step_ms"]) for wait, row in zip(waits, rows, strict=True))
    assert any(float(row["trainperf/data_starved_steps"]) > 0 for row in rows)
    logged = [d for kind, d in prof.run.objects.values() if kind == "logger"]
    assert logged[0]["class"] == "CSVLogger"
    assert logged[0]["hooks"]["log_metrics"]["at"].endswith(
        f":{inspect.unwrap(CSVLogger.log_metrics).__code__.co_firstlineno}"
    )
    assert 0 < logged[0]["hooks"]["log_metrics"]["count"] <= 20  # the module's loss; what we log is no cost of it


class Rows(CSVLogger):
    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self.steps: list[int | None] = []  # of our figures

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        if "trainperf/step_ms" in metrics:
            self.steps.append(step)


def test_of_accumulated_batches_figures_go_out_once(tmp_path: Path) -> None:
    """Of eight batches, which take longer than steps take to close, several find some that have just closed."""
    logger = Rows(tmp_path)
    train = loader(None, 64, lambda _: time.sleep(0.06))
    fit(tmp_path, train=train, logger=logger, log_every_n_steps=1, accumulate_grad_batches=8)
    assert logger.steps and len(logger.steps) == len(set(logger.steps))


def test_slow_loggers_get_our_figures_less_often_and_we_say_what_they_cost(tmp_path: Path) -> None:
    class Slow(Rows):
        def log_metrics(self, metrics: Any, step: int | None = None) -> None:
            super().log_metrics(metrics, step)
            if "trainperf/step_ms" in metrics:
                time.sleep(0.02)

    logger, start = Slow(tmp_path), time.monotonic()
    run = fit(tmp_path, train=loader(None, 200, lambda _: time.sleep(0.004)), logger=logger, log_every_n_steps=5).run
    # Of 40 times: they may take 0.5 % of the time, which is one in 4 s, and the first.
    assert 1 <= len(logger.steps) <= 1 + (time.monotonic() - start) // 4
    told_ns = run.overhead_ns["figures"]
    assert 20e6 * len(logger.steps) <= told_ns <= 20e6 * len(logger.steps) + 50e6
    assert run.tiers["lightning_figures"].tier == "partly"
    assert run.phase_ns("logging") >= told_ns - 5e6


def test_no_figures_where_lightning_logs_none(tmp_path: Path) -> None:
    logger = Rows(tmp_path)
    run = fit(tmp_path, logger=logger, log_every_n_steps=0).run
    assert not logger.steps and not [note for note in run.notes if "hook is off" in note]


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


def test_hooks_that_the_module_has_are_timed_in_the_phase_that_they_are_called_in(tmp_path: Path) -> None:
    took = dict.fromkeys(("on_train_batch_start", "on_before_optimizer_step"), 0)
    truth = Truth()
    truth.begin()

    def sleep(hook: str, seconds: float) -> None:
        start = time.perf_counter_ns()
        with truth.trouble():
            time.sleep(seconds)
        took[hook] += time.perf_counter_ns() - start

    class Hooked(Net):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            sleep("on_train_batch_start", 0.002)

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            sleep("on_before_optimizer_step", 0.004)

        def on_validation_start(self) -> None:
            time.sleep(0.001)

    run = wall_to_wall(fit(tmp_path, Hooked(8), val=loader(None, 2)).run, N)
    ((number, mine),) = [(n, d) for n, (kind, d) in run.objects.items() if kind == "lightning_module"]
    assert mine["class"].endswith("Hooked") and mine["hooks"].keys() == took.keys()
    for name, hook in mine["hooks"].items():
        assert hook["count"] == N and hook["at"].rpartition(":")[0] == __file__
        assert took[name] <= hook["own_ns"] <= 1.1 * took[name]
    assert run.phase_ns("optimizer") >= took["on_before_optimizer_step"]
    assert run.phase_ns("other") >= took["on_train_batch_start"]
    assert [s.object for s in run.spans("callback")] == N * [number]  # between two phases, as a callback's
    assert (run.steps.causes_ns.sum(axis=1) == run.steps.wall_ns).all()
    f = next(f for f in find(run).findings if f.id == "TP701")
    assert [who.partition("Hooked.")[2] for who in f.who] == ["on_before_optimizer_step", "on_train_batch_start"]
    assert 0.9 * (truth.ns - truth.delay_ns) <= f.cost_ns <= 1.1 * sum(took.values())


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
