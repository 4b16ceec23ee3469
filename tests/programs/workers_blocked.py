"""Two DataLoader workers that cannot keep up: they wait (for storage). Size: ms of waiting per batch."""

import time

import torch
from _common import Program, Ready, Trainer
from torch.utils.data import DataLoader


class Stored(Ready):
    def __init__(self, trainer: Trainer, length: int, wait_ms: float) -> None:
        super().__init__(trainer, length)
        self.wait_ms = wait_ms

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self.wait_ms:
            time.sleep(self.wait_ms / 1e3)
        return super().__getitem__(index)


def main() -> None:
    program = Program(cause="data_wait", finding="workers-too-slow", steps=150, size=30.0, where="")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    loader = DataLoader(Stored(trainer, program.steps, program.size), batch_size=None, num_workers=2)
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
