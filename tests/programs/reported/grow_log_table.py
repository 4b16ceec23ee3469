"""A table of all steps' metrics is written anew at every fifth step. FIXED=1: the new rows are appended."""

import csv
import json
import os
import statistics
import tempfile
import time

import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
STEPS = 1500


def write_table(path: str, rows: list[list[float]]) -> None:
    with open(path, "a" if FIXED else "w", newline="") as file:
        csv.writer(file).writerows(rows[-5:] if FIXED else rows)  # trouble


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    images, labels = torch.randn(256, 3, 24, 24), torch.randint(0, 10, (256,))
    rows: list[list[float]] = []
    took = []
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        for step in range(STEPS * (2 if FIXED else 1)):
            chosen = torch.randint(0, 256, (16,))
            loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            norms = [float(p.grad.norm()) for p in model.parameters() if p.grad is not None]
            rows.append([step, loss.item(), *norms, *(time.perf_counter() for _ in range(6))])
            if step % 5 == 4:
                before = time.perf_counter()
                write_table(os.path.join(folder, "metrics.csv"), rows)
                took.append(time.perf_counter() - before)
        wall = time.perf_counter() - started
    excess = sum(max(0.0, t - statistics.median(took[1:6])) for t in took)
    truth = {"finding": None} if FIXED else {"finding": "growing-step", "excess": round(excess / wall, 3)}
    print("TRUTH " + json.dumps(truth))


if __name__ == "__main__":
    main()
