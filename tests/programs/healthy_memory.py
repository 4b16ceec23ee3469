"""A cache fills during the first half of the run, and then no more. Size: MB of it."""

import time

import torch
from _common import Program, Ready, Trainer, keep_what_is_freed
from memory_growth import SECONDS, sum_of
from torch.utils.data import DataLoader


def main() -> None:
    program = Program(cause="", finding="", steps=100_000, size=150)
    keep_what_is_freed()  # it loses up to a twentieth to the heap otherwise
    trainer = Trainer(width=512).warm_up(program.warm_up)
    cache: list[torch.Tensor] = []
    steps = 0
    with program.watch():
        start = time.monotonic()
        for x, y in DataLoader(Ready(trainer, program.steps), batch_size=None):
            trainer.step(x, y)
            steps += 1
            passed = time.monotonic() - start
            while sum_of(cache) < program.size * 1e6 * min(1.0, 2 * passed / SECONDS):
                cache.append(torch.ones(25_000))
            if passed > SECONDS:
                break
    program.report(steps)


if __name__ == "__main__":
    main()
