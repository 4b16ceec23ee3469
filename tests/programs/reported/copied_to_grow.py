"""A rollout memory that is concatenated anew at each step, then sampled. FIXED=1: it is written in place."""

import json
import os
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
WIDTH, NEW, BATCH, MOST, SECONDS = 24, 64, 128, 2400, 8


class Memory:
    def __init__(self):
        self.rows = np.zeros((NEW * MOST if FIXED else 0, WIDTH), np.float32)
        self.count = 0

    def push(self, new):
        if FIXED:
            self.rows[self.count : self.count + NEW] = new
        else:
            self.rows = np.concatenate([self.rows, new])  # trouble
        self.count += NEW

    def draw(self):
        return torch.from_numpy(self.rows[np.random.randint(0, self.count, BATCH)])


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(WIDTH, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 2))
    optimizer = torch.optim.Adam(net.parameters(), 3e-4)
    memory, spent, steps, started = Memory(), 0, 0, time.perf_counter_ns()
    while steps < MOST and time.perf_counter_ns() - started < SECONDS * 1e9:
        new = np.random.rand(NEW, WIDTH).astype(np.float32)
        before = time.perf_counter_ns()
        memory.push(new)
        spent += time.perf_counter_ns() - before
        inputs = memory.draw()
        loss = (net(inputs)[:, 0] - inputs.sum(1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    wall = time.perf_counter_ns() - started
    truth = {"finding": "growing-step", "fix": "np.empty", "share": round(spent / wall, 3)}
    print("TRUTH " + json.dumps({"finding": None} if FIXED else truth))


if __name__ == "__main__":
    main()
