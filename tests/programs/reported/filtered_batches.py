"""Most batches are dropped after they were made: those of sequences that are too short."""

import json
import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FIXED = os.environ.get("FIXED") == "1"
STEPS, BATCH, EVERY = 700, 16, 6


class Notes(Dataset):
    def __init__(self):
        self.numbers = [n for n in range(STEPS * EVERY) if not FIXED or n % EVERY == 2]

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, index):
        number = self.numbers[index]
        rows = []
        for row in range(BATCH):
            letters = f"{number * 7919 + row * row:09d}" * 6  # trouble
            rows.append([ord(letter) % 10 for letter in letters])  # trouble
        length = 54 if number % EVERY == 2 else 9
        return torch.tensor(rows), torch.arange(BATCH) % 6, length  # trouble


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.EmbeddingBag(10, 512), nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 6))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    started = asked = time.perf_counter_ns()
    fetched, trained = 0, 0
    for tokens, labels, length in DataLoader(Notes(), batch_size=None):
        fetched += time.perf_counter_ns() - asked
        if length >= 20:
            loss = nn.functional.cross_entropy(model(tokens), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            trained += 1
        asked = time.perf_counter_ns()
    wall = time.perf_counter_ns() - started
    truth = {"finding": "data-starved", "share": round(fetched / wall, 3), "steps": trained}
    print("TRUTH " + json.dumps({"finding": None} if FIXED else truth))


if __name__ == "__main__":
    main()
