"""The case that trainperf was founded on, under PyTorch Lightning: the first third of an epoch is slow, then it is not.

python examples/lightning_gil.py [FOLDER]

Nothing in the loop changes. But when it began, a thread that was started before fit() was still writing out a search
index of the training texts: in Python, so with the GIL, which the training thread had to wait for. No profiler of the
loop shows that thread. The verdict names it, with its line, and says which part of the epoch is slow because of it.

It knows what it did, and ends with 1 when the verdict is not that.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import threading
import warnings
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from trainperf.integrations.lightning import TrainPerf

WORDS, LENGTH, BATCH, STEPS = 500, 16, 128, 150


class Texts(pl.LightningModule):
    """Tells two kinds of made-up texts apart by the words in them."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.EmbeddingBag(WORDS, 64), nn.Linear(64, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 2)
        )

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        texts, labels = batch
        return nn.functional.cross_entropy(self.net(texts), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def write_index(done: threading.Event) -> None:
    """Writes the texts out as JSON, again and again, until enough of them are."""
    texts = [{"id": i, "words": list(range(i, i + 12))} for i in range(5000)]
    while not done.wait(0.002):
        json.dumps(texts)  # one call of C code, some 10 ms long, with the GIL held


class Enough(pl.Callback):
    """The index is complete when a third of the epoch is over."""

    def __init__(self, done: threading.Event) -> None:
        self.done = done

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx + 1 == STEPS // 3:
            self.done.set()


def main(folder: str) -> int:
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    pl.seed_everything(0)
    labels = torch.randint(0, 2, (STEPS * BATCH,))
    texts = torch.randint(0, WORDS // 2, (STEPS * BATCH, LENGTH)) + labels.unsqueeze(1) * (WORDS // 4)
    done, prof = threading.Event(), TrainPerf()
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        logger=False,
        callbacks=[Enough(done), prof],
    )
    index = threading.Thread(target=write_index, args=(done,), name="search-index", daemon=True)
    index.start()
    trainer.fit(Texts(), DataLoader(TensorDataset(texts, labels), batch_size=BATCH))
    index.join()
    # On a busy machine "descheduled" may come first, and rightly: that is not of this example's making.
    first = next((f for f in prof.findings if f.slug != "descheduled"), None)
    right = first is not None and first.slug == "gil-hog" and "search-index" in first.who
    if not right or not any(f.slug == "uneven" and "first third" in f.title for f in prof.findings):
        print(f"WRONG: {prof.summary().splitlines()[0]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="trainperf-")))
