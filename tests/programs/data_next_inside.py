"""next(iterator) in the middle of the loop's body, from a slow dataset. Size: ms of waiting per batch."""

import time

from _common import Program, Slowed, Trainer
from torch.utils.data import DataLoader


def wait(ms: float) -> None:
    time.sleep(ms / 1e3)  # trouble


def main() -> None:
    program = Program(cause="data_wait", finding="data-starved", steps=200, size=4.0, who="MainThread")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    with program.watch():
        batches = iter(DataLoader(Slowed(program, trainer, wait), batch_size=None))
        for _ in range(program.steps):
            trainer.optimizer.zero_grad()
            x, y = next(batches)
            trainer.loss(trainer.model(x), y).backward()
            trainer.optimizer.step()
    program.report()


if __name__ == "__main__":
    main()
