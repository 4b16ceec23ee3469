"""Two optimizer steps on each batch that is fetched, from a slow dataset. Size: ms of waiting per batch."""

import time

from _common import Program, Slowed, Trainer
from torch.utils.data import DataLoader


def wait(ms: float) -> None:
    time.sleep(ms / 1e3)  # trouble


def main() -> None:
    program = Program(cause="data_wait", finding="data-starved", steps=150, size=6.0, who="MainThread")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    with program.watch():
        for x, y in DataLoader(Slowed(program, trainer, wait), batch_size=None):
            for _ in range(2):
                trainer.step(x, y)
    program.report()


if __name__ == "__main__":
    main()
