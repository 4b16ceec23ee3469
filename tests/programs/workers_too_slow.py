"""One DataLoader worker that cannot keep up: it computes. Size: ms of CPU per batch."""

import math

import torch
from _common import Program, Ready, Trainer, calibrated
from torch.utils.data import DataLoader


def augment(n: int) -> float:
    return sum(math.sin(i) for i in range(n))


class Augmented(Ready):
    def __init__(self, trainer: Trainer, length: int, work: int) -> None:
        super().__init__(trainer, length)
        self.work = work

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        augment(self.work)
        return super().__getitem__(index)


def main() -> None:
    program = Program(cause="data_wait", finding="workers-too-slow", steps=150, size=15.0, where="")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    work = calibrated(augment, program.size)
    loader = DataLoader(Augmented(trainer, program.steps, work), batch_size=None, num_workers=1)
    with program.watch():
        with program.trouble():
            batches = iter(loader)
        for _ in range(program.steps):
            with program.trouble():
                x, y = next(batches)
            trainer.step(x, y)
    program.report()


if __name__ == "__main__":
    main()
