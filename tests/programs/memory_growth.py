"""Each step keeps something: a list grows for the whole run. Size: MB a second. Runs for some 12 seconds: memory is
read once a second."""

import os
import time
from pathlib import Path

import torch
from _common import Program, Ready, Trainer, keep_what_is_freed
from torch.utils.data import DataLoader

SECONDS = 12.5


def main() -> None:
    program = Program(cause="memory", finding="memory-growth", steps=100_000, size=12, where="")
    keep_what_is_freed()  # it loses up to a twentieth to the heap otherwise
    trainer = Trainer(width=512).warm_up(program.warm_up)
    kept: list[torch.Tensor] = []
    steps = 0
    with program.watch():
        start, before = time.monotonic(), own_memory()
        for x, y in DataLoader(Ready(trainer, program.steps), batch_size=None):
            trainer.step(x, y)
            steps += 1
            passed = time.monotonic() - start
            while sum_of(kept) < program.size * 1e6 * passed:
                kept.append(torch.ones(25_000))
            if passed > SECONDS:
                break
        program.grown_bytes = own_memory() - before  # the allocator takes more than is asked of it
    if not program.size:
        program.grown_bytes = 0
    program.report(steps)


def own_memory() -> int:
    """Resident bytes, mapped files not counted."""
    resident, shared = Path("/proc/self/statm").read_text(encoding="ascii").split()[1:3]
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def sum_of(kept: list[torch.Tensor]) -> int:
    return 100_000 * len(kept)


if __name__ == "__main__":
    main()
