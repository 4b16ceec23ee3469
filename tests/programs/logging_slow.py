"""Logging with a handler that waits for its server, after each step. Size: ms per record."""

import logging
import time

from _common import Program, Ready, Trainer
from torch.utils.data import DataLoader


class Server(logging.Handler):
    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program

    def emit(self, record: logging.LogRecord) -> None:
        record.getMessage()
        if self.program.size:
            with self.program.trouble():
                time.sleep(self.program.size / 1e3)  # trouble


def main() -> None:
    program = Program(cause="logging", finding="logging", steps=150, size=6.0, who="MainThread")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    log = logging.getLogger("train")
    log.setLevel(logging.INFO)
    log.addHandler(Server(program))
    with program.watch():
        for number, (x, y) in enumerate(DataLoader(Ready(trainer, program.steps), batch_size=None)):
            trainer.step(x, y)
            log.info("step %d", number)  # trouble
    program.report()


if __name__ == "__main__":
    main()
