"""Two ranks that no environment variable tells of: python forked_child.py FILE."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import trainperf
from torch.utils.data import DataLoader


def main(rank: int, store: str, path: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    net = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with trainperf.watch(path):
        for x in DataLoader([torch.randn(4, 8)] * 16, batch_size=None):  # type: ignore[arg-type]
            optimizer.zero_grad()
            net(x).square().mean().backward()
            for parameter in net.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    for variable in ("RANK", "WORLD_SIZE"):
        os.environ.pop(variable, None)
    mp.start_processes(main, args=(f"{sys.argv[1]}.store", sys.argv[1]), nprocs=2, start_method="fork")
