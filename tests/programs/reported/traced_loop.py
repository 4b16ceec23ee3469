"""A trace function that counted calls, once, is still set while a small model trains."""

import json
import os
import sys
import time
from types import FrameType
from typing import Any

import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
STEPS = 500
calls: dict[str, int] = {}


def count_lines(frame: FrameType, event: str, arg: Any) -> Any:
    if event == "line":
        key = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        calls[key] = calls.get(key, 0) + 1
    return count_lines


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> float:
    """Milliseconds of a step."""
    data, labels = torch.randn(512, 32), torch.randint(0, 4, (512,))
    started = time.perf_counter_ns()
    for _ in range(steps):
        rows = torch.randint(0, 512, (8,))
        loss = nn.functional.cross_entropy(model(data[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return (time.perf_counter_ns() - started) / steps / 1e6


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers = [m for _ in range(40) for m in (nn.Linear(32, 32), nn.LayerNorm(32), nn.GELU())]
    model = nn.Sequential(*layers, nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    if not FIXED:
        sys.settrace(count_lines)
    each = train(model, optimizer, STEPS)
    sys.settrace(None)
    truth = {"finding": None if FIXED else "debug-mode", "ms_per_step": round(each, 2)}
    if not FIXED:
        without = train(model, optimizer, 20)
        truth["share_of_wall"] = round((each - without) * STEPS / (each * STEPS + without * 20), 3)
    print("TRUTH " + json.dumps(truth))


if __name__ == "__main__":
    main()
