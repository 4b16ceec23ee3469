"""The epoch's loss is summed up as a tensor that has each step's graph. FIXED=1: without."""

import torch
from _common import FIXED, for_seconds, tell_growth
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers = [part for _ in range(24) for part in (nn.Linear(16, 16), nn.Tanh())]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    total = 0.0
    for _ in for_seconds():
        inputs = torch.randn(64, 16)
        loss = (model(inputs) - inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if FIXED:
            loss = loss.detach()
        total += loss  # trouble
    tell_growth()


if __name__ == "__main__":
    main()
