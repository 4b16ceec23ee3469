"""A wait in the loop: a rate limiter that sleeps. Size: ms per step."""

import time

from _common import Program, Ready, Trainer
from torch.utils.data import DataLoader


def limit_rate(program: Program) -> None:
    with program.trouble():
        time.sleep(program.size / 1e3)  # trouble


def main() -> None:
    program = Program(cause="blocked_io", finding="blocked", steps=200, size=4.0, who="MainThread")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    with program.watch():
        for x, y in DataLoader(Ready(trainer, program.steps), batch_size=None):
            trainer.step(x, y)
            if program.size:
                limit_rate(program)
    program.report()


if __name__ == "__main__":
    main()
