"""A plain loop that acts while it trains: it is told of each step that waited for data, and which one it was.

    python examples/plain_loop.py

The trouble: one image in 150 lies in an archive that takes 80 ms to open. The median step does not show it; `on_flag`
names the steps, and the verdict at the end names the line.
"""

from __future__ import annotations

import time

import torch
import trainperf
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH, STEPS, SIDE = 8, 150, 32


class Images(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self) -> None:
        self.images = torch.rand(64, 3, SIDE, SIDE)

    def __len__(self) -> int:
        return BATCH * STEPS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index % 150 == 149:
            open_archive()
        return self.images[index % 64], index % 10


def open_archive() -> None:
    time.sleep(0.08)


def on_flag(step: trainperf.ClosedStep) -> None:
    if "data_starved" in step.flags and not step.warm_up:
        print(f"step {step.index}: waited {step.causes_ms['data_wait']:.0f} of its {step.wall_ms:.0f} ms for data")


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.Flatten(),
        nn.Linear(32 * 7 * 7, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with trainperf.watch(name="plain-loop", on_flag=on_flag, flag_shares={"data_starved": 0.5}) as run:
        for images, labels in DataLoader(Images(), batch_size=BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
    print(f"{run.flags.counts['data_starved']} of {run.flags.steps} steps were starved")


if __name__ == "__main__":
    main()
