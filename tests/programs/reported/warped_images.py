"""Images are warped and blurred on the training thread, by PyTorch's functions, before a CNN is trained on them."""

import json
import os
import time

import torch
from torch import nn
from torch.nn import functional as F

FIXED = os.environ.get("FIXED") == "1"
STEPS, IMAGES, SIZE = 90, 24, 80


def blur(images: torch.Tensor, passes: int = 6) -> torch.Tensor:
    kernel = torch.full((3, 1, 5, 5), 1 / 25)
    for _ in range(passes):
        images = F.conv2d(images, kernel, padding=2, groups=3)  # trouble
    return F.normalize(F.max_pool2d(images, 5, stride=1, padding=2), dim=1)  # trouble


def warp(images: torch.Tensor) -> torch.Tensor:
    turn = torch.randn(len(images), 2, 3) * 0.1 + torch.eye(2, 3)
    grid = F.affine_grid(turn, list(images.shape), align_corners=False)  # trouble
    return F.grid_sample(images, grid, align_corners=False)  # trouble


def main() -> None:
    torch.manual_seed(0)
    images, labels = torch.rand(IMAGES, 3, SIZE, SIZE), torch.randint(0, 4, (IMAGES,))
    model = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 4)),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    kept = blur(warp(images))
    spent = 0
    started = time.perf_counter_ns()
    for _ in range(STEPS * (8 if FIXED else 1)):
        before = time.perf_counter_ns()
        batch = kept if FIXED else blur(warp(images))
        spent += time.perf_counter_ns() - before
        loss = F.cross_entropy(model(batch), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    wall = time.perf_counter_ns() - started
    finding = None if FIXED else "host-compute"
    print("TRUTH " + json.dumps({"finding": finding, "share": round(spent / wall, 3)}))


if __name__ == "__main__":
    main()
