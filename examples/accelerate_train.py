"""Accelerate needs no integration: one `with` around its loop.

    python examples/accelerate_train.py

A small transformer learns to tell sorted rows from shuffled ones, two batches to an update. The trouble: the whole
state is saved every five batches. Needs `pip install accelerate`. Under `accelerate launch`, give watch() a path: each
rank then writes its own file.
"""

from __future__ import annotations

import tempfile

import torch
import trainperf
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ROWS, LENGTH, WIDTH = 640, 16, 192


def rows() -> TensorDataset:
    x = torch.rand(ROWS, LENGTH)
    labels = torch.arange(ROWS) % 2
    return TensorDataset(torch.where(labels[:, None] == 1, x.sort(dim=1).values, x), labels)


class SortedOrNot(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(1, WIDTH)
        self.position = nn.Parameter(torch.randn(LENGTH, WIDTH))
        self.mix = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=4 * WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.mix(self.embed(x[..., None]) + self.position).mean(dim=1))
        return out


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = SortedOrNot()
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.AdamW(model.parameters(), lr=1e-3), DataLoader(rows(), batch_size=8, shuffle=True)
    )
    with tempfile.TemporaryDirectory() as folder, trainperf.watch(name="accelerate"):
        for step, (x, labels) in enumerate(loader):
            with accelerator.accumulate(model):
                accelerator.backward(nn.functional.cross_entropy(model(x), labels))
                optimizer.step()
                optimizer.zero_grad()
            if step % 5 == 4:
                accelerator.save_state(folder)


if __name__ == "__main__":
    main()
