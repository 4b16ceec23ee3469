"""Batches are many lists, in a process that keeps many: what collects garbage runs while they are unpickled."""

import gc
import json
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCHES, LISTS, KEPT = 150, 8000, 300_000


class Records(Dataset):
    def __len__(self):
        return BATCHES

    def __getitem__(self, index):
        return [[j, [j]] for j in range(LISTS)]


def first(batch):
    return batch[0]


class Pauses:
    def __init__(self):
        self.ns = self.started = 0

    def __call__(self, phase, info):
        if phase == "start":
            self.started = time.thread_time_ns()
        else:
            self.ns += time.thread_time_ns() - self.started


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(12)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs, pauses = torch.randn(128, 512), Pauses()
    kept = [[i, [i]] for i in range(KEPT)]
    gc.callbacks.append(pauses)
    pauses.ns, started = 0, time.perf_counter_ns()
    for _ in DataLoader(Records(), batch_size=1, num_workers=1, collate_fn=first, prefetch_factor=4):
        for _ in range(2):
            loss = model(inputs).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    wall = time.perf_counter_ns() - started
    truth = {"finding": "gc-pauses", "share": round(pauses.ns / wall, 3), "steps": BATCHES, "kept": len(kept)}
    print("TRUTH " + json.dumps(truth))


if __name__ == "__main__":
    main()
