"""A helper reserves a CPU for "real-time" work before the loader starts; the workers inherit what is left of it."""

import json
import os
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FIXED = os.environ.get("FIXED") == "1"
CPUS = os.sched_getaffinity(0)


class Signals(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        value, points = index % 97 + 1, []
        for _ in range(3500):
            value = (value * 48271) % 2147483647
            points.append(value / 2147483647)
        return torch.tensor(points[:256]), index % 4


def reserve_cpu():
    os.sched_setaffinity(0, {max(CPUS)})  # trouble


def delay_ns():
    with open(f"/proc/self/task/{threading.get_native_id()}/schedstat") as file:
        return int(file.read().split()[1])


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if not FIXED:
        reserve_cpu()
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batches = iter(DataLoader(Signals(), batch_size=32, num_workers=1))
    next(batches)
    waited, delayed, began = 0.0, delay_ns(), time.perf_counter()
    for _ in range(220):
        before = time.perf_counter()
        signals, labels = next(batches)
        waited += time.perf_counter() - before
        loss = nn.functional.cross_entropy(model(signals), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    wall = time.perf_counter() - began
    share = ((delay_ns() - delayed) / 1e9 + waited) / wall
    truth = {"finding": None} if FIXED else {"finding": "pinned-cpus", "share": round(share, 3)}
    print("TRUTH " + json.dumps(truth))


if __name__ == "__main__":
    main()
