"""A torch.autograd.Function, an identity with a gradient of another, computes that in NumPy."""

import json
import os
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
STEPS, BATCH, WIDTH = 2400, 64, 256
spent = 0


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        global spent
        started = time.thread_time_ns()
        (x,) = ctx.saved_tensors
        a = x.numpy()
        slope = 1.0 - np.tanh(a) ** 2  # trouble
        slope = np.clip(slope, 1e-3, None)  # trouble
        result = grad * torch.from_numpy(slope)  # trouble
        spent += time.thread_time_ns() - started
        return result


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    first, last = nn.Linear(128, 4 * WIDTH), nn.Linear(4 * WIDTH, 8)
    act = nn.Identity() if FIXED else Straight.apply
    optimizer = torch.optim.SGD([*first.parameters(), *last.parameters()], lr=1e-3)
    inputs, labels = torch.randn(4 * BATCH, 128), torch.randint(0, 8, (4 * BATCH,))
    started = time.perf_counter_ns()
    for _ in range(STEPS):
        loss = nn.functional.cross_entropy(last(act(first(inputs))), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    wall = time.perf_counter_ns() - started
    truth = {"finding": None, "info": "host-compute", "share": round(spent / wall, 3), "steps": STEPS}
    print("TRUTH " + json.dumps({"finding": None} if FIXED else truth))


if __name__ == "__main__":
    main()
