"""An average of the weights follows them after each step, tensor by tensor."""

import copy
import json
import os
import time

import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
STEPS, DECAY, WIDTH, DEPTH = 300, 0.995, 24, 120


class Average:
    def __init__(self, model):
        self.model, self.shadow = model, copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def update(self):
        if FIXED:
            torch._foreach_lerp_(list(self.shadow.parameters()), list(self.model.parameters()), 1 - DECAY)
            return
        mine, theirs = self.shadow.state_dict(), self.model.state_dict()  # trouble
        for name in mine:  # trouble
            mine[name].mul_(DECAY).add_(theirs[name], alpha=1 - DECAY)  # trouble


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers = [layer for _ in range(DEPTH) for layer in (nn.Linear(WIDTH, WIDTH), nn.PReLU(WIDTH))]
    model = nn.Sequential(nn.Linear(40, WIDTH), *layers, nn.Linear(WIDTH, 6))
    average = Average(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs, labels = torch.randn(48, 40), torch.randint(0, 6, (48,))
    spent, started = 0, time.perf_counter_ns()
    for _ in range(STEPS):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        before = time.perf_counter_ns()
        average.update()
        spent += time.perf_counter_ns() - before
    wall = time.perf_counter_ns() - started
    truth = {"finding": "host-python", "share": round(spent / wall, 3), "steps": STEPS, "also": ["host-compute"]}
    print("TRUTH " + json.dumps({"finding": None} if FIXED else truth))


if __name__ == "__main__":
    main()
