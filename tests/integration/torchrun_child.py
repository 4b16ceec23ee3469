"""One rank of a plain loop: torchrun --nproc-per-node 2 torchrun_child.py FOLDER/. Counts its collectives."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
import torch.distributed as dist
import trainperf
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
dist.init_process_group("gloo")
calls = 0


def counted(original: Any) -> Any:
    def collective(*args: Any, **kwargs: Any) -> Any:
        global calls
        calls += 1
        return original(*args, **kwargs)

    return collective


for name in ("all_reduce", "all_gather", "all_gather_object", "broadcast", "broadcast_object_list", "barrier"):
    setattr(dist, name, counted(getattr(dist, name)))
net = torch.nn.Linear(8, 1)
if dist.get_rank() == 0:
    net.weight.register_hook(lambda gradient: time.sleep(0.02))  # in backward, as waiting for others would be
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
with trainperf.watch(sys.argv[1], gil="off", sampler_hz=200):
    for (x,) in DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=4):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
if calls != 16 * 2:
    sys.exit(f"{calls} collectives")
dist.destroy_process_group()
