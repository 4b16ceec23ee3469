"""A stream in shards: three workers read them, and one of these lies on a slow disk."""

import json
import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

FIXED = os.environ.get("FIXED") == "1"
STEPS, BATCH = 240, 16


class Shards(IterableDataset):  # trouble
    def __iter__(self):
        worker = get_worker_info().id
        draw = torch.Generator().manual_seed(worker)
        while True:
            time.sleep(0.003 if worker == 2 else 0.0001)
            yield torch.randn(128, generator=draw), worker % 4


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    batches = iter(DataLoader(Shards(), batch_size=BATCH, num_workers=3, in_order=not FIXED))
    next(batches)
    waited, started = 0, time.perf_counter_ns()
    for _ in range(STEPS):
        before = time.perf_counter_ns()
        inputs, labels = next(batches)
        waited += time.perf_counter_ns() - before
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    wall = time.perf_counter_ns() - started
    truth = {"finding": "workers-too-slow", "share": round(waited / wall, 3), "steps": STEPS}
    print("TRUTH " + json.dumps({"finding": None} if FIXED else truth))


if __name__ == "__main__":
    main()
