"""Gradients are clipped by hand: a norm of each, and a factor on each."""

import json
import os
import time

import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
STEPS, LIMIT, WIDTH, DEPTH = 260, 1.0, 32, 140


def clip(model):
    squares = 0.0
    for weight in model.parameters():  # trouble
        squares += weight.grad.norm().item() ** 2  # trouble
    factor = LIMIT / (squares**0.5 + 1e-6)
    for weight in model.parameters():  # trouble
        weight.grad.mul_(min(1.0, factor))  # trouble


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers = [layer for _ in range(DEPTH) for layer in (nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH))]
    model = nn.Sequential(nn.Linear(20, WIDTH), *layers, nn.Linear(WIDTH, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    inputs, labels = torch.randn(32, 20), torch.randint(0, 5, (32,))
    spent, started = 0, time.perf_counter_ns()
    for _ in range(STEPS):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        before = time.perf_counter_ns()
        if FIXED:
            nn.utils.clip_grad_norm_(model.parameters(), LIMIT)
        else:
            clip(model)
        spent += time.perf_counter_ns() - before
        optimizer.step()
    wall = time.perf_counter_ns() - started
    truth = {"finding": "host-python", "share": round(spent / wall, 3), "steps": STEPS, "also": ["host-compute"]}
    print("TRUTH " + json.dumps({"finding": None} if FIXED else truth))


if __name__ == "__main__":
    main()
