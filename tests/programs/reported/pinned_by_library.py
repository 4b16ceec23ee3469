"""A native library pins the thread that calls it, a moment after training began; a
thread of the program that computes shares its CPU from then on."""

import ctypes
import json
import os
import threading
import time

import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
LIBC = ctypes.CDLL(None, use_errno=True)


def vendor_init(thread):
    """As a vendor's C library does it: no call of Python's is seen."""
    mask = ctypes.c_ulong(1 << min(os.sched_getaffinity(0)))
    LIBC.sched_setaffinity(thread, ctypes.sizeof(mask), ctypes.byref(mask))


def smooth(stop):
    """A running statistic of the inputs, for a plot: in torch, which leaves the GIL to the others."""
    kernel, picture = torch.ones(1, 1, 9, 9) / 81, torch.rand(48, 1, 128, 128)
    while not stop.is_set():
        picture = nn.functional.conv2d(picture, kernel, padding=4)


def delay_ns():
    with open(f"/proc/self/task/{threading.get_native_id()}/schedstat") as file:
        return int(file.read().split()[1])


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(512, 1536), nn.ReLU(), nn.Linear(1536, 1536), nn.ReLU(), nn.Linear(1536, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    stop = threading.Event()
    worker = threading.Thread(target=smooth, args=(stop,), name="smooth", daemon=True)
    worker.start()
    began, delayed = time.perf_counter(), delay_ns()
    for step in range(220):
        rows, labels = torch.randn(128, 512), torch.zeros(128, dtype=torch.long)
        loss = nn.functional.cross_entropy(model(rows), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 25 and not FIXED:
            for thread in (threading.get_native_id(), worker.native_id):
                vendor_init(thread)
    wall = time.perf_counter() - began
    share = (delay_ns() - delayed) / 1e9 / wall
    stop.set()
    worker.join()
    truth = {"finding": None} if FIXED else {"finding": "pinned-cpus", "share": round(share, 3)}
    print("TRUTH " + json.dumps(truth))


if __name__ == "__main__":
    main()
