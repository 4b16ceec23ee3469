"""The activations of each step go back to the kernel and are taken again. Size: MB of one activation; above 32 MB
malloc maps each anew, below it depends on what else lies on the heap. Size 0: the same training with malloc set to keep
what is freed. The truth is what the same steps take less with that setting, and it is the pages times one page's cost:
the one needs a machine as fast in the first part as in the second, the other pages that cost as much in between as
before and after. Where these differ, the truth lies between."""

import itertools
import mmap
import resource
import time
from collections.abc import Callable

import torch
from _common import Program, keep_what_is_freed
from torch import nn

SECONDS, TWIN_SECONDS = 9, 3
FEATURES = 64


def main() -> None:
    program = Program(cause="compute", finding="heap-churn", steps=100_000, size=40, where="", who="MainThread")
    if not program.size:
        keep_what_is_freed()
    batch = int((program.size or 40) * 1e6 / FEATURES / 4)
    step = training(batch)
    for _ in range(3):
        step()
    seconds = SECONDS if program.size else TWIN_SECONDS
    steps, page_ns = 0, [page_fault_ns()]
    with program.watch():
        before, start = page_faults(), time.monotonic()
        while time.monotonic() - start < seconds and steps < program.steps:
            step()
            steps += 1
        faults = page_faults() - before
        page_ns.append(page_fault_ns())
    if program.size:
        keep_what_is_freed()
        saved_ns = program.cpu_ns - steps * cpu_ns_of(step)
        truths = [saved_ns, *(round(faults * each) for each in page_ns)]
        program.truth_ns, program.truth_max_ns = min(truths), max(truths)
    program.report(steps)


def training(batch: int) -> Callable[[], None]:
    model = nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.ReLU(), nn.Linear(FEATURES, FEATURES), nn.ReLU())
    model.append(nn.Linear(FEATURES, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(batch, FEATURES), torch.randint(0, 8, (batch,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def page_faults() -> int:
    """Of this thread."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


def page_fault_ns() -> float:
    """CPU time of one fault: the first touch of pages less the second, the median of some rounds."""
    pages, each = 256, []
    for _ in range(7):
        with mmap.mmap(-1, pages * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            clocks = [time.thread_time_ns()]
            for _ in range(2):
                for at in range(0, pages * mmap.PAGESIZE, mmap.PAGESIZE):
                    memory[at] = 1
                clocks.append(time.thread_time_ns())
        first, second = (b - a for a, b in itertools.pairwise(clocks))
        each.append((first - second) / pages)
    return sorted(each)[len(each) // 2]


def cpu_ns_of(step: Callable[[], None]) -> int:
    """A step's CPU time, the median of some, after those that grow the heap."""
    each = []
    for _ in range(13):
        start = time.thread_time_ns()
        step()
        each.append(time.thread_time_ns() - start)
    return sorted(each[3:])[5]


if __name__ == "__main__":
    main()
