"""Rows of an embedding that no batch has any more: Adam's momentum of them decays to denormals, and stays there."""

import json
import os
import statistics
import time

import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
if FIXED:
    torch.set_flush_denormal(True)
ROWS, WIDTH, USED, EARLY, STEPS = 8000, 32, 200, 100, 2600


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    table = nn.Embedding(ROWS, WIDTH)
    head = nn.Sequential(nn.Linear(8 * WIDTH, 64), nn.ReLU(), nn.Linear(64, 8))
    optimizer = torch.optim.Adam([*table.parameters(), *head.parameters()], betas=(0.8, 0.999))
    updates: list[int] = []
    started, started_cpu = time.perf_counter_ns(), time.thread_time_ns()
    for step in range(STEPS):
        words, labels = torch.randint(0, ROWS if step < EARLY else USED, (64, 8)), torch.randint(0, 8, (64,))
        loss = nn.functional.cross_entropy(head(table(words).flatten(1)), labels)
        optimizer.zero_grad()
        loss.backward()
        before = time.thread_time_ns()
        optimizer.step()
        updates.append(time.thread_time_ns() - before)
    wall = time.perf_counter_ns() - started
    plain = statistics.median(updates[EARLY:250])  # while the momentum is small, but not yet denormal
    slower = sum(max(0.0, of - plain) for of in updates[250:])
    truth: dict[str, object] = {"finding": "denormals", "fix": "set_flush_denormal(True)"}
    if time.thread_time_ns() - started_cpu > 0.9 * wall:  # else others slow down what memory bounds, too
        truth["share"] = round(slower / wall, 3)
    print("TRUTH " + json.dumps({"finding": None} if FIXED else truth))


if __name__ == "__main__":
    main()
