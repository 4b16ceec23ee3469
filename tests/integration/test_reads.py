"""What a loader's batches have, and what is read for them: by the thread that makes them, or by its workers, and no one
else."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import trainperf
from loops import Task, watch
from torch.utils.data import DataLoader, Dataset
from trainperf.runfile.schema import described

READ = 1_000_000


class Samples(Dataset[Any]):
    def __init__(self, path: Path) -> None:
        self.file = os.open(path, os.O_RDONLY)

    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, index: int) -> Any:
        os.pread(self.file, READ, 0)
        return torch.zeros(8), torch.zeros(1)


@pytest.mark.parametrize("workers", [0, 2])
def test_what_batches_have_and_what_is_read_for_them(workers: int, tmp_path: Path) -> None:
    path, done = tmp_path / "samples", threading.Event()
    path.write_bytes(bytes(2 * READ))

    def read_logs() -> None:
        with open(path, "rb", buffering=0) as file:
            while not done.wait(0.001):
                file.read(2 * READ)
                file.seek(0)

    def loop(_: trainperf.Watch) -> None:
        task, end = Task(), time.monotonic() + 3.5
        other = threading.Thread(target=read_logs)
        other.start()
        for batch in DataLoader(Samples(path), batch_size=4, num_workers=workers):
            task.train(batch)
            if time.monotonic() > end:
                break
        done.set()
        other.join()

    run = watch(loop, tmp_path)
    ((read, batches, size, sized),) = described(run.meta, "reads").values()
    assert size == sized * 4 * 9 * 4  # float32
    assert batches >= 2 and sized >= 2
    assert read / batches == pytest.approx(4 * READ, rel=0.25)
