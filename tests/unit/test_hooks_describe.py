"""What the bytes of a batch are, and of which batches they are not known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from trainperf.hooks.describe import batch_bytes


class Slotted:
    __slots__ = ("x",)

    def __init__(self) -> None:
        self.x = torch.zeros(4)


@dataclass
class Graph:
    x: torch.Tensor
    names: list[str]


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        ((torch.zeros(4, 8), torch.zeros(4, dtype=torch.long)), 160),
        ({"image": np.zeros((2, 3), np.uint8), "name": ["ab", "c"], "age": [1, 2.5], "none": None}, 25),
        (Graph(torch.zeros(2), ["ab"]), 10),
        ([Slotted(), torch.zeros(4)], None),
        ([object()], None),
        ([[[[[[torch.zeros(4)]]]]]], None),
        ([[0] * 20_000], None),
        ([], 0),
    ],
)
def test_bytes_of_a_batch(batch: Any, size: int | None) -> None:
    assert batch_bytes(batch) == size
