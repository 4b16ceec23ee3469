"""A training with a setting that is wrong, or right: `python priced_setting.py ID wrong`, ids of `trainperf check`.

`train(id, wrong, seconds)` gives the milliseconds of its step, by its own clock.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

IDS = (
    "anomaly", "tracer", "profiler", "gradcheck", "zero_grad", "optimizer", "denormals", "workers",
    "persistent_workers", "threads", "affinity",
)  # fmt: skip


class Rows(Dataset[Any]):
    def __init__(self, length: int, sleep_s: float) -> None:
        self.rows, self.length, self.sleep_s = torch.randn(256, 64), length, sleep_s

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.sleep_s:
            time.sleep(self.sleep_s)
        return self.rows[index % 256], index % 10


def _traced(frame: Any, event: str, arg: Any) -> Any:
    return _traced


@contextlib.contextmanager
def _set(id: str, wrong: bool) -> Iterator[None]:
    """What is of the process."""
    torch.set_num_threads({"threads": 8 if wrong else 2, "affinity": 2}.get(id, 1))
    torch.autograd.set_detect_anomaly(wrong and id == "anomaly")
    if id == "affinity" and wrong:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if id == "denormals" and not wrong:
        torch.set_flush_denormal(True)
    profiler = torch.profiler.profile(with_stack=True) if id == "profiler" and wrong else contextlib.nullcontext()
    if id == "tracer" and wrong:
        sys.settrace(_traced)
    try:
        with profiler:
            yield
    finally:
        sys.settrace(None)


def _python(x: torch.Tensor) -> float:
    """A metric of the user's, in Python."""
    return sum(v * v for v in x.tolist())


def train(id: str, wrong: bool, seconds: float) -> float:
    torch.manual_seed(0)
    with _set(id, wrong):
        wide = {"threads": 512, "affinity": 1024}.get(id, 64)
        deep = {"zero_grad": 60, "optimizer": 60}.get(id, 4)
        model = nn.Sequential(nn.Linear(64, wide), *(nn.Linear(wide, wide) for _ in range(deep)), nn.Linear(wide, 10))
        if id == "optimizer":
            optimizer: Any = torch.optim.Adam(model.parameters(), foreach=False, fused=not wrong)
        else:
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        workers = {"workers": 0 if wrong else 4, "persistent_workers": 2}.get(id, 0)
        length = 16 * (40 if id == "persistent_workers" else 100_000)
        kept = id == "persistent_workers" and not wrong
        rows = Rows(length, 0.0005 if id == "workers" else 0.0)
        loader = DataLoader(rows, batch_size=16, num_workers=workers, persistent_workers=kept)
        small = torch.full((20_000,), 1e-39)
        begun, steps, end = 0.0, 0, time.perf_counter() + 0.2
        while True:
            for x, y in loader:
                optimizer.zero_grad(set_to_none=not (id == "zero_grad" and wrong))
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                if id == "denormals":
                    small = small * 1.0
                if id == "tracer":
                    _python(model[0].weight[:8].flatten())
                if id == "gradcheck" and wrong:
                    torch.autograd.gradcheck(torch.tanh, torch.ones(2, dtype=torch.double, requires_grad=True))
                steps += 1
                if id != "persistent_workers" and time.perf_counter() > end:
                    break
            now = time.perf_counter()
            if now > end:
                if begun:
                    return (now - begun) / steps * 1e3
                begun, steps, end = now, 0, now + seconds


if __name__ == "__main__":
    print(f"{train(sys.argv[1], sys.argv[2] == 'wrong', 6.0):.3f} ms/step")
