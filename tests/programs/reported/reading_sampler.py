"""A sampler reads the samples to sort them by length, anew in each epoch."""

import json
import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

FIXED = os.environ.get("FIXED") == "1"
EPOCHS, STEPS, BATCH, POOL = 10, 260, 8, 8


class Sentences(Dataset):
    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, index):
        words = [f"w{index * place % 9973}" for place in range(30 + index % 50)]  # trouble
        ids = [sum(map(ord, word)) % 500 for word in words]  # trouble
        return torch.tensor(ids)


class ByLength(Sampler):
    """Of a pool of samples at a time, those that are as long as each other come together."""

    def __init__(self, data):
        self.data = data
        self.lengths = [30 + index % 50 for index in range(len(data))] if FIXED else None

    def __len__(self):
        return STEPS

    def __iter__(self):
        for first in range(0, STEPS * BATCH, POOL * BATCH):
            pool = range(first, min(first + POOL * BATCH, STEPS * BATCH))
            lengths = {i: self.lengths[i] if FIXED else max(len(self.data[i]) for _ in range(3)) for i in pool}
            order = sorted(pool, key=lengths.get)
            for start in range(0, len(order), BATCH):
                yield order[start : start + BATCH]


def pad(samples):
    return nn.utils.rnn.pad_sequence(samples, batch_first=True), torch.arange(len(samples)) % 4


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Sentences()
    sampler = ByLength(data)
    drawn = 0

    class Timed(Sampler):
        def __len__(self):
            return STEPS

        def __iter__(self):
            nonlocal drawn
            indices = iter(sampler)
            while True:
                before = time.perf_counter_ns()
                batch = next(indices, None)
                drawn += time.perf_counter_ns() - before
                if batch is None:
                    return
                yield batch

    model = nn.Sequential(nn.EmbeddingBag(500, 256), nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    started = time.perf_counter_ns()
    loader = DataLoader(data, batch_sampler=Timed(), collate_fn=pad)
    for _ in range(EPOCHS):
        for tokens, labels in loader:
            loss = nn.functional.cross_entropy(model(tokens), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    wall = time.perf_counter_ns() - started
    truth = {"finding": "slow-sampler", "share": round(drawn / wall, 3), "steps": EPOCHS * STEPS}
    print("TRUTH " + json.dumps({"finding": None} if FIXED else truth))


if __name__ == "__main__":
    main()
