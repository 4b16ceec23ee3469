"""Loops that feed a GPU that does not exist (tests/fakes.py), each with one trouble.

    python gpu_programs.py NAME RUN LIBCUPTI LIBCUDA [full|windows]

The GPU works in real time: what is launched runs for as long as it is said to, one after the other.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from collections.abc import Callable

import torch
import trainperf
from fakes import Gpu
from torch.utils.data import DataLoader, Dataset

STEPS = 30
CUDA_MALLOC, CUDA_FREE = 20, 22
PROGRAMS: dict[str, Callable[[], None]] = {}

gpu: Gpu
weight = torch.ones(1, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)


def program(function: Callable[[], None]) -> Callable[[], None]:
    PROGRAMS[function.__name__] = function
    return function


class Batches(Dataset[torch.Tensor]):
    def __init__(self, wait_ms: float) -> None:
        self.wait_ms = wait_ms

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.wait_ms / 1e3)
        return torch.ones(1)


def compute(ms: float, name: str = "sm90_xmma_gemm_bf16") -> None:
    for i in range(5):
        gpu.launch(f"{name}_{i}", ms=ms / 5)


def spin(ms: float) -> None:
    """Python for so long, by this thread's own clock."""
    end = time.thread_time() + ms / 1e3
    while time.thread_time() < end:
        pass


def nothing() -> None:
    pass


def train(
    work: Callable[[], None], *, before: Callable[[], None] = nothing, after: Callable[[], None], wait_ms: float = 0
) -> None:
    gpu.start()
    for batch in DataLoader(Batches(wait_ms), batch_size=None):
        before()
        work()
        after()
        (weight * batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def finish() -> None:
    gpu.synchronize()


@program
def busy() -> None:
    """It waits at each tenth step: what is done meanwhile is small beside the 600 ms that the GPU then had to do."""
    steps = itertools.count(1)
    train(lambda: compute(60), after=lambda: finish() if next(steps) % 10 == 0 else None)


@program
def throttled() -> None:
    """Heat takes a third of the clock in most of its 9 seconds: GPU-bound, and of that the driver's own word."""
    free = {
        "busy": 99,
        "sm": 1980,
        "sm_max": 1980,
        "memory": 2619,
        "power": 690_000,
        "power_limit": 700_000,
        "used": 10**10,
    }
    gpu.nvml(**free, celsius=70, reasons=0)
    steps = itertools.count(1)

    def after() -> None:
        finish()
        if next(steps) == 6:
            gpu.nvml(sm=1320, celsius=91, reasons=0x20)

    train(lambda: compute(300), after=after)


@program
def hidden_fetch() -> None:
    """The loop fetches all the time, and the GPU is further behind at each step."""
    train(lambda: compute(12), after=nothing, wait_ms=2)
    finish()


@program
def slow_fetch() -> None:
    train(lambda: compute(3), after=nothing, wait_ms=9)


@program
def gil_hog() -> None:
    stop = threading.Event()
    rows = [{"a": list(range(200))} for _ in range(300)]

    def index() -> None:
        while not stop.is_set():
            json.dumps(rows)

    thread = threading.Thread(target=index, name="indexer")
    thread.start()
    train(lambda: compute(2), after=nothing)
    stop.set()
    thread.join()


@program
def item() -> None:
    """Reads a number, and then takes its time before it launches anything."""

    def read() -> None:
        gpu.copy(4, to_device=False, ms=0.005)
        gpu.synchronize()
        spin(4)

    train(lambda: compute(20), after=read)


@program
def pageable() -> None:
    train(lambda: compute(16), before=lambda: gpu.copy(8_000_000, pageable=True, ms=4), after=finish)


@program
def launches() -> None:
    def small() -> None:
        for _ in range(150):
            gpu.launch("vectorized_elementwise_kernel", ms=0.004)
            for _ in range(8):  # the host's part of an operation takes longer than the GPU's
                torch.add(weight, 1)

    train(small, after=nothing)


@program
def allocations() -> None:
    def allocate() -> None:
        gpu.call(CUDA_MALLOC, ms=2)
        gpu.call(CUDA_FREE, ms=2)

    train(lambda: compute(16), before=allocate, after=finish)


@program
def modules() -> None:
    train(lambda: compute(16), before=lambda: gpu.module_load(ms=4), after=finish)


@program
def autotuning() -> None:
    """Each step has a new shape, for which an autotuner (of Triton's file and function) times three candidates."""
    code = "def _bench(trials):\n    for trial in trials:\n        trial()\n        wait()"
    names: dict[str, Callable[..., None]] = {"wait": finish}
    exec(compile(code, "/opt/site-packages/triton/runtime/autotuner.py", "exec"), names)
    trials = [lambda i=i: gpu.launch(f"triton_{i}", ms=4) for i in range(3)]
    train(lambda: compute(8), before=lambda: names["_bench"](trials), after=nothing)


@program
def collectives() -> None:
    def work() -> None:
        compute(16)
        gpu.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", ms=8)

    train(work, after=finish)


@program
def float32() -> None:
    train(lambda: compute(30, "ampere_sgemm_128x64_nn"), after=finish)


if __name__ == "__main__":
    name, path, cupti, cuda, mode = [*sys.argv[1:], "full"][:5]
    torch.set_num_threads(1)
    gpu = Gpu(cupti, cuda)
    with trainperf.watch(path, verbose=False, cuda=mode):
        PROGRAMS[name]()
