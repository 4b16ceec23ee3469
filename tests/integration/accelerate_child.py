"""One rank of a loop by Accelerate: accelerate launch ... accelerate_child.py FOLDER/."""

from __future__ import annotations

import sys

import torch
import trainperf
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
accelerator = Accelerator(cpu=True)
if accelerator.num_processes != 2 or torch.distributed.get_backend() != "gloo":
    sys.exit(f"{accelerator.num_processes} processes")
net = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(128, 8)), batch_size=4)
net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
with trainperf.watch(sys.argv[1]):
    for (x,) in loader:
        optimizer.zero_grad()
        accelerator.backward(net(x).square().mean())
        optimizer.step()
accelerator.end_training()
