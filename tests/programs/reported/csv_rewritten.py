"""A logger with a save() that writes its whole CSV file anew at each step."""

import csv
import json
import os
import tempfile
import time

import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
STEPS = 1000


class TableLogger:
    def __init__(self, path):
        self.path, self.metrics = path, []

    def log_metrics(self, metrics):
        self.metrics.append(metrics)

    def save(self):
        if FIXED:
            with open(self.path, "a", newline="") as file:
                csv.writer(file).writerow(self.metrics[-1].values())
            return
        with open(self.path, mode="w", newline="") as file:  # trouble
            writer = csv.DictWriter(file, fieldnames=list(self.metrics[0]))
            writer.writeheader()
            writer.writerows(self.metrics)  # trouble


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    inputs, labels = torch.randn(64, 64), torch.randint(0, 4, (64,))
    with tempfile.TemporaryDirectory() as folder:
        logger = TableLogger(os.path.join(folder, "metrics.csv"))
        spent, started = 0, time.perf_counter_ns()
        for step in range(STEPS):
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            before = time.perf_counter_ns()
            value = loss.item()
            row = {"step": step, "loss": value, "log": -value, "lr": 1e-2, "half": value / 2, "seen": step * 64}
            logger.log_metrics(row)
            logger.save()
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
