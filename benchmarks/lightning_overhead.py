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
    paired_ratios,
    perceptron,
    pin,
    ratio_figure,
    training_figures,
)

CHILD = Path(__file__).with_name("lightning_child.py")


class Timed:
    """A healthy Lightning training on one thread of torch, timed from batch to batch after its first ones."""

    def __init__(self, size: int = 0) -> None:
        import lightning.pytorch as pl
        import torch
        from torch.utils.data import DataLoader

        class Ends(pl.Callback):
            def on_train_start(self, *_: Any) -> None:
                pin()  # the helper threads of whoever watches are there by now, and run where the kernel puts them
                self.marks: list[Mark] = []

            def on_train_batch_end(self, *_: Any) -> None:
                self.marks.append(mark())

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
        self._trainer, self._model, self._ends, self._loader = pl.Trainer, Model, Ends, DataLoader
        self.size = size or fitting_size(lambda size: self.fit(size=size).middle_ns / 1e6)

    def fit(
        self,
        callbacks: Sequence[Any] = (),
        options: Mapping[str, Any] = MappingProxyType({}),
        *,
        size: int = 0,
        one_cpu: bool = False,
    ) -> Block:
        """`one_cpu`: helper threads run on that of the training as well."""
        import torch

        size = size or self.size
        batch = (torch.randn(size, 64), torch.randint(0, 10, (size,)))
        ends = self._ends()
        trainer = self._trainer(
            max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
            enable_checkpointing=False, callbacks=[*callbacks, ends], **options,
        )  # fmt: skip
        with kept_affinity(), tempfile.TemporaryDirectory() as folder:
            if one_cpu:
                pin()
            trainer._default_root_dir = folder
            trainer.fit(self._model(), self._loader([batch] * STEPS, batch_size=None))  # type: ignore[arg-type]
        return block_of(ends.marks[SKIPPED:])


def figures(*, quick: bool = False) -> list[Figure]:
    return framework_figures("Lightning", ("lightning",), _figures, quick=quick)


def _figures(count: int) -> list[Figure]:
    from lightning.pytorch.profilers import SimpleProfiler
    from trainperf.integrations.lightning import TrainPerf

    timed = Timed()
    step_ms = timed.fit().middle_ns / 1e6
    name, note = f"Lightning, {step_ms:.1f} ms steps with / without", f"{count} rounds of {STEPS - SKIPPED} steps"

    def with_trainperf(*, one_cpu: bool = False) -> Block:
        with tempfile.TemporaryDirectory() as folder:
            return timed.fit([TrainPerf(Path(folder) / "a.tpr", verbose=False)], one_cpu=one_cpu)

    def with_simple() -> Block:
        return timed.fit(options={"profiler": SimpleProfiler()})

    others = {
        "TrainPerf, its threads on the training's CPU": lambda: with_trainperf(one_cpu=True),
        "SimpleProfiler": with_simple,
    }
    result = training_figures(name, timed.fit, with_trainperf, others, count=count, note=note)
    return [*result, _traceml(name, str(timed.size), max(2, count // 6))]


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
