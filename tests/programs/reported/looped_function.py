"""A torch.autograd.Function computes its gradient row by row, by many small operations."""

import json
import os
import time

import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
STEPS, BATCH, WIDTH = 900, 128, 512
spent = 0


class RowNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        norm = x.norm(dim=1, keepdim=True)
        ctx.save_for_backward(x, norm)
        return x / norm

    @staticmethod
    def backward(ctx, grad):
        global spent
        started = time.thread_time_ns()
        x, norm = ctx.saved_tensors
        if FIXED:
            y = x / norm
            result = (grad - y * (grad * y).sum(1, keepdim=True)) / norm
        else:
            rows = []
            for i in range(x.shape[0]):
                y = x[i] / norm[i]  # trouble
                rows.append((grad[i] - y * (grad[i] * y).sum()) / norm[i])  # trouble
            result = torch.stack(rows)  # trouble
        spent += time.thread_time_ns() - started
        return result


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    first, last = nn.Linear(512, WIDTH), nn.Linear(WIDTH, 8)
    optimizer = torch.optim.SGD([*first.parameters(), *last.parameters()], lr=1e-3)
    inputs, labels = torch.randn(BATCH, 512), torch.randint(0, 8, (BATCH,))
    started = time.perf_counter_ns()
    for _ in range(STEPS):
        loss = nn.functional.cross_entropy(last(RowNorm.apply(first(inputs))), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    wall = time.perf_counter_ns() - started
    truth = {"finding": "host-python", "share": round(spent / wall, 3), "steps": STEPS}
    print("TRUTH " + json.dumps({"finding": None} if FIXED else truth))


if __name__ == "__main__":
    main()
