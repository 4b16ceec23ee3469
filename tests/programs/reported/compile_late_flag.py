"""A string that the compiled forward reads changes now and then, and compiles again. FIXED=1: a tensor."""

import json
import os
import time

import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
STEPS = 450


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(20))
        self.out = nn.Linear(64, 1)
        self.sharpness = torch.ones(()) if FIXED else "1.0"

    def forward(self, inputs):
        for layer in self.layers:
            inputs = inputs + torch.tanh(layer(inputs) * (self.sharpness if FIXED else float(self.sharpness)))
        return self.out(inputs)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Gated()
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    took = []
    started = time.perf_counter()
    for step in range(STEPS):
        if step % 150 == 0:
            sharp = 1.0 + step / 150
            model.sharpness = torch.tensor(sharp) if FIXED else str(sharp)
        inputs = torch.randn(32, 64)
        before = time.perf_counter()
        loss = compiled(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        took.append(time.perf_counter() - before)
    wall = time.perf_counter() - started
    usual = sorted(took)[len(took) // 2]
    compiling = sum(t - usual for t in took if t > 20 * usual)
    truth = {"finding": None} if FIXED else {"finding": "compile-warmup", "share": round(compiling / wall, 3)}
    print("TRUTH " + json.dumps(truth))


if __name__ == "__main__":
    main()
