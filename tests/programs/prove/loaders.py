"""Trainings by twelve loaders, whose best number of workers differs: `python loaders.py NAME`."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

BATCH, WIDTH = 16, 256


class Rows(Dataset[Any]):
    """`make` takes its time for sample number i; the sample itself is at hand."""

    def __init__(self, make: Callable[[int], None], count: int = 200_000, shape: tuple[int, ...] = (WIDTH,)) -> None:
        self.make, self.count = make, count
        self.rows = torch.randn(64, *shape)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        self.make(index)
        return self.rows[index % 64], index % 10


class Shards(IterableDataset[Any]):
    """A stream of which each worker reads its own part."""

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info is not None else (0, 1)
        rows = torch.randn(64, WIDTH)
        for index in range(first, 200_000, step):
            time.sleep(0.001)
            yield rows[index % 64], index % 10


PACKED = zlib.compress(os.urandom(4096) * 8, 1)
LOCK = tempfile.NamedTemporaryFile()  # noqa: SIM115  (all workers inherit it)
FILES = tempfile.TemporaryDirectory()


def unpack(times: int) -> Callable[[int], None]:
    def make(_: int) -> None:
        for _ in range(times):
            zlib.decompress(PACKED)

    return make


def sleep(ms: float) -> Callable[[int], None]:
    return lambda _: time.sleep(ms / 1e3)


def locked(_: int) -> None:
    """A lock that is polled, as filelock does: contention costs."""
    with open(LOCK.name) as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.003)
        time.sleep(0.0005)


def uneven(index: int) -> None:
    time.sleep(0.008 if index // BATCH % 8 == 0 else 0.0005)


def both(index: int) -> None:
    sleep(0.5)(index)
    unpack(4)(index)


def read(index: int) -> None:
    path = os.path.join(FILES.name, str(index % 64))
    if not os.path.exists(path):
        with open(path, "wb") as file:
            file.write(os.urandom(200_000))
    with open(path, "rb") as file:
        zlib.crc32(file.read())


def collate(samples: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    rows = [sum(row.tolist()) / WIDTH for row, _ in samples for _ in range(12)]
    return torch.stack([row for row, _ in samples]) - rows[0], torch.tensor([label for _, label in samples])


LOADERS: dict[str, Callable[[], DataLoader[Any]]] = {
    "memory": lambda: DataLoader(TensorDataset(torch.randn(50_000, WIDTH), torch.arange(50_000) % 10), BATCH),
    "sleep": lambda: DataLoader(Rows(sleep(2)), BATCH, shuffle=True),
    "short_sleep": lambda: DataLoader(Rows(sleep(0.2)), BATCH, shuffle=True),
    "compute": lambda: DataLoader(Rows(unpack(12)), BATCH, shuffle=True),
    "short_compute": lambda: DataLoader(Rows(unpack(2)), BATCH, shuffle=True),
    "both": lambda: DataLoader(Rows(both), BATCH, shuffle=True),
    "lock": lambda: DataLoader(Rows(locked), BATCH, shuffle=True),
    "uneven": lambda: DataLoader(Rows(uneven), BATCH),
    "collate": lambda: DataLoader(Rows(sleep(0)), BATCH, collate_fn=collate),
    "files": lambda: DataLoader(Rows(read), BATCH, shuffle=True),
    "stream": lambda: DataLoader(Shards(), BATCH),
    "short_epochs": lambda: DataLoader(Rows(sleep(1), count=12 * BATCH), BATCH, shuffle=True),
}


def main(name: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = LOADERS[name]()
    for _ in range(200):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()


if __name__ == "__main__":
    main(sys.argv[1])
