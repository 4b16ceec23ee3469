"""next(iterator) in the middle of the loop's body, from a slow dataset. Size: ms of waiting per batch."""

import time

import torch
from _common import Program, Ready, Trainer
from torch.utils.data import DataLoader


class Slow(Ready):
    def __init__(self, program: Program, trainer: Trainer) -> None:
        super().__init__(trainer, program.steps)
        self.program = program

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self.program.size:
            with self.program.trouble():
                time.sleep(self.program.size / 1e3)  # trouble
        return super().__getitem__(index)


def main() -> None:
    program = Program(cause="data_wait", finding="data-starved", steps=200, size=4.0, who="MainThread")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    with program.watch():
        batches = iter(DataLoader(Slow(program, trainer), batch_size=None))
        for _ in range(program.steps):
            trainer.optimizer.zero_grad()
            x, y = next(batches)
            trainer.loss(trainer.model(x), y).backward()
            trainer.optimizer.step()
    program.report()


if __name__ == "__main__":
    main()
