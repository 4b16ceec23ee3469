"""A training that a setting makes faster, by more the larger SIZE is: `python known_gain.py KIND SIZE`.

KIND:SETTING is one of SETTINGS. `step_ms(kind, size, apply)` trains for a moment with the setting applied by hand, or
without: what a trial of the setting is compared with.
"""

from __future__ import annotations

import gc
import sys
import time
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SETTINGS = {
    "storage": "num_workers=4",  # samples that sleep for SIZE ms
    "decoding": "num_workers=1",  # samples that compute, SIZE times
    "collections": "gc=freeze",  # SIZE thousand objects, which a collection in each step goes through
    "epochs": "persistent_workers=True",  # SIZE times as many starts of workers
    "denormals": "flush_denormal=on",  # SIZE products of denormal numbers
}
_BATCH = 16


class Rows(Dataset[Any]):
    def __init__(self, kind: str, size: float, length: int) -> None:
        self.rows, self.length = torch.randn(256, 256), length
        self.sleep_s = size / 1e3 if kind == "storage" else 0.0
        self.rounds = int(size) if kind == "decoding" else 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.sleep_s:
            time.sleep(self.sleep_s)
        row = self.rows[index % 256]
        for _ in range(self.rounds):
            row = torch.tanh(row)
        return row, index % 10


class Training:
    def __init__(self, kind: str, size: float, *, apply: bool) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.kind, self.size, self.kept = kind, size, []  # type: str, float, list[Any]
        steps = max(2, int(200 / size)) if kind == "epochs" else 1_000_000
        workers = 1 if kind == "epochs" else int(apply) * {"storage": 4, "decoding": 1}.get(kind, 0)
        self.loader = DataLoader(
            Rows(kind, size, steps * _BATCH),
            batch_size=_BATCH,
            num_workers=workers,
            persistent_workers=apply and kind == "epochs",
        )
        inner = (layer for _ in range(4) for layer in (nn.Linear(512, 512), nn.ReLU()))
        self.model = nn.Sequential(nn.Linear(256, 512), *inner)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.small = torch.full((4000,), 1e-39)
        if kind == "collections":
            gc.collect()
            gc.freeze()  # what torch made
            self.kept = [{"row": [i]} for i in range(int(1000 * size))]
        if apply and kind == "collections":
            gc.collect()
            gc.freeze()
        if apply and kind == "denormals":
            torch.set_flush_denormal(True)

    def step(self, batch: Any) -> None:
        x, y = batch
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        if self.kind == "denormals":
            for _ in range(int(self.size)):
                self.small * 0.5
        if self.kind == "collections":
            gc.collect()

    def epoch(self) -> None:
        for batch in self.loader:
            self.step(batch)


def step_ms(kind: str, size: float, apply: bool, seconds: float = 0.3) -> float:
    """Of whole epochs, where a kind is about epochs; the first tenth of a second is left out."""
    training = Training(kind, size, apply=apply)
    begun, steps, end = 0.0, 0, time.perf_counter() + 0.1
    while True:
        for batch in training.loader:
            training.step(batch)
            steps += 1
            now = time.perf_counter()
            if kind != "epochs" and now > end:
                if begun:
                    return (now - begun) / steps * 1e3
                begun, steps, end = now, 0, now + seconds
        now = time.perf_counter()
        if now > end:
            if begun:
                return (now - begun) / steps * 1e3
            begun, steps, end = now, 0, now + seconds


if __name__ == "__main__":
    training = Training(sys.argv[1], float(sys.argv[2]), apply=False)
    while True:
        training.epoch()
