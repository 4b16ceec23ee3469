"""The whole of it: one `with` around a training loop. At its end trainperf prints why the loop is as slow as it is.

python examples/plain.py
"""

import torch
import trainperf
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(20_000, 64), torch.randint(0, 10, (20_000,)))
loader = DataLoader(data, batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.Adam(model.parameters())
loss = nn.CrossEntropyLoss()

with trainperf.watch():
    for x, y in loader:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
