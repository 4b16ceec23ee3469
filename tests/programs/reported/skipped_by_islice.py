"""Training goes on in the middle of an epoch: the batches that the earlier run saw are drawn and dropped first."""

import itertools
import json
import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

FIXED = os.environ.get("FIXED") == "1"
SEEN, STEPS, BATCH, LENGTH = 2500, 600, 16, 48


class Sentences(Dataset):
    def __len__(self):
        return (SEEN + STEPS) * BATCH

    def __getitem__(self, index):
        words = [f"w{(index * 31 + place * place) % 9973}" for place in range(LENGTH)]  # trouble
        ids = [sum(map(ord, word)) % 1000 for word in words]  # trouble
        return torch.tensor(ids), index % 8


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Sentences()
    model = nn.Sequential(nn.EmbeddingBag(1000, 256), nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    started = time.perf_counter_ns()
    if FIXED:
        batches = iter(DataLoader(Subset(data, range(SEEN * BATCH, len(data))), batch_size=BATCH))
    else:
        batches = itertools.islice(DataLoader(data, batch_size=BATCH), SEEN, None)
    skipping, losses = 0, []
    for tokens, labels in batches:
        if not losses:
            skipping = time.perf_counter_ns() - started
        loss = nn.functional.cross_entropy(model(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    wall = time.perf_counter_ns() - started
    truth = {"finding": "skipped-batches", "share": round(skipping / wall, 3), "steps": len(losses)}
    print("TRUTH " + json.dumps({"finding": None} if FIXED else truth))


if __name__ == "__main__":
    main()
