"""The loop of step_overhead.py in a process of its own, plain or in TraceML's bracket; prints the mean ns of a step.

python benchmarks/traceml_child.py BATCH STEPS OUT          (under `traceml run` the bracket is used)
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader


def main() -> None:
    size, steps, out = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 10))
    loss, optimizer = nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.01)
    bracket: Any = nullcontext
    if os.environ.get("LOCAL_RANK") is not None:
        import traceml_ai

        traceml_ai.init(mode="auto")

        def bracket() -> AbstractContextManager[None]:
            return traceml_ai.trace_step(model)

    def train(count: int) -> float:
        batch = (torch.randn(size, 64), torch.randint(0, 10, (size,)))
        start = time.perf_counter_ns()
        for x, y in DataLoader([batch] * count, batch_size=None):  # type: ignore[arg-type]
            with bracket():
                optimizer.zero_grad()
                loss(model(x), y).backward()
                optimizer.step()
        return (time.perf_counter_ns() - start) / count

    train(100)
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[0]})
    out.write_text(str(train(steps)))


if __name__ == "__main__":
    main()
