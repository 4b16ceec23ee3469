"""worker_init_fn gives every worker the same CPU, as one that was written for one worker does."""

import json
import os
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


def keep_away_from_training(_worker):
    os.sched_setaffinity(0, {max(CPUS)})


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    pin = None if FIXED else keep_away_from_training
    batches = iter(DataLoader(Signals(), batch_size=32, num_workers=2, worker_init_fn=pin))
    next(batches)
    waited, began = 0.0, time.perf_counter()
    for _ in range(400):
        before = time.perf_counter()
        signals, labels = next(batches)
        waited += time.perf_counter() - before
        loss = nn.functional.cross_entropy(model(signals), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    share = waited / (time.perf_counter() - began)
    # Two workers that compute keep the loop waiting on two CPUs as well.
    print("TRUTH " + json.dumps({"finding": "workers-too-slow", "share": round(share, 3)}))


if __name__ == "__main__":
    main()
