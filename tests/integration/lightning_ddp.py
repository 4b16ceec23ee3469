"""Two ranks on CPUs, by strategy: python lightning_ddp.py ddp_fork FOLDER. With pytorch_lightning, and that alone."""

from __future__ import annotations

import logging
import sys
import warnings

warnings.simplefilter("ignore")

import pytorch_lightning as pl  # noqa: E402
import torch  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402
from trainperf.integrations.lightning import TrainPerf  # noqa: E402

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


class Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(8, 1)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        return self.net(batch[0]).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main(strategy: str, folder: str) -> None:
    assert issubclass(TrainPerf, pl.Callback) and not any(m.startswith("lightning.pytorch") for m in sys.modules)
    trainer = pl.Trainer(
        accelerator="cpu", devices=2, strategy=strategy, max_epochs=2, default_root_dir=folder, logger=False,
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False, callbacks=TrainPerf(),
    )  # fmt: skip
    trainer.fit(Model(), DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=4))


if __name__ == "__main__":
    main(*sys.argv[1:])
