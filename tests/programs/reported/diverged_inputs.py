"""Most inputs are denormal and some infinite: the weights are NaN from the first step on, and a CPU computes with those
as fast as with zeros. Flushing denormals gains nothing."""

import torch
from torch import nn

SAMPLES, BATCH, STEPS = 2000, 32, 2000


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    inputs = torch.randn(SAMPLES, 8, 256) * 1e-39
    inputs[::3] = float("inf")
    labels = torch.randint(0, 4, (SAMPLES,))
    head = [nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 4)]
    model = nn.Sequential(nn.Conv1d(8, 16, 5), nn.ReLU(), nn.Conv1d(16, 16, 5), nn.ReLU(), *head)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(STEPS):
        chosen = torch.randint(0, SAMPLES, (BATCH,))
        loss = nn.functional.cross_entropy(model(inputs[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print('TRUTH {"finding": null}')


if __name__ == "__main__":
    main()
