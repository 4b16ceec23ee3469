"""Inference without trainperf.step(): outputs are turned into text one value at a time, in Python."""

import json
import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FIXED = os.environ.get("FIXED") == "1"
LETTERS = "abcdefghijklmnopqrstuvwxyz_' "


def collapse(row: list[list[float]]) -> str:
    """The best path of a CTC output."""
    text, before = [], -1
    for scores in row:
        best = max(range(len(scores)), key=scores.__getitem__)  # trouble
        if best != before and best < len(LETTERS):
            text.append(LETTERS[best])
        before = best
    return "".join(text)


def collapse_at_once(logits: torch.Tensor) -> list[str]:
    best = logits.argmax(2)
    kept = torch.ones_like(best, dtype=torch.bool)
    kept[:, 1:] = best[:, 1:] != best[:, :-1]
    rows = zip(best.tolist(), kept.tolist(), strict=True)
    return ["".join(LETTERS[b] for b, k in zip(*row, strict=True) if k and b < len(LETTERS)) for row in rows]


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    waves = TensorDataset(torch.randn(8000 if FIXED else 2400, 1, 6400))
    model = nn.Sequential(
        *(nn.Conv1d(1, 32, 40, stride=20), nn.ReLU(), nn.Conv1d(32, 64, 9, padding=4), nn.ReLU()),
        *(nn.Conv1d(64, 64, 9, padding=4), nn.ReLU(), nn.Conv1d(64, len(LETTERS) + 1, 1)),
    ).eval()
    texts: list[str] = []
    spent, started = 0, time.perf_counter_ns()
    with torch.inference_mode():
        for (batch,) in DataLoader(waves, batch_size=8):
            logits = model(batch).transpose(1, 2)
            before = time.perf_counter_ns()
            if FIXED:
                texts += collapse_at_once(logits)
            else:
                texts += [collapse(row) for row in logits.tolist()]
            spent += time.perf_counter_ns() - before
    wall = time.perf_counter_ns() - started
    finding = None if FIXED else "host-python"
    print("TRUTH " + json.dumps({"finding": finding, "share": round(spent / wall, 3)}))


if __name__ == "__main__":
    main()
