"""What tests on a GPU share: `make gpu`, or `pytest tests/gpu`. Elsewhere each is skipped, with the reason."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
import trainperf
from trainperf.run import Run


def why_no_gpu() -> str:
    if torch.version.cuda is None:
        return f"this torch ({torch.__version__}) is built without CUDA"
    if not torch.cuda.is_available():
        return "no GPU, or no driver for it"
    return ""


needs_gpu = pytest.mark.skipif(bool(why_no_gpu()), reason=why_no_gpu())


Step = Callable[[], None]


class Trainer:
    """A small model on the GPU, steady steps of a few milliseconds, and each step's GPU time by CUDA events."""

    def __init__(self, width: int = 2048, layers: int = 8) -> None:
        torch.manual_seed(0)
        blocks = [torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU()) for _ in range(layers)]
        self.model = torch.nn.Sequential(*blocks).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.batch = torch.randn(2048, width, device="cuda")
        self.spans: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        for _ in range(10):
            self.step()
        torch.cuda.synchronize()
        self.spans.clear()

    def step(self) -> None:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        self.optimizer.zero_grad(set_to_none=True)
        self.model(self.batch).square().mean().backward()
        self.optimizer.step()
        end.record()
        self.spans.append((begin, end))

    def gpu_ms(self) -> float:
        """The truth: from the first kernel of a step to its last, summed."""
        torch.cuda.synchronize()
        return sum(begin.elapsed_time(end) for begin, end in self.spans)


@lru_cache(maxsize=1)
def trainer() -> Trainer:
    return Trainer()


def watched(folder: Path, step: Step, steps: int = 60, **options: Any) -> Run:
    """The run of that many steps, each followed by nothing but the next; the last waits for all the work, which would
    else, up to a thousand kernels, be in no step."""
    torch.cuda.synchronize()
    with trainperf.watch(folder / "a.tpr", overwrite=True, verbose=False, cuda="full", **options) as run:
        for n in range(steps):
            step()
            if n == steps - 1:
                torch.cuda.synchronize()
            run.step()
    return trainperf.open(folder / "a.tpr")
