"""Metrics are kept in a list, and the whole list is written anew after each step."""

import json
import os
import tempfile
import time

import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
STEPS = 900


class History:
    def __init__(self, path):
        self.path, self.rows = path, []

    def log(self, row):
        self.rows.append(row)
        self.save()

    def save(self):
        if FIXED:
            with open(self.path, "a") as file:
                file.write(json.dumps(self.rows[-1]) + "\n")
            return
        with open(self.path, "w") as file:  # trouble
            json.dump(self.rows, file)  # trouble


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    inputs, labels = torch.randn(64, 128), torch.randint(0, 8, (64,))
    with tempfile.TemporaryDirectory() as folder:
        history = History(os.path.join(folder, "history.json"))
        spent, started = 0, time.perf_counter_ns()
        for step in range(STEPS):
            scores = model(inputs)
            loss = nn.functional.cross_entropy(scores, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            before = time.perf_counter_ns()
            right = (scores.argmax(dim=1) == labels).float().mean().item()
            history.log({"step": step, "loss": loss.item(), "right": right, "time": time.time()})
            spent += time.perf_counter_ns() - before
        wall = time.perf_counter_ns() - started
    truth = {
        "finding": "host-compute",
        "share_of_wall": round(spent / wall, 3),
        "also": ["host-python", "growing-step"],
    }
    print("TRUTH " + json.dumps({"finding": None} if FIXED else truth))


if __name__ == "__main__":
    main()
