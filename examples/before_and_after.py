"""A training whose report names a trouble, the same with that mended as the report says, and the two compared.

    python examples/before_and_after.py [FOLDER]

Before: a thread serializes metrics and holds the GIL while it does. The report says so (gil-hog), and what to do: run
that in a process. After: it runs in a process. FOLDER then holds before.tpr, after.tpr and changed.html. It takes a
minute: of shorter runs nobody knows what the machine itself made of them.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
import threading
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import torch
import trainperf
from demo import BATCH, Images, Training
from torch.utils.data import DataLoader
from trainperf.cli.main import main as command

EPOCHS = 16
HISTORY = [{"loss": i / 7, "step": i} for i in range(15_000)]


def write_metrics(done: Event | threading.Event) -> None:
    while not done.is_set():
        json.dumps(HISTORY)  # one call of C code, some 15 ms long, with the GIL held
        time.sleep(0.005)


def before(path: Path) -> None:
    done = threading.Event()
    writer = threading.Thread(target=write_metrics, args=(done,), name="metrics-writer")
    writer.start()
    train(path)
    done.set()
    writer.join()


def after(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    done = context.Event()
    writer = context.Process(target=write_metrics, args=(done,))
    writer.start()
    train(path)
    done.set()
    writer.join()


def train(path: Path) -> None:
    training, loader = Training(), DataLoader(Images(packed=False), batch_size=BATCH)
    with trainperf.watch(path):
        for _ in range(EPOCHS):
            training.run(loader)


def main(folder: Path) -> int:
    torch.set_num_threads(1)
    print("=== before", flush=True)
    before(folder / "before.tpr")
    print("\n=== after what the report said: run write_metrics in a process", flush=True)
    after(folder / "after.tpr")
    words = ["compare", str(folder / "before.tpr"), str(folder / "after.tpr"), "-o", str(folder / "changed.html")]
    print(f"\n$ trainperf {' '.join(words)}", flush=True)
    return command(words)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="trainperf-"))))
