"""A training whose later epochs are not like the first one, in one of four ways; or, as "alike", they are."""

import itertools
import random
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

KIND = sys.argv[1] if sys.argv[1:] else "alike"
torch.set_num_threads(1)


class Samples(Dataset):
    def __init__(self):
        self.size = 8
        self.kept = {}
        self.random = random.Random(0) if KIND == "copies" else None

    def __len__(self):
        return 400

    def __getitem__(self, index):
        x = torch.zeros(64)
        x[: self.size] = self.random.random() if self.random is not None else index / 400
        if KIND == "keeps":
            self.kept[index] = x
        return x, index % 10


def main():
    torch.manual_seed(0)
    samples, model = Samples(), nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(samples, batch_size=8, shuffle=True)
    for epoch in range(1 if KIND == "once" else 20):
        samples.size = 8 * min(8, epoch + 1) if KIND == "grows" else 8
        for x, y in itertools.islice(itertools.cycle(loader), 1000) if KIND == "once" else loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
