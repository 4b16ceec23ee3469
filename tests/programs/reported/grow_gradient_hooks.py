"""Gradients are clipped by a hook on each weight, which the loop registers again at every step. FIXED=1: once."""

import json
import os
import statistics
import time

import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
STEPS = 420


def clip_by_hook(model: nn.Module) -> None:
    for weight in model.parameters():
        weight.register_hook(lambda gradient: gradient.clamp(-1.0, 1.0))  # trouble


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs, labels = torch.randn(2048, 64), torch.randint(0, 8, (2048,))
    if FIXED:
        clip_by_hook(model)
    took = []
    started = time.perf_counter()
    for _ in range(STEPS * (4 if FIXED else 1)):
        rows = torch.randint(0, 2048, (64,))
        loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
        if not FIXED:
            clip_by_hook(model)
        optimizer.zero_grad()
        before = time.perf_counter()
        loss.backward()
        took.append(time.perf_counter() - before)
        optimizer.step()
    wall = time.perf_counter() - started
    excess = sum(max(0.0, t - statistics.median(took[3:15])) for t in took)
    truth = {"finding": None} if FIXED else {"finding": "growing-step", "share": round(excess / wall, 3)}
    print("TRUTH " + json.dumps(truth))


if __name__ == "__main__":
    main()
