"""Six trainings whose limit `trainperf lab` must name: `python precision.py NAME`."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset[Any]):
    def __init__(self, width: int, sleep_ms: float = 0.0) -> None:
        self.rows, self.sleep_s = torch.randn(256, width), sleep_ms / 1e3

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(self.sleep_s)
        return self.rows[index % 256], index % 10


class Breaks(nn.Module):
    """Each layer asks for a number, which ends the compiler's graph."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(12))
        self.last = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
            if x.mean().item() > 1e6:
                x = x / 2
        result: torch.Tensor = self.last(x)
        return result


def mlp(width: int, depth: int = 2) -> nn.Module:
    inner = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*inner, nn.Linear(width, 10))


def hold_gil() -> None:
    history = [{"loss": i / 7, "step": i} for i in range(15_000)]

    def write() -> None:
        while True:
            json.dumps(history)
            time.sleep(0.005)

    threading.Thread(target=write, name="metrics-writer", daemon=True).start()


def train(model: nn.Module, batches: Iterable[Any], python: int = 0) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        sum(i % 7 for i in range(python))


def main(name: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if name == "starved":
        train(mlp(256), DataLoader(Rows(256, sleep_ms=1.0), 16))
    elif name == "matmul":
        train(mlp(1024, depth=4), DataLoader(Rows(1024), 128))
    elif name == "python":
        train(mlp(128), DataLoader(Rows(128), 16), python=200_000)
    elif name == "gil":
        hold_gil()
        train(mlp(256), DataLoader(Rows(256), 16))
    elif name == "tiny":
        train(mlp(16, depth=12), [(torch.randn(16, 16), torch.arange(16) % 10)] * 1_000_000)
    elif name == "breaks":
        train(Breaks(), [(torch.randn(16, 64), torch.arange(16) % 10)] * 1_000_000)
    else:
        sys.exit(f"no such training: {name}")


if __name__ == "__main__":
    main(sys.argv[1])
