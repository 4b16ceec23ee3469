"""A small batch trains large layers, and zero_grad(set_to_none=False) fills their gradients with zeros each step."""

import json
import os
import time

import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
STEPS = 400


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(*(nn.Linear(700, 700) for _ in range(10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    inputs = torch.randn(4, 700)
    zeroing = 0
    started = time.perf_counter_ns()
    for _ in range(STEPS):
        model(inputs).square().mean().backward()
        optimizer.step()
        before = time.perf_counter_ns()
        optimizer.zero_grad(set_to_none=FIXED)  # trouble
        zeroing += time.perf_counter_ns() - before
    passed = time.perf_counter_ns() - started
    truth: dict[str, object] = {
        "finding": None if FIXED else "costly-setting",
        "ms_per_step": round((passed if FIXED else zeroing) / STEPS / 1e6, 2),
    }
    if not FIXED:
        truth["share_of_wall"] = round(zeroing / passed, 3)
    print("TRUTH " + json.dumps(truth))


if __name__ == "__main__":
    main()
