"""Sequences get longer step by step, as planned: forward and backward grow, and nothing is wrong."""

import json

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.GRU(32, 64, batch_first=True)
    head = nn.Linear(64, 32)
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-3)
    for step in range(400):
        inputs = torch.randn(16, 16 + step // 5, 32)
        loss = nn.functional.mse_loss(head(model(inputs)[0]), inputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("TRUTH " + json.dumps({"finding": None}))


if __name__ == "__main__":
    main()
