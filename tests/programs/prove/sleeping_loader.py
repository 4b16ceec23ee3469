"""A dataset that waits 1 ms for each sample, read by the training process; it saves last.pt after each epoch."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)


class Waits(Dataset):
    def __len__(self):
        return 3200

    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.full((8,), index / 3200), index % 2


validation = DataLoader(TensorDataset(torch.rand(64, 8), torch.zeros(64, dtype=torch.long)), batch_size=16)


def main():
    loader = DataLoader(Waits(), batch_size=8, shuffle=True)
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    try:
        for _epoch in range(3):
            for x, y in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                for x, _ in validation:
                    model(x)
            torch.save(model.state_dict(), "last.pt")
    finally:
        torch.save(model.state_dict(), "last.pt")


if __name__ == "__main__":
    main()
