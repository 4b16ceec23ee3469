"""A running mean of features, for a log, is carried from step to step with its graph. FIXED=1: it is detached."""

import torch
from _common import FIXED, for_seconds, tell_growth
from torch import nn


class Tracker(nn.Module):
    """An encoder that remembers what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.GRUCell(32, 64)
        self.state = torch.zeros(64, 64)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        fresh = self.encoder(inputs, self.state.detach())
        before = self.state.detach() if FIXED else self.state
        mixed = torch.lerp(before, fresh, 0.1)
        self.state = mixed.detach() if FIXED else mixed  # trouble
        return fresh


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Tracker()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in for_seconds():
        loss = model(torch.randn(64, 32)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tell_growth()


if __name__ == "__main__":
    main()
