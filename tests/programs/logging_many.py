"""A log record for each of many gradients, after each step. Size: records per step."""

import logging
import os

from _common import Program, Ready, Trainer
from torch.utils.data import DataLoader


def main() -> None:
    program = Program(cause="logging", finding="logging", steps=400, size=300.0, who="MainThread")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    log = logging.getLogger("train")
    log.setLevel(logging.INFO)
    log.propagate = False
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        log.addHandler(logging.StreamHandler(nowhere))
        with program.watch():
            for number, (x, y) in enumerate(DataLoader(Ready(trainer, program.steps), batch_size=None)):
                trainer.step(x, y)
                with program.trouble():
                    for which in range(int(program.size)):
                        log.info("step %d: gradient %d is %f", number, which, 1 / (which + 1))  # trouble
        program.report()


if __name__ == "__main__":
    main()
