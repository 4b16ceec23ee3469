"""Augmentations are modules without parameters, applied on the training thread in the line that calls the model."""

import json
import os
import time

import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
STEPS, SAMPLES, LENGTH = 100, 64, 16000


class Reverb(nn.Module):
    def forward(self, waves: torch.Tensor) -> torch.Tensor:
        decay = torch.exp(-torch.linspace(0, 8, 4000)) * torch.randn(4000)
        spectrum = torch.fft.rfft(waves, 65536) * torch.fft.rfft(decay, 65536)  # trouble
        return torch.fft.irfft(spectrum)[:, :LENGTH]  # trouble


class Loudness(nn.Module):
    def forward(self, waves: torch.Tensor) -> torch.Tensor:
        return waves / waves.pow(2).mean(1, keepdim=True).sqrt()  # trouble


class Timed(nn.Module):
    spent = 0

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.Sequential(*parts)

    def forward(self, waves: torch.Tensor) -> torch.Tensor:
        before = time.perf_counter_ns()
        waves = self.parts(waves)
        Timed.spent += time.perf_counter_ns() - before
        return waves


def main() -> None:
    torch.manual_seed(0)
    waves, labels = torch.randn(SAMPLES, LENGTH), torch.randint(0, 4, (SAMPLES,))
    augment = nn.Identity() if FIXED else Timed(Reverb(), Loudness())
    model = nn.Sequential(
        *(nn.Unflatten(1, (1, LENGTH)), nn.Conv1d(1, 16, 64, stride=16), nn.ReLU(), nn.Conv1d(16, 32, 16, stride=4)),
        *(nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 4)),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    started = time.perf_counter_ns()
    for _ in range(STEPS * (3 if FIXED else 1)):
        loss = nn.functional.cross_entropy(model(augment(waves)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    wall = time.perf_counter_ns() - started
    finding = None if FIXED else "host-compute"
    print("TRUTH " + json.dumps({"finding": finding, "share": round(Timed.spent / wall, 3)}))


if __name__ == "__main__":
    main()
