"""A model with frozen layers in it is trained on large images, which it pools first: what is slow is what was asked."""

import json
import os
import time

import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"  # no frozen layers: the pooling alone has no gradient
STEPS = 200


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.AvgPool2d(8)
        self.stem = nn.Conv2d(3, 16 if FIXED else 48, 5, padding=2).requires_grad_(FIXED)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16 if FIXED else 48, 4))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.stem(self.pool(images)).relu())


def main() -> None:
    torch.manual_seed(0)
    images, labels = torch.rand(16, 3, 640, 640), torch.randint(0, 4, (16,))
    model = Model()
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    started = time.perf_counter_ns()
    for _ in range(STEPS):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("TRUTH " + json.dumps({"finding": None, "wall_s": round((time.perf_counter_ns() - started) / 1e9, 2)}))


if __name__ == "__main__":
    main()
