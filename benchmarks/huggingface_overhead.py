"""How much longer a step of Hugging Face's Trainer takes with TrainPerfCallback."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import (
    SKIPPED,
    STEPS,
    Block,
    Figure,
    Mark,
    block_of,
    fitting_size,
    framework_figures,
    kept_affinity,
    mark,
    perceptron,
    pin,
    training_figures,
)


class Timed:
    """A healthy training with the Trainer on one thread of torch, timed from step to step after its first ones."""

    def __init__(self) -> None:
        import torch
        import transformers

        class Ends(transformers.TrainerCallback):  # type: ignore[misc]
            def __init__(self) -> None:
                self.marks: list[Mark] = []

            def on_train_begin(self, *_: Any, **__: Any) -> None:
                pin()  # after the callback before it, whose helper threads run where the kernel puts them

            def on_step_end(self, *_: Any, **__: Any) -> None:
                self.marks.append(mark())

        class Net(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net = perceptron()

            def forward(self, x: Any, labels: Any) -> dict[str, Any]:
                return {"loss": torch.nn.functional.cross_entropy(self.net(x), labels)}

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self._module, self._ends, self._net = transformers, Ends, Net
        self.size = fitting_size(lambda size: self.train(size=size).middle_ns / 1e6)

    def train(self, callbacks: Sequence[Any] = (), *, size: int = 0) -> Block:
        import torch

        size = size or self.size
        batch = {"x": torch.randn(size, 64), "labels": torch.randint(0, 10, (size,))}
        ends = self._ends()
        with kept_affinity(), tempfile.TemporaryDirectory() as folder:
            arguments = self._module.TrainingArguments(
                output_dir=folder, per_device_train_batch_size=1, max_steps=STEPS, report_to=[], disable_tqdm=True,
                log_level="error", logging_strategy="no", save_strategy="no", use_cpu=True,
            )  # fmt: skip
            trainer = self._module.Trainer(
                model=self._net(), args=arguments, train_dataset=[batch] * STEPS, data_collator=_first,
                callbacks=[*callbacks, ends],
            )  # fmt: skip
            trainer.remove_callback(self._module.PrinterCallback)
            trainer.train()
        return block_of(ends.marks[SKIPPED:])


def _first(rows: list[Any]) -> Any:
    return rows[0]


def figures(*, quick: bool = False) -> list[Figure]:
    return framework_figures("Trainer", ("transformers", "accelerate"), _figures, quick=quick)


def _figures(count: int) -> list[Figure]:
    from trainperf.integrations.transformers import TrainPerfCallback

    timed = Timed()
    step_ms = timed.train().middle_ns / 1e6

    def with_trainperf() -> Block:
        with tempfile.TemporaryDirectory() as folder:
            return timed.train([TrainPerfCallback(Path(folder) / "a.tpr", verbose=False)])

    return training_figures(
        f"Hugging Face, {step_ms:.1f} ms steps with / without", timed.train, with_trainperf, {},
        count=count, note=f"{count} rounds of {STEPS - SKIPPED} steps",
    )  # fmt: skip
