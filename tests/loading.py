"""What tests of DataLoaders share: a data set, and waiting for its workers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from torch.utils.data import Dataset


class Numbers(Dataset[int]):
    def __init__(self, n: int = 8, slow: int = -1, gate: Any = None) -> None:
        self.n, self.slow, self.gate = n, slow, gate

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> int:
        if i == self.slow:
            self.gate.wait(20)
        return i


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def wait_until_sent(iterator: Any, count: int) -> None:
    """A batch is counted before the worker's own thread has sent it."""
    wait_for(lambda: iterator._data_queue.qsize() == count and iterator._data_queue._reader.poll(0))
    time.sleep(0.05)
