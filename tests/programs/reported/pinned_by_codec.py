"""A native codec pins the thread that opens it to one CPU: the workers that are forked later inherit that."""

import ctypes
import os
import time

from _common import FIXED, Classifier, Clock, delay_ns, tell
from torch import randn
from torch.utils.data import DataLoader, Dataset

STEPS, BATCH = 500, 16


class Tones(Dataset):
    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, index):
        value, level = index + 1, 0
        for _ in range(2500):
            value = value * 16807 % 2147483647
            level += value & 255
        return randn(64) + level / 1e6, index % 4


def open_codec():
    """As native libraries do it: not by os.sched_setaffinity."""
    mask = ctypes.c_ulong(1 << min(os.sched_getaffinity(0)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.sched_setaffinity(0, ctypes.sizeof(mask), ctypes.byref(mask)):
        raise OSError(ctypes.get_errno(), "sched_setaffinity")


def main():
    training, waiting = Classifier(width=1024), Clock()
    started = time.perf_counter_ns()
    for _ in range(100):
        training.step(*training.batch())
    if not FIXED:
        open_codec()
    batches = iter(DataLoader(Tones(), batch_size=BATCH, num_workers=1))
    training.step(*next(batches))
    delayed = 0  # outside of the waits for data
    while True:
        with waiting:
            batch = next(batches, None)
        if batch is None:
            break
        before = delay_ns()
        training.step(*batch)
        delayed += delay_ns() - before
    tell("pinned-cpus", waiting.ns + delayed, time.perf_counter_ns() - started)


if __name__ == "__main__":
    main()
