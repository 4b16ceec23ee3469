"""Each sample reads a row group of a Parquet file, 4,096 rows of eight columns, and takes one row of two columns."""

import itertools
import os
import tempfile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from _common import FIXED, Classifier, Clock, tell
from torch.utils.data import DataLoader, Dataset

ROWS, GROUP, BATCH, STEPS = 65_536, 4096, 16, 250
COLUMNS = ["features", "label"]


def write(path: str) -> None:
    random = np.random.default_rng(0)

    def wide() -> pa.Array:
        return pa.FixedSizeListArray.from_arrays(random.standard_normal(ROWS * 64).astype("float32"), 64)

    table = {"features": wide(), "label": random.integers(0, 4, ROWS), **{f"unused{i}": wide() for i in range(6)}}
    pq.write_table(pa.table(table), path, row_group_size=GROUP)


class Rows(Dataset[Any]):
    def __init__(self, path: str) -> None:
        self.path = path
        self.kept: pa.Table | None = None
        self.group = -1

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> Any:
        group, row = divmod(index, GROUP)
        if FIXED:
            if group != self.group:
                self.group, self.kept = group, pq.ParquetFile(self.path).read_row_group(group, columns=COLUMNS)
            table = self.kept
        else:
            table = pq.ParquetFile(self.path).read_row_group(group)  # trouble
        return torch.tensor(table["features"][row].values.to_numpy()), table["label"][row].as_py()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.parquet")
        write(path)
        classifier, waiting, wall = Classifier(), Clock(), Clock()
        loader = DataLoader(Rows(path), batch_size=BATCH, num_workers=2, shuffle=not FIXED)
        batches = iter(loader)
        with wall:
            for _ in itertools.repeat(None, STEPS):
                with waiting:
                    features, labels = next(batches)
                classifier.step(features, labels)
        tell("workers-too-slow", waiting.ns, wall.ns)


if __name__ == "__main__":
    main()
