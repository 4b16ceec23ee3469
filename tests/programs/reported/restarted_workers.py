"""Short epochs of a loader whose two workers are forked anew for each, beside a busy neighbour (BUSY=1)."""

import json
import os
import subprocess
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FIXED = os.environ.get("FIXED") == "1"
EPOCHS, STEPS, BATCH = 40, 12, 32


class Digits(Dataset):
    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(index)
        return torch.randn(256, generator=draw), index % 10


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    loader = DataLoader(Digits(), batch_size=BATCH, num_workers=2, persistent_workers=FIXED)
    started = time.perf_counter_ns()
    parts = {"iter": 0, "first": 0, "last": 0}
    for _ in range(EPOCHS):
        a = time.perf_counter_ns()
        batches = iter(loader)
        b = time.perf_counter_ns()
        batch = next(batches)
        c = time.perf_counter_ns()
        parts["iter"] += b - a
        parts["first"] += c - b
        while batch is not None:
            inputs, labels = batch
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            d = time.perf_counter_ns()
            batch = next(batches, None)
            if batch is None:
                parts["last"] += time.perf_counter_ns() - d
    wall = time.perf_counter_ns() - started
    truth = {"finding": "worker-startup", "share": round(sum(parts.values()) / wall, 3)}
    print("TRUTH " + json.dumps({"finding": None} if FIXED else truth))


if __name__ == "__main__":
    count = int(os.environ.get("BUSY", "0"))
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        main()
    finally:
        for other in busy:
            other.kill()
