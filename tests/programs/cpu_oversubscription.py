"""torch computes on more threads than there are CPUs, and they take turns. Size: threads for each CPU."""

import os

import torch
from _common import Program, Ready, Trainer
from torch.utils.data import DataLoader


def main() -> None:
    program = Program(cause="descheduled", finding="cpu-oversubscription", steps=150, size=4, where="")
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(max(1, int(program.size)))
    trainer = Trainer(width=768, batch=128).warm_up(program.warm_up)
    with program.watch():
        for x, y in DataLoader(Ready(trainer, program.steps), batch_size=None):
            trainer.step(x, y)
    program.truth_ns = program.delay_ns
    program.report()


if __name__ == "__main__":
    main()
