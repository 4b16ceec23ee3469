"""PyTorch Lightning with one line more: `callbacks=[TrainPerf()]`. At the end of fit() it prints why training was slow.

python examples/lightning_train.py [FOLDER]

A small convolutional network learns to tell stripes by their direction. The data set draws each picture when it is
asked for one, pixel by pixel, which is what is wrong here.
"""

from __future__ import annotations

import logging
import math
import random
import sys
import tempfile
import warnings

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from trainperf.integrations.lightning import TrainPerf

SIDE, CLASSES, BATCHES, BATCH = 24, 4, 60, 8


class Stripes(Dataset[tuple[torch.Tensor, int]]):
    """Noisy stripes, in one of four directions."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index >= self.length:
            raise IndexError(index)
        noise, kind = random.Random(index), index % CLASSES
        x, y = math.cos(kind * math.pi / CLASSES), math.sin(kind * math.pi / CLASSES)
        pixels = [
            [math.sin(0.9 * (x * column + y * row)) + noise.gauss(0, 0.3) for column in range(SIDE)]
            for row in range(SIDE)
        ]
        return torch.tensor(pixels).unsqueeze(0), kind


class Classifier(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.Flatten(),
            nn.Linear(16 * 4 * 4, CLASSES),
        )  # fmt: skip

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        images, labels = batch
        loss = nn.functional.cross_entropy(self.net(images), labels)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        images, labels = batch
        self.log("accuracy", (self.net(images).argmax(1) == labels).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=2e-3)


def main(folder: str) -> None:
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    pl.seed_everything(0)
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        callbacks=[TrainPerf()],  # the one line
    )
    train = DataLoader(Stripes(BATCHES * BATCH), batch_size=BATCH, shuffle=True)
    trainer.fit(Classifier(), train, DataLoader(Stripes(8 * BATCH), batch_size=BATCH))
    print(f"accuracy {trainer.callback_metrics['accuracy']:.2f}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="trainperf-"))
