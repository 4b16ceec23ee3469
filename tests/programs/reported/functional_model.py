"""Healthy: a CNN whose first layers are plain functions with weights passed by hand, and a head that is a module."""

import json
import time

import torch
from torch import nn
from torch.nn import functional as F

STEPS = 240


def stem(images: torch.Tensor, weights: list[nn.Parameter]) -> torch.Tensor:
    for weight in weights:
        images = F.max_pool2d(F.relu(F.conv2d(images, weight, padding=1)), 2)
    return images.mean((2, 3))


def main() -> None:
    torch.manual_seed(0)
    images, labels = torch.rand(24, 3, 64, 64), torch.randint(0, 4, (24,))
    weights = [nn.Parameter(torch.randn(o, i, 3, 3) * 0.1) for i, o in ((3, 16), (16, 32), (32, 64))]
    head = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam([*weights, *head.parameters()], lr=1e-3)
    started = time.perf_counter_ns()
    for _ in range(STEPS):
        features = stem(images, weights)
        loss = F.cross_entropy(head(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("TRUTH " + json.dumps({"finding": None, "wall_s": round((time.perf_counter_ns() - started) / 1e9, 2)}))


if __name__ == "__main__":
    main()
