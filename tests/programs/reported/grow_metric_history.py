"""The running accuracy is computed of all predictions so far, at each step. FIXED=1: counts are kept instead."""

import json
import os
import statistics
import time

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

FIXED = os.environ.get("FIXED") == "1"


class Median:
    """Of the scores of all samples so far."""

    def __init__(self) -> None:
        self.scores: list[Tensor] = []
        self.recent = 0.0

    def update(self, scores: Tensor) -> float:
        if FIXED:
            self.recent = 0.99 * self.recent + 0.01 * float(scores.median())
            return self.recent
        self.scores.append(scores)
        return float(torch.cat(self.scores).median())  # trouble


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.randn(16384, 64), torch.randn(16384, 1))
    metric, took = Median(), []
    started = time.perf_counter()
    for _ in range(12 if FIXED else 9):
        for inputs, targets in DataLoader(data, batch_size=128, shuffle=True, num_workers=0):
            outputs = model(inputs)
            loss = nn.functional.mse_loss(outputs, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            before = time.perf_counter()
            metric.update((outputs - targets).detach().abs().flatten())
            took.append(time.perf_counter() - before)
    wall = time.perf_counter() - started
    excess = sum(max(0.0, t - statistics.median(took[3:25])) for t in took)
    truth = {"finding": None} if FIXED else {"finding": "growing-step", "share": round(excess / wall, 3)}
    print("TRUTH " + json.dumps(truth))


if __name__ == "__main__":
    main()
