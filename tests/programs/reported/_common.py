"""What programs after public reports share: the switch to the fixed twin, the truth's clock, a small classifier."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

FIXED = os.environ.get("FIXED") == "1"


class Clock:
    """Adds up what passes in `with clock:`, and how long of it this thread was not on a CPU."""

    def __init__(self) -> None:
        self.ns = self.off_cpu_ns = 0
        self.started = self.started_cpu = 0

    def __enter__(self) -> None:
        self.started, self.started_cpu = time.perf_counter_ns(), time.thread_time_ns()

    def __exit__(self, *_: object) -> None:
        cpu, passed = time.thread_time_ns() - self.started_cpu, time.perf_counter_ns() - self.started
        self.ns += passed
        self.off_cpu_ns += max(0, passed - cpu)


class Classifier:
    """Two hidden layers, trained by SGD: some 2 ms a step at width 512 and 64 samples."""

    def __init__(self, features: int = 64, width: int = 512, classes: int = 4) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.model = nn.Sequential(
            *(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes))
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-2)
        self.features, self.classes = features, classes

    def batch(self, samples: int = 64) -> tuple[Tensor, Tensor]:
        return torch.randn(samples, self.features), torch.randint(0, self.classes, (samples,))

    def backward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(self.model(inputs), labels)
        self.optimizer.zero_grad()
        loss.backward()
        return loss

    def step(self, inputs: Tensor, labels: Tensor) -> Tensor:
        loss = self.backward(inputs, labels)
        self.optimizer.step()
        return loss


def for_seconds(seconds: float = 30.0) -> Iterator[int]:
    """Steps for so long, since memory is read once a second; counted."""
    end = time.monotonic() + seconds
    for step in itertools.count():
        if time.monotonic() >= end:
            return
        yield step


def tell_growth() -> None:
    """That memory grows: an info where it is sure of it only in a longer run."""
    print("TRUTH " + json.dumps({"finding": None} if FIXED else {"finding": "memory-growth", "also": [""]}))


def delay_ns() -> int:
    """How long the calling thread has waited for a CPU."""
    with open(f"/proc/self/task/{threading.get_native_id()}/schedstat") as file:
        return int(file.read().split()[1])


def tell(finding: str, trouble_ns: int, wall_ns: int, **more: Any) -> None:
    """Prints the truth; that of a fixed twin is that there is nothing to find."""
    truth = {"finding": finding, "share": round(trouble_ns / wall_ns, 3), **more}
    print("TRUTH " + json.dumps({"finding": None} if FIXED else truth))
