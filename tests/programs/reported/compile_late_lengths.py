"""torch.compile(dynamic=False): a curriculum's new lengths compile again, late. FIXED=1: dynamic=True."""

import json
import os
import time

import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
STEPS = 500


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(200, 48)
        self.layers = nn.ModuleList(nn.Linear(48, 48) for _ in range(16))
        self.out = nn.Linear(48, 20)

    def forward(self, tokens):
        hidden = self.embed(tokens)
        for layer in self.layers:
            hidden = torch.nn.functional.layer_norm(hidden + torch.tanh(layer(hidden)), (48,))
        return self.out(hidden)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Tagger()
    compiled = torch.compile(model, backend="aot_eager", dynamic=FIXED)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    took = []
    started = time.perf_counter()
    for step in range(STEPS):
        length = 12 + 4 * (step // 125)
        tokens = torch.randint(0, 200, (8, length))
        before = time.perf_counter()
        loss = nn.functional.cross_entropy(compiled(tokens).flatten(0, 1), tokens.flatten() % 20)
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
