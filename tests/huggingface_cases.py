"""Small trainings with Hugging Face's Trainer and Accelerate, with one known trouble each that they time themselves.

Used by tests/integration/test_huggingface_truth.py; no model is fetched from anywhere.
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

import torch
import trainperf
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate
from trainperf.integrations.transformers import TrainPerfCallback
from transformers import Trainer, TrainerCallback, TrainingArguments

sys.path.insert(0, str(Path(__file__).parent / "programs"))

from _common import keep_what_is_freed
from truth import KnownTrouble, Truth

BATCH = 4
Slow = Callable[[], object]


class Rows(Dataset[Any]):
    def __init__(self, truth: Truth | None, length: int, slow: Slow = lambda: None) -> None:
        self.truth, self.length, self.slow = truth, length, slow
        self.rows = [{"x": torch.randn(64), "labels": torch.tensor(i % 10)} for i in range(8)]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if self.truth is not None:
            self.truth.begin()
        if index % BATCH == 0:  # once a batch: timing it costs, too
            self.slow()
        return self.rows[index % 8]


class Stream(IterableDataset[Any]):
    def __init__(self, truth: Truth | None, length: int, slow: Slow = lambda: None) -> None:
        self.inner = Rows(truth, length, slow)

    def __iter__(self) -> Iterator[Any]:
        return (self.inner[index] for index in range(len(self.inner)))


class Net(nn.Module):
    def __init__(self, width: int = 192) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.head(self.net(x))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


@dataclass
class Case(KnownTrouble):
    """One training."""

    title: str
    cause: str
    steps: int
    finding: str = ""
    who: str = ""
    truth: Truth = field(default_factory=Truth)
    gil: bool = False
    fix: str = ""
    train: Callable[[Path], Any] = lambda path: None  # path of the run file -> Watch


class Hog:
    """A thread that holds the GIL most of the time, for as long as the truth counts."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self.thread = threading.Thread(target=self.hold, name="tokenizer-cache", daemon=True)
        self.done = threading.Event()
        self.thread.start()

    def hold(self) -> None:
        text = json.dumps(list(range(40_000)))
        while not self.done.is_set():
            json.loads(text)

    def end(self) -> None:
        self.done.set()
        self.thread.join()


def collator(case: Case) -> Callable[[list[Any]], Any]:
    """Making a batch of rows is a part of waiting for data."""

    def collate(rows: list[Any]) -> Any:
        if case.cause != "data_wait":
            return default_collate(rows)
        with case.truth.trouble():
            return default_collate(rows)

    return collate


# The Trainer


class Clock(TrainerCallback):  # type: ignore[misc]
    """Ends the truth's time. It stands before trainperf's callback: what that does at its end is not training."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.truth.batches += 1

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self.truth.end()


class TimedTrainer(Trainer):  # type: ignore[misc]
    """Times its evaluations, its saves, or its logging, from the outside."""

    timed = ""
    truth: Truth

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        if self.timed != "evaluate":
            return super().evaluate(*args, **kwargs)
        with self.truth.trouble():
            return super().evaluate(*args, **kwargs)

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> Any:
        if self.timed != "save":
            return super()._save_checkpoint(*args, **kwargs)
        with self.truth.trouble():
            return super()._save_checkpoint(*args, **kwargs)

    def log(self, *args: Any, **kwargs: Any) -> Any:
        if self.timed != "log":
            return super().log(*args, **kwargs)
        with self.truth.trouble():
            return super().log(*args, **kwargs)


def arguments(folder: Path, **options: Any) -> TrainingArguments:
    return TrainingArguments(
        **{
            "output_dir": str(folder / "out"),
            "per_device_train_batch_size": BATCH,
            "num_train_epochs": 1,
            "report_to": [],
            "disable_tqdm": True,
            "log_level": "error",
            "logging_steps": 10,
            "save_strategy": "no",
            "use_cpu": True,
            **options,
        }
    )


def warm_up(folder: Path) -> None:
    """A first step waits for its code from a cold disk: what the truth's clock would take for a wait for the GIL."""
    Trainer(model=Net(), args=arguments(folder, max_steps=1), train_dataset=Rows(None, BATCH)).train()


def with_trainer(
    case: Case, dataset: Any, *, width: int = 192, timed: str = "", callbacks: Any = (), **options: Any
) -> Case:
    def train(path: Path) -> Any:
        torch.set_num_threads(1)
        if case.gil:
            warm_up(path.parent)
        callback = TrainPerfCallback(path, verbose=False)
        trainer = TimedTrainer(
            model=Net(width),
            args=arguments(path.parent, **options),
            train_dataset=dataset,
            eval_dataset=Rows(None, 32, lambda: time.sleep(0.006)),
            data_collator=collator(case),
            callbacks=[Clock(case.truth), callback, *callbacks],
        )
        trainer.timed, trainer.truth = timed, case.truth
        hog = Hog(case.truth) if case.gil else None
        try:
            with case.truth.fetches():
                trainer.train()
        finally:
            if hog is not None:
                hog.end()
        # Older versions leave out what is left of an epoch that does not divide evenly.
        assert case.steps - 2 <= trainer.state.global_step == case.truth.batches
        case.steps = trainer.state.global_step
        return callback.watch

    case.train = train
    return case


def trainer_data_wait(n: int = 50) -> Case:
    case = Case("Trainer: a slow dataset", "data_wait", n, "data-starved", fix="dataloader_num_workers=")
    return with_trainer(case, Rows(case.truth, n * BATCH, lambda: case.truth.sleep(4)))


def trainer_accumulation(n: int = 25) -> Case:
    """Four micro-batches a step, all fetched before it begins; the last step of an epoch has fewer."""
    case = Case("Trainer: a slow dataset, 4 micro-batches a step", "data_wait", 2 * n, "data-starved")
    rows = Rows(case.truth, (n * 4 - 2) * BATCH, lambda: case.truth.sleep(2.5))
    return with_trainer(case, rows, gradient_accumulation_steps=4, num_train_epochs=2)


def trainer_stream(n: int = 50) -> Case:
    case = Case("Trainer: a slow dataset without a length", "data_wait", n, "data-starved")
    return with_trainer(case, Stream(case.truth, n * BATCH, lambda: case.truth.sleep(4)), max_steps=n)


def trainer_gil(n: int = 20) -> Case:
    case = Case("Trainer: a thread holds the GIL", "gil_wait", n, "gil-hog", "tokenizer-cache", gil=True)
    return with_trainer(case, Rows(case.truth, n * BATCH))


def trainer_evaluation(n: int = 40) -> Case:
    case = Case("Trainer: evaluation every 5 steps", "validation", n, "validation", fix="eval_steps=")
    return with_trainer(case, Rows(case.truth, n * BATCH), timed="evaluate", eval_strategy="steps", eval_steps=5)


def trainer_save(n: int = 40) -> Case:
    case = Case("Trainer: a checkpoint every 10 steps", "checkpoint", n, "checkpoint", fix="save_steps=")
    rows = Rows(case.truth, n * BATCH)
    return with_trainer(case, rows, width=1024, timed="save", save_strategy="steps", save_steps=10)


class SlowStep(TrainerCallback):  # type: ignore[misc]
    def __init__(self, work: Callable[[], object]) -> None:
        self.work = work

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.work()


class FetchingSubstep(TrainerCallback):  # type: ignore[misc]
    """Reads a loader of its own between two micro-batches."""

    def __init__(self, truth: Truth) -> None:
        self.batches = iter(DataLoader(Rows(None, 1 << 20, lambda: truth.sleep(3)), batch_size=BATCH))

    def on_substep_end(self, *_: Any, **__: Any) -> None:
        next(self.batches)


class SlowLog(TrainerCallback):  # type: ignore[misc]
    def __init__(self, work: Callable[[], object]) -> None:
        self.work = work

    def on_log(self, *_: Any, **__: Any) -> None:
        self.work()


def trainer_callback(n: int = 50) -> Case:
    case = Case("Trainer: 4 ms in another callback", "callback", n, "callback", "SlowStep", fix="state.global_step")
    return with_trainer(case, Rows(case.truth, n * BATCH), callbacks=[SlowStep(lambda: case.truth.sleep(4))])


def trainer_fetching_callback(n: int = 25) -> Case:
    case = Case("Trainer: another callback reads data of its own, 3 times a step", "data_wait", n, "data-starved",
                "FetchingSubstep.on_substep_end", fix="of the loader that FetchingSubstep")  # fmt: skip
    callbacks = [FetchingSubstep(case.truth)]
    return with_trainer(case, Rows(case.truth, n * 4 * BATCH), callbacks=callbacks, gradient_accumulation_steps=4)


def trainer_logging(n: int = 50) -> Case:
    case = Case("Trainer: 4 ms in a logger, each step", "logging", n, "trainer-logger")
    slow = SlowLog(lambda: time.sleep(0.004))
    return with_trainer(case, Rows(case.truth, n * BATCH), callbacks=[slow], logging_steps=1, timed="log")


def trainer_healthy(n: int = 80) -> Case:
    keep_what_is_freed()  # where page faults are dear, it loses a third to the heap otherwise
    case = Case("Trainer: nothing is wrong", "", n)
    return with_trainer(case, Rows(case.truth, n * BATCH), width=2048)


# Accelerate, under plain watch()


def with_accelerate(
    case: Case,
    dataset: Any,
    *,
    width: int = 192,
    accumulate: int = 1,
    dispatch: bool = False,
    epochs: int = 1,
    after: Callable[[Accelerator, int, Path], object] = lambda accelerator, step, folder: None,
) -> Case:
    def train(path: Path) -> Any:
        torch.set_num_threads(1)
        if case.gil:
            warm_up(path.parent)
        accelerator = Accelerator(
            cpu=True,
            gradient_accumulation_steps=accumulate,
            dataloader_config=DataLoaderConfiguration(dispatch_batches=dispatch),
        )
        net = Net(width)
        model, optimizer, loader = accelerator.prepare(
            net,
            torch.optim.SGD(net.parameters(), lr=0.01),
            DataLoader(dataset, batch_size=BATCH, collate_fn=collator(case)),
        )
        hog = Hog(case.truth) if case.gil else None
        with case.truth.fetches(), trainperf.watch(path, verbose=False) as watch:
            for _ in range(epochs):
                for batch in loader:
                    with accelerator.accumulate(model):
                        loss = model(**batch)["loss"]
                        accelerator.backward(loss)
                        optimizer.step()
                        optimizer.zero_grad()
                    after(accelerator, case.truth.batches, path.parent)
                    case.truth.batches += 1
            case.truth.end()
        if hog is not None:
            hog.end()
        assert case.truth.batches == case.steps
        return watch

    case.train = train
    return case


def accelerate_data_wait(n: int = 50) -> Case:
    case = Case("Accelerate: a slow dataset, one batch fetched ahead", "data_wait", n, "data-starved")
    return with_accelerate(case, Rows(case.truth, n * BATCH, lambda: case.truth.sleep(4)))


def accelerate_stream(n: int = 50) -> Case:
    case = Case("Accelerate: the same without a length, dispatched", "data_wait", n, "data-starved")
    return with_accelerate(case, Stream(case.truth, n * BATCH, lambda: case.truth.sleep(4)), dispatch=True)


def accelerate_accumulation(n: int = 15) -> Case:
    case = Case("Accelerate: a thread holds the GIL; 4 batches an update", "gil_wait", 2 * n, "gil-hog", gil=True)
    return with_accelerate(case, Rows(case.truth, n * BATCH), accumulate=4, epochs=2)


def accelerate_save(n: int = 40) -> Case:
    case = Case("Accelerate: save_state every 10 batches", "checkpoint", n, "checkpoint")

    def save(accelerator: Accelerator, step: int, folder: Path) -> None:
        if step % 10 == 9:
            with case.truth.trouble():
                accelerator.save_state(str(folder / "state"))

    return with_accelerate(case, Rows(case.truth, n * BATCH), width=1024, after=save)


def accelerate_healthy(n: int = 80) -> Case:
    keep_what_is_freed()
    case = Case("Accelerate: nothing is wrong", "", n)
    return with_accelerate(case, Rows(case.truth, n * BATCH), width=2048)


CASES = (
    trainer_data_wait,
    trainer_accumulation,
    trainer_stream,
    trainer_gil,
    trainer_evaluation,
    trainer_save,
    trainer_callback,
    trainer_fetching_callback,
    trainer_logging,
    trainer_healthy,
    accelerate_data_wait,
    accelerate_stream,
    accelerate_accumulation,
    accelerate_save,
    accelerate_healthy,
)
