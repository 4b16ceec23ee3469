"""Loader workers read one archive file, each read under an flock: one worker at a time makes progress."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FIXED = os.environ.get("FIXED") == "1"
STEPS = 130


class Archive(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, path: str) -> None:
        self.path = path

    def __len__(self) -> int:
        return 4 * STEPS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with open(self.path, "rb") as file:
            if not FIXED:
                fcntl.flock(file, fcntl.LOCK_EX)  # trouble
            time.sleep(0.01)  # a slow disk
            data = file.read(256)
        return torch.frombuffer(bytearray(data), dtype=torch.uint8).float() / 255, index % 4


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.NamedTemporaryFile() as file:
        file.write(os.urandom(256))
        file.flush()
        model = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        loader = iter(DataLoader(Archive(file.name), batch_size=4, num_workers=2, multiprocessing_context="fork"))
        waited, start = 0.0, time.perf_counter()
        while True:
            before = time.perf_counter()
            batch = next(loader, None)
            waited += time.perf_counter() - before
            if batch is None:
                break
            loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        wall = time.perf_counter() - start
    print("TRUTH " + json.dumps({"finding": "workers-too-slow", "share": round(waited / wall, 3), "steps": STEPS}))


if __name__ == "__main__":
    main()
