"""How much longer a step of Hugging Face's Trainer takes with TrainPerfCallback."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import turns
from benchmarks.harness import Figure, block_of_steps, fitting_size, framework_figures, perceptron


class Healthy:
    """A healthy training with the Trainer on one thread of torch."""

    def __init__(self) -> None:
        import torch
        import transformers

        class Ends(transformers.TrainerCallback):
            def __init__(self, step_ended: turns.StepEnded) -> None:
                self._step_ended = step_ended

            def on_step_end(self, *_: Any, **__: Any) -> None:
                self._step_ended()

        class Net(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net = perceptron()

            def forward(self, x: Any, labels: Any) -> dict[str, Any]:
                return {"loss": torch.nn.functional.cross_entropy(self.net(x), labels)}

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self._module, self._ends = transformers, Ends
        self._net = Net()  # one for all trainings: where its parameters lie makes a difference of its own
        self._size = fitting_size(lambda size: self.step_ns(size) / 1e6)

    def step_ns(self, size: int = 0) -> float:
        """Of a step of a short training where nobody disturbs it."""
        return block_of_steps(lambda step_ended: self.train(step_ended, size=size, steps=250)).calm_ns

    def train(self, step_ended: turns.StepEnded, callbacks: Sequence[Any] = (), *, size: int = 0, steps: int) -> None:
        import torch

        size = size or self._size
        batch = {"x": torch.randn(size, 64), "labels": torch.randint(0, 10, (size,))}
        with tempfile.TemporaryDirectory() as folder:
            arguments = self._module.TrainingArguments(
                output_dir=folder, per_device_train_batch_size=1, max_steps=steps, report_to=[], disable_tqdm=True,
                log_level="error", logging_strategy="no", save_strategy="no", use_cpu=True,
            )  # fmt: skip
            trainer = self._module.Trainer(
                model=self._net, args=arguments, train_dataset=[batch] * steps, data_collator=_first,
                callbacks=[*callbacks, self._ends(step_ended)],
            )  # fmt: skip
            trainer.remove_callback(self._module.PrinterCallback)
            trainer.train()


def _first(rows: list[Any]) -> Any:
    return rows[0]


def figures(*, quick: bool = False) -> list[Figure]:
    return framework_figures("Trainer", ("transformers", "accelerate"), _figures, quick=quick)


def _figures(pairs: int) -> list[Figure]:
    from trainperf.integrations.transformers import TrainPerfCallback

    healthy = Healthy()
    step_ms = healthy.step_ns() / 1e6
    name = f"Hugging Face, {step_ms:.1f} ms steps with / without"

    def plain(step_ended: turns.StepEnded, steps: int) -> None:
        healthy.train(step_ended, steps=steps)

    def with_trainperf(step_ended: turns.StepEnded, steps: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            healthy.train(step_ended, [TrainPerfCallback(Path(folder) / "a.tpr", verbose=False)], steps=steps)

    others = {turns.OURS: turns.Training(with_trainperf), turns.NOTHING: turns.Training(plain)}
    measured = turns.in_turns(turns.Training(plain), others, step_ms=step_ms, pairs=pairs, rounds=2)
    return turns.figures(name, measured, target=1.01)
