"""Whether a tensor's graph reaches back over many steps: autograd numbers what a thread computes."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable
from typing import Any

_MOST_NODES = 20_000
_LEAVES = 1 << 62  # what accumulates gradients has no number of its own
_PARTS = 4
_EACH = 256


def newest(tensors: Iterable[Any]) -> int:
    """The highest number among what computed them; -1: none has one."""
    return max((number for tensor in tensors if (number := _number(tensor.grad_fn)) < _LEAVES), default=-1)


def reaches_back(tensor: Any, before: int, now: int, until: float) -> bool:
    """Whether it reaches what was computed before number `before`, by way of each quarter of what was until `now`.

    What is oldest is followed first, so a chain from step to step is followed without the rest of each step. Another
    thread counts for itself: what a graph has of it does not lie all over this thread's numbers.
    """
    if before < 0 or now - before < _PARTS or tensor.grad_fn is None:
        return False
    parts: set[int] = set()
    waiting = [(_number(tensor.grad_fn), 0, tensor.grad_fn)]
    met = {tensor.grad_fn}
    while waiting and len(met) < _MOST_NODES:
        number, _, node = heapq.heappop(waiting)
        if number < before:
            return len(parts) == _PARTS
        if number < _LEAVES:
            parts.add(min(_PARTS - 1, (number - before) * _PARTS // (now - before)))
        if len(met) % _EACH == 0 and time.thread_time() > until:
            return False
        for inner, _ in node.next_functions:
            if inner is not None and inner not in met:
                met.add(inner)
                heapq.heappush(waiting, (_number(inner), len(met), inner))
    return False


def _number(node: Any) -> int:
    ask = getattr(node, "_sequence_nr", None)
    return int(ask()) if ask is not None else _LEAVES
