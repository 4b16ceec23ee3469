"""A thread that serializes metrics in one call of C code, which holds the GIL throughout. Size: ms of one hold."""

import json
import time

from _common import Program, Ready, Stoppable, Trainer, calibrated, pin
from torch.utils.data import DataLoader


def serialize(n: int) -> str:
    return json.dumps([0.5] * n)  # trouble


def main() -> None:
    program = Program(cause="gil_wait", finding="gil-hog", steps=120, size=10.0, who="metrics-writer")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    work = calibrated(serialize, program.size)

    def write_metrics() -> None:
        serialize(work)
        time.sleep(program.size / 1e3)

    writer = Stoppable(write_metrics, "metrics-writer", cpu=1)
    if program.size:
        writer.start()
    with program.watch():
        pin(0)
        for x, y in DataLoader(Ready(trainer, program.steps), batch_size=None):
            trainer.step(x, y)
    program.blame_gil()
    if program.size:
        writer.stop()
    program.report()


if __name__ == "__main__":
    main()
