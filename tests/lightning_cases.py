"""Small Lightning trainings with one known trouble each, whose cost they measure by themselves.

Used by tests/integration/test_lightning_truth.py and by benchmarks/lightning_table.py, which asks others the same.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

sys.path.insert(0, str(Path(__file__).parent / "programs"))

from _common import run_delay_ns
from truth import KnownTrouble, Truth

BATCH = 8
Slow = Callable[[int], object]


class Clock(pl.Callback):
    """Ends the truth's time. The first of the callbacks: what a profiler does at its end is not training."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        self.truth.batches += 1

    def on_train_end(self, *_: Any) -> None:
        self.truth.end()


class Rows(Dataset[Any]):
    """Batches that lie in memory; `slow(index)` is called for each."""

    def __init__(self, truth: Truth | None, length: int, slow: Slow = lambda index: None) -> None:
        self.truth, self.length, self.slow = truth, length, slow
        self.batches = [(torch.randn(BATCH, 64), torch.randint(0, 10, (BATCH,))) for _ in range(4)]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if index >= self.length:
            raise IndexError(index)
        if self.truth is not None:
            self.truth.begin()
        self.slow(index)
        return self.batches[index % 4]


class Stream(IterableDataset[Any]):
    """The same without a length: Lightning fetches one batch ahead."""

    def __init__(self, truth: Truth | None, length: int, slow: Slow = lambda index: None) -> None:
        self.rows = Rows(truth, length, slow)

    def __iter__(self) -> Iterator[Any]:
        return (self.rows[index] for index in range(len(self.rows)))


class Batches:
    """The same, and no DataLoader either."""

    def __init__(self, truth: Truth | None, length: int, slow: Slow) -> None:
        self.stream = Stream(truth, length, slow)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.stream)


def loader(truth: Truth | None, length: int, slow: Slow = lambda index: None) -> DataLoader[Any]:
    return DataLoader(Rows(truth, length, slow), batch_size=None)


class Net(pl.LightningModule):
    def __init__(self, width: int = 192) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))

    def loss(self, batch: Any) -> torch.Tensor:
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch), batch_size=BATCH)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Manual(Net):
    """Manual optimization, with work after the optimizer's step."""

    def __init__(self, after: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.after = after

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        optimizer.step()
        self.after()


class Validated(Net):
    """Times validation as a whole, by the hooks just before and just after."""

    def __init__(self, truth: Truth) -> None:
        super().__init__()
        self.truth = truth

    def on_validation_model_zero_grad(self) -> None:
        self.start, self.delay = time.perf_counter_ns(), run_delay_ns()
        super().on_validation_model_zero_grad()

    def on_validation_end(self) -> None:
        self.truth.ns += time.perf_counter_ns() - self.start
        self.truth.delay_ns += run_delay_ns() - self.delay


class Gan(pl.LightningModule):
    """Two networks in a ModuleDict, with an optimizer each."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.nets = nn.ModuleDict({"g": nn.Linear(64, 64), "d": nn.Linear(64, 1)})

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, _ = batch
        g, d = self.optimizers()
        g.zero_grad()
        self.manual_backward(-self.nets["d"](self.nets["g"](x)).mean())
        g.step()
        d.zero_grad()
        self.manual_backward((self.nets["d"](self.nets["g"](x).detach()) - self.nets["d"](x)).mean())
        d.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(net.parameters(), lr=0.01) for net in self.nets.values()]


class SlowEnd(pl.Callback):
    def __init__(self, work: Callable[[], object]) -> None:
        self.work = work

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        self.work()


class SlowBackward(pl.Callback):
    def __init__(self, work: Callable[[], object]) -> None:
        self.work = work

    def on_after_backward(self, *_: Any, **__: Any) -> None:
        self.work()


class FetchingEnd(pl.Callback):
    """Works on batches of a loader of its own: fetching them is no part of what it does itself."""

    def __init__(self, batches: Iterator[Any], work: Callable[[], object]) -> None:
        self.batches, self.work = batches, work

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        next(self.batches)
        self.work()


class EpochEnd(Net):
    """What a module does at an epoch's end comes after all that is done for its last batch."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__()
        self.work = work

    def on_train_epoch_end(self) -> None:
        self.work()


class Augmented(Net):
    """Works on each batch in a hook that is given it."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__()
        self.work = work

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        self.work()
        return batch


@dataclass
class Case(KnownTrouble):
    """One training."""

    name: str
    title: str
    cause: str
    steps: int
    finding: str
    who: str = ""
    model: Any = None
    train: Any = None
    val: Any = None
    first: list[Any] = field(default_factory=list)  # callbacks that stand before the profiler's
    last: list[Any] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    truth: Truth = field(default_factory=Truth)
    gil: bool = False
    hog: threading.Thread | None = None

    def fit(self, callbacks: list[Any], root: str, **options: Any) -> Any:
        """Trains, with `callbacks` where a user would put them; returns the trainer."""
        torch.set_num_threads(1)
        if self.gil:  # a first step waits for its code from a cold disk, which its clock would take for the GIL
            pl.Trainer(accelerator="cpu", fast_dev_run=True, enable_progress_bar=False, enable_model_summary=False).fit(
                Net(), loader(None, 1)
            )
        trainer = pl.Trainer(
            **{
                "accelerator": "cpu",
                "default_root_dir": root,
                "max_epochs": 1,
                "enable_progress_bar": False,
                "enable_model_summary": False,
                "enable_checkpointing": False,
                "num_sanity_val_steps": 0,
                "log_every_n_steps": 10,
                "logger": False,
                "callbacks": [Clock(self.truth), *self.first, *callbacks, *self.last],
                **self.options,
                **options,
            }
        )
        with self.truth.fetches():
            trainer.fit(self.model, self.train, self.val)
        if self.hog is not None:
            self.hog.join()
        return trainer


def data_wait(n: int = 60) -> Case:
    truth = Truth()
    train = loader(truth, n, lambda _: truth.sleep(4))
    return Case("data_wait", "a slow dataset", "data_wait", n, "data-starved", model=Net(), train=train, truth=truth)


def stream(n: int = 60) -> Case:
    truth = Truth()
    train = DataLoader(Stream(truth, n, lambda _: truth.sleep(4)), batch_size=None)
    title = "a slow dataset without a length: one batch is fetched ahead"
    return Case("stream", title, "data_wait", n, "data-starved", model=Net(), train=train, truth=truth)


def other_loader(n: int = 30) -> Case:
    """Two epochs, four batches an update."""
    truth = Truth()
    title = "the same, from an object of one's own that is no DataLoader"
    return Case(
        "other_loader", title, "data_wait", 2 * n, "data-starved", model=Net(),
        train=Batches(truth, n, lambda _: truth.sleep(4)),
        options={"max_epochs": 2, "accumulate_grad_batches": 4}, truth=truth,
    )  # fmt: skip


def healthy(n: int = 100) -> Case:
    truth = Truth()
    return Case(
        "healthy",
        "nothing is wrong",
        "",
        n,
        "",
        model=Net(768),
        train=loader(truth, n),
        val=loader(None, 4),
        truth=truth,
    )


def callback_after(n: int = 60) -> Case:
    truth = Truth()
    last = [SlowEnd(lambda: truth.sleep(5))]
    title = "5 ms in another callback, after the profiler's in the list"
    return Case(
        "callback_after",
        title,
        "callback",
        n,
        "callback",
        "SlowEnd",
        Net(),
        loader(truth, n),
        last=last,
        truth=truth,
    )


def callback_before(n: int = 60) -> Case:
    truth = Truth()
    first = [SlowBackward(lambda: truth.spin(4))]
    title = "4 ms of Python in another callback's on_after_backward, before it"
    return Case(
        "callback_before", title, "callback", n, "callback", "SlowBackward", Net(), loader(truth, n),
        first=first, truth=truth,
    )  # fmt: skip


def fetching_callback(n: int = 60) -> Case:
    truth = Truth()
    batches = iter(loader(None, 2 * n, lambda _: time.sleep(0.002)))
    title = "4 ms of Python in another callback, which also waits for data of its own"
    return Case(
        "fetching_callback", title, "callback", n, "callback", "FetchingEnd", Net(), loader(truth, n),
        first=[FetchingEnd(batches, lambda: truth.spin(4))], truth=truth,
    )  # fmt: skip


def epoch_end(n: int = 60) -> Case:
    truth = Truth()
    title = "600 ms in the module's on_train_epoch_end, of one epoch"
    model = EpochEnd(lambda: truth.sleep(600))
    return Case("epoch_end", title, "lightning_module", n, "callback", "EpochEnd", model, loader(truth, n), truth=truth)


def batch_hook(n: int = 200) -> Case:
    truth = Truth()
    title = "6 ms of Python in the module's on_after_batch_transfer"
    model = Augmented(lambda: truth.spin(6))
    return Case("batch_hook", title, "python", n, "host-python", model=model, train=loader(truth, n), truth=truth)


def manual(n: int = 60) -> Case:
    truth = Truth()
    model = Manual(lambda: truth.sleep(5))
    title = "manual optimization, with 5 ms of blocking work after step()"
    return Case("manual", title, "blocked_io", n, "blocked", model=model, train=loader(truth, n), truth=truth)


def module_dict(n: int = 100) -> Case:
    truth = Truth()
    title = "two networks in a ModuleDict, an optimizer each: nothing is wrong"
    return Case("module_dict", title, "", n, "", model=Gan(), train=loader(truth, n), truth=truth)


def validation(n: int = 60) -> Case:
    truth = Truth()
    val = loader(None, 16, lambda _: time.sleep(0.004))
    title = "a slow validation loader every 10 steps"
    return Case(
        "validation", title, "validation", n, "validation", model=Validated(truth),
        train=loader(truth, n),
        val=val, options={"val_check_interval": 10}, truth=truth,
    )  # fmt: skip


def gil_hog(n: int = 240) -> Case:
    """A thread serializes metrics, in one call of C code each that holds the GIL, during the first third."""
    truth, history = Truth(), [{"loss": i / 7, "step": i} for i in range(6000)]

    def crunch() -> None:
        while not truth.counting:
            time.sleep(0.001)
        while truth.batches < n // 3:
            json.dumps(history)
            time.sleep(0.002)

    hog = threading.Thread(target=crunch, name="metrics-writer")
    hog.start()
    title = "a thread holds the GIL in the first third of the epoch"
    return Case(
        "gil_hog",
        title,
        "gil_wait",
        n,
        "gil-hog",
        "metrics-writer",
        Net(512),
        loader(truth, n),
        truth=truth,
        gil=True,
        hog=hog,
    )


def checkpoints(n: int = 60) -> Case:
    """Measured by the time of the trainer's own save_checkpoint()."""
    truth = Truth()

    class Saved(pl.callbacks.ModelCheckpoint):
        def _save_checkpoint(self, trainer: Any, filepath: str) -> None:
            with truth.trouble():
                super()._save_checkpoint(trainer, filepath)

    last = [Saved(every_n_train_steps=6, save_top_k=-1)]
    options = {"enable_checkpointing": True}
    title = "a checkpoint every 6 steps"
    return Case(
        "checkpoints", title, "checkpoint", n, "checkpoint", model=Net(2048), train=loader(truth, n), last=last,
        options=options, truth=truth,
    )  # fmt: skip


class SlowLogger(pl.loggers.Logger):
    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__()
        self.work = work

    @property
    def name(self) -> str:
        return "slow"

    @property
    def version(self) -> int:
        return 0

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        pass

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        if not any(key.startswith("trainperf") for key in metrics):  # ours are no cost of the logger's
            self.work()


def slow_logger(n: int = 60) -> Case:
    truth = Truth()
    options = {"logger": [SlowLogger(lambda: truth.sleep(4))], "log_every_n_steps": 2}
    title = "a logger that takes 4 ms, every other step"
    return Case(
        "slow_logger",
        title,
        "logger",
        n,
        "trainer-logger",
        "SlowLogger",
        Net(),
        loader(truth, n),
        options=options,
        truth=truth,
    )


def quick_callbacks(n: int = 100) -> Case:
    truth = Truth()
    title = "quick callbacks before and after the profiler's: nothing is wrong"
    first, last = [SlowBackward(lambda: None)], [SlowEnd(lambda: None)]
    return Case(
        "quick_callbacks", title, "", n, "", model=Net(512), train=loader(truth, n), first=first, last=last, truth=truth
    )


def quick_manual(n: int = 100) -> Case:
    truth = Truth()
    title = "manual optimization with nothing after step(): nothing is wrong"
    return Case("quick_manual", title, "", n, "", model=Manual(), train=loader(truth, n), truth=truth)


def quick_validation(n: int = 100) -> Case:
    truth = Truth()
    title = "a quick validation every 50 steps: nothing is wrong"
    return Case(
        "quick_validation", title, "", n, "", model=Net(512), train=loader(truth, n), val=loader(None, 4),
        options={"val_check_interval": 50}, truth=truth,
    )  # fmt: skip


CASES: tuple[Callable[[], Case], ...] = (
    healthy, data_wait, stream, other_loader, callback_after, callback_before, quick_callbacks, fetching_callback,
    epoch_end, manual, quick_manual, module_dict, validation, quick_validation, gil_hog, checkpoints, slow_logger,
)  # fmt: skip
