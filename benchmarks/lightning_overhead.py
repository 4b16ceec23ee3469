"""How much longer a step of PyTorch Lightning takes with TrainPerf, with SimpleProfiler, with TraceML's callback."""

from __future__ import annotations

import importlib.util
import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks import turns
from benchmarks.harness import (
    Figure,
    block_of_steps,
    fitting_size,
    framework_figures,
    paired_ratios,
    perceptron,
    ratio_figure,
)

CHILD = Path(__file__).with_name("lightning_child.py")


class Healthy:
    """A healthy Lightning training on one thread of torch."""

    def __init__(self, size: int = 0) -> None:
        import lightning.pytorch as pl
        import torch
        from torch.utils.data import DataLoader

        class Ends(pl.Callback):
            def __init__(self, step_ended: turns.StepEnded) -> None:
                self._step_ended = step_ended

            def on_train_batch_end(self, *_: Any) -> None:
                self._step_ended()

        class Model(pl.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.net = perceptron()

            def training_step(self, batch: Any, batch_idx: int) -> Any:
                loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
                self.log("loss", loss)
                return loss

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), lr=0.01)

        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)  # its import has set another
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self._trainer, self._ends, self._loader = pl.Trainer, Ends, DataLoader
        self._model = Model()  # one for all trainings: where its parameters lie makes a difference of its own
        self.size = size or fitting_size(lambda size: self.step_ns(size=size) / 1e6)

    def step_ns(self, **more: Any) -> float:
        """Of a step of a short training where nobody disturbs it."""
        return block_of_steps(lambda step_ended: self.fit(step_ended, steps=250, **more)).calm_ns

    def fit(
        self,
        step_ended: turns.StepEnded,
        callbacks: Sequence[Any] = (),
        options: Mapping[str, Any] = MappingProxyType({}),
        *,
        size: int = 0,
        steps: int,
    ) -> None:
        import torch

        size = size or self.size
        batch = (torch.randn(size, 64), torch.randint(0, 10, (size,)))
        trainer = self._trainer(
            max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
            enable_checkpointing=False, callbacks=[*callbacks, self._ends(step_ended)], **options,
        )  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            trainer._default_root_dir = folder  # type: ignore[attr-defined]
            trainer.fit(self._model, self._loader([batch] * steps, batch_size=None))  # type: ignore[arg-type]


def figures(*, quick: bool = False) -> list[Figure]:
    return framework_figures("Lightning", ("lightning",), _figures, quick=quick)


def _figures(pairs: int) -> list[Figure]:
    from lightning.pytorch.profilers import SimpleProfiler
    from trainperf.integrations.lightning import TrainPerf

    healthy = Healthy()
    step_ms = healthy.step_ns() / 1e6
    name = f"Lightning, {step_ms:.1f} ms steps with / without"

    def plain(step_ended: turns.StepEnded, steps: int) -> None:
        healthy.fit(step_ended, steps=steps)

    def with_trainperf(step_ended: turns.StepEnded, steps: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            healthy.fit(step_ended, [TrainPerf(Path(folder) / "a.tpr", verbose=False)], steps=steps)

    def with_simple(step_ended: turns.StepEnded, steps: int) -> None:
        healthy.fit(step_ended, options={"profiler": SimpleProfiler()}, steps=steps)

    def measured(rounds: int, others: Mapping[str, turns.Training]) -> list[turns.Turns]:
        return turns.in_turns(turns.Training(plain), others, step_ms=step_ms, pairs=pairs, rounds=rounds)

    ours, nothing = turns.Training(with_trainperf), turns.Training(plain)
    beside = {
        "trainperf, its threads on the training's CPU": turns.Training(with_trainperf, one_cpu=True),
        "SimpleProfiler": turns.Training(with_simple),
    }
    result = turns.figures(name, measured(2, {turns.OURS: ours, turns.NOTHING: nothing}), target=1.01)
    if pairs <= 2:  # a look
        return result
    result += turns.figures(name, measured(1, beside))
    return [*result, _traceml(name, str(healthy.size), max(2, pairs // 2))]


def _traceml(name: str, size: str, pairs: int) -> Figure:
    """It works under its launcher only: processes alternate."""
    name = f"{name}: traceml-ai's callback"
    if importlib.util.find_spec("traceml_ai") is None:
        return Figure(name, None, note="traceml-ai is not installed")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "ns"

        def run(command: list[str], tool: str, more: list[str]) -> float:
            out.unlink(missing_ok=True)
            done = subprocess.run(
                [*command, str(CHILD), *more, "time", size, tool, str(out)],
                check=False, cwd=folder, capture_output=True, text=True, timeout=180,
            )  # fmt: skip
            if not out.exists():
                raise RuntimeError(f"it wrote no time:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
            return float(json.loads(out.read_text()))

        launcher = [sys.executable, "-m", "traceml_ai.launcher.cli", "run", "--mode", "summary", "--logs-dir", folder]
        try:
            ratios = paired_ratios(
                lambda: run([sys.executable], "none", []), lambda: run(launcher, "traceml", ["--args"]), pairs
            )
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            return Figure(name, None, note=f"could not be run: {str(error)[:200]}")
    return ratio_figure(name, ratios, note=f"{len(ratios)} pairs of processes, under its launcher")
