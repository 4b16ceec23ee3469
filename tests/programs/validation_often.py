"""Validation every 20 steps, with a slow loader. Size: ms per validation batch."""

import time

import torch
from _common import Program, Ready, Trainer
from torch.utils.data import DataLoader

BATCHES = 5


class Slow(Ready):
    def __init__(self, program: Program, trainer: Trainer) -> None:
        super().__init__(trainer, BATCHES)
        self.wait_s = program.size / 1e3

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(self.wait_s)
        return super().__getitem__(index)


def main() -> None:
    program = Program(cause="validation", finding="validation", steps=200, size=12.0, where="", who="MainThread")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    validation = DataLoader(Slow(program, trainer), batch_size=None)
    with program.watch():
        for number, (x, y) in enumerate(DataLoader(Ready(trainer, program.steps), batch_size=None), 1):
            trainer.step(x, y)
            if number % 20 == 0:
                with program.trouble():
                    trainer.model.eval()
                    with torch.no_grad():
                        for vx, vy in validation:
                            trainer.loss(trainer.model(vx), vy)
                    trainer.model.train()
    program.report()


if __name__ == "__main__":
    main()
