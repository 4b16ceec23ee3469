"""Samples come at random from an HDF5 file, whose chunks of 2,048 compressed rows are unpacked again for each."""

import itertools
import json
import os
import tempfile
from typing import Any

import h5py
import numpy as np
import torch
from _common import FIXED, Classifier, Clock
from torch.utils.data import DataLoader, Dataset

ROWS, BATCH, STEPS = 65_536, 16, 400
CHUNK = 1 if FIXED else 2048  # rows


def write(path: str) -> None:
    rows = np.random.default_rng(0).standard_normal((ROWS, 64)).astype("float32").round(1)
    with h5py.File(path, "w") as file:
        file.create_dataset("rows", data=rows, chunks=(CHUNK, 64), compression="gzip", compression_opts=1)
        file["labels"] = np.arange(ROWS) % 4


class Rows(Dataset[Any]):
    def __init__(self, path: str) -> None:
        self.file = h5py.File(path, "r")
        self.labels = self.file["labels"][:]

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> Any:
        return torch.from_numpy(self.file["rows"][index]), int(self.labels[index])  # trouble


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.h5")
        write(path)
        classifier, waiting, wall = Classifier(), Clock(), Clock()
        batches = iter(DataLoader(Rows(path), batch_size=BATCH, shuffle=True))
        with wall:
            for _ in itertools.repeat(None, STEPS):
                with waiting:
                    features, labels = next(batches)
                classifier.step(features, labels)
        # Reading rows one by one still takes most of a step that short.
        print("TRUTH " + json.dumps({"finding": "data-starved", "share": round(waiting.ns / wall.ns, 3)}))


if __name__ == "__main__":
    main()
