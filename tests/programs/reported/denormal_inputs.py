"""The features are products of small probabilities: most are denormal, and so are the first layer's products."""

import json
import os
import statistics
import time

import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
if FIXED:
    torch.set_flush_denormal(True)
SAMPLES, FEATURES, BATCH, NORMAL, STEPS = 512, 256, 32, 30, 700


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    widths = [(FEATURES, 128), (128, 128), (128, 8)]
    layers = [nn.Linear(*width) for width in widths]
    model = nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    features = torch.rand(SAMPLES, FEATURES, 12).prod(2) * 1e-34
    labels = torch.randint(0, 8, (SAMPLES,))
    spent: list[int] = []
    started, started_cpu = time.perf_counter_ns(), time.thread_time_ns()
    for step in range(STEPS):
        before = time.thread_time_ns()
        chosen = torch.randint(0, SAMPLES, (BATCH,))
        inputs = features[chosen]
        if step >= STEPS - NORMAL:
            inputs = torch.rand(BATCH, FEATURES)
        loss = nn.functional.cross_entropy(model(inputs), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        spent.append(time.thread_time_ns() - before)
    wall = time.perf_counter_ns() - started
    slower = sum(max(0.0, of - statistics.median(spent[-NORMAL:])) for of in spent[:-NORMAL])
    truth: dict[str, object] = {"finding": "denormals", "fix": "set_flush_denormal(True)"}
    if time.thread_time_ns() - started_cpu > 0.9 * wall:  # else others slow down what memory bounds, too
        truth["share"] = round(slower / wall, 3)
    print("TRUTH " + json.dumps({"finding": None} if FIXED else truth))


if __name__ == "__main__":
    main()
