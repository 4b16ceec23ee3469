"""Three trainings of the same small convolutional network, each with another kind of trouble, and what trainperf says.

    python examples/demo.py             (`make demo` builds first)
    python examples/demo.py files       (one of: files, metrics, checkpoints)

1. files: the dataset unpacks each image in the training process.
2. metrics: a background thread serializes metrics, and holds the GIL while it does.
3. checkpoints: the model and its optimizer are saved every five steps.

Then `trainperf try` applies the fix of the first to this very script, from outside, and proves that it helps.

It knows what it did wrong, and compares: it ends with 1 when a verdict is not what it should be.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import torch
import trainperf
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS, BATCH, SIDE = 240, 8, 48
UNDECIDED = 4  # an exit code of trainperf try


class Images(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Small colour images; packed ones are unpacked, and their pixels shifted, each time that one is read."""

    def __init__(self, *, packed: bool, steps: int = STEPS) -> None:
        self.steps = steps
        self.images = [torch.rand(3, SIDE, SIDE) for _ in range(16)]
        self.packed = [zlib.compress(image.numpy().tobytes(), 1) for image in self.images] if packed else []

    def __len__(self) -> int:
        return self.steps * BATCH

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        image = unpack(self.packed[index % 16]) if self.packed else self.images[index % 16]
        return image, torch.tensor(index % 10)


def unpack(data: bytes) -> torch.Tensor:
    """Slow on purpose: it touches each pixel in Python."""
    pixels = torch.frombuffer(bytearray(zlib.decompress(data)), dtype=torch.float32)
    return torch.tensor([value * 2.0 - 1.0 for value in pixels.tolist()]).reshape(3, SIDE, SIDE)


class Training:
    """A network of two convolutions, and its loop."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Conv2d(3, 16, 4, stride=4), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.Flatten(),
            nn.Linear(32 * 5 * 5, 2048), nn.ReLU(), nn.Linear(2048, 10),
        )  # fmt: skip
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.loss = nn.CrossEntropyLoss()

    def run(self, loader: DataLoader[tuple[torch.Tensor, torch.Tensor]], *, save_to: Path | None = None) -> None:
        for step, (images, labels) in enumerate(loader, 1):
            self.optimizer.zero_grad()
            self.loss(self.model(images), labels).backward()
            self.optimizer.step()
            if save_to and step % 5 == 0:
                torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, save_to)


def files(folder: Path) -> trainperf.Watch:
    training, loader = Training(), DataLoader(Images(packed=True), batch_size=BATCH)
    with trainperf.watch(folder / "files.tpr") as run:
        training.run(loader)
    return run


def metrics(folder: Path) -> trainperf.Watch:
    training, loader = Training(), DataLoader(Images(packed=False), batch_size=BATCH)
    history, done = [{"loss": i / 7, "step": i} for i in range(15_000)], threading.Event()

    def write_metrics() -> None:
        while not done.is_set():
            json.dumps(history)  # one call of C code, some 15 ms long, with the GIL held
            time.sleep(0.005)

    writer = threading.Thread(target=write_metrics, name="metrics-writer")
    writer.start()
    with trainperf.watch(folder / "metrics.tpr") as run:
        training.run(loader)
    done.set()
    writer.join()
    return run


def checkpoints(folder: Path) -> trainperf.Watch:
    # Its steps are the shortest: for a run as long as the others'.
    training, loader = Training(), DataLoader(Images(packed=False, steps=2 * STEPS), batch_size=BATCH)
    with trainperf.watch(folder / "checkpoints.tpr") as run:
        training.run(loader, save_to=folder / "model.pt")
    return run


# What each training suffers from, and the finding that should say so.
TROUBLES: dict[str, tuple[Callable[[Path], trainperf.Watch], str]] = {
    "files": (files, "data-starved"),
    "metrics": (metrics, "gil-hog"),
    "checkpoints": (checkpoints, "checkpoint"),
}


def prove(folder: Path) -> list[str]:
    """Has the fix of the first trouble applied and proven, in 40 seconds; what went wrong."""
    print("\n=== files: its fix, proven", flush=True)
    words = ["try", "--budget", "40s", "-o", str(folder / "fix.patch"), "--", __file__, "files"]
    code = subprocess.run([sys.executable, "-m", "trainperf", *words], check=False).returncode
    if code == UNDECIDED:
        print("(The machine was busy: 40 seconds were not enough to tell.)", flush=True)
    return [] if code in (0, UNDECIDED) else [f"files: its fix was not proven (exit code {code})"]


def main(names: list[str]) -> int:
    torch.set_num_threads(1)
    unknown = [name for name in names if name not in TROUBLES]
    if unknown:
        print(f"no such training: {', '.join(unknown)}; there are: {', '.join(TROUBLES)}", file=sys.stderr)
        return 2
    wrong = []
    folder = Path(tempfile.mkdtemp(prefix="trainperf-demo-"))  # kept: its run files are there to be looked at
    for name in names or TROUBLES:
        train, expected = TROUBLES[name]
        print(f"\n=== {name}: its trouble, which should be found, is {expected}", flush=True)
        # On a busy machine "descheduled" may come first, and rightly: that is not of this demo's making.
        all_found = [f.slug for f in train(folder).findings]
        found = [slug for slug in all_found if slug != "descheduled"]
        if all_found[:1] == ["descheduled"] and found[:1] == [expected]:
            print(
                f"(The machine was busy: waits for a CPU cost more than {expected}, which was found as well.)",
                flush=True,
            )
        if found[:1] != [expected]:
            wrong.append(f"{name}: {found[0] if found else 'nothing'} was found instead of {expected}")
    if not names:
        wrong += prove(folder)
    for line in wrong:
        print(f"WRONG: {line}", file=sys.stderr)
    if not wrong:
        print("\nAll troubles were found. Now yours (in a clone: . .venv/bin/activate): trainperf run your_script.py")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
