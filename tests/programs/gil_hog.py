"""A thread that serializes metrics in one call of C code, which holds the GIL throughout. Size: ms of one hold."""

import json
import time

from _common import Program, Stoppable, Trainer, calibrated, train_beside


def serialize(n: int) -> str:
    return json.dumps([0.5] * n)  # trouble


def main() -> None:
    program = Program(cause="gil_wait", finding="gil-hog", steps=120, size=10.0, who="metrics-writer")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    work = calibrated(serialize, program.size)

    def write_metrics() -> None:
        serialize(work)
        time.sleep(program.size / 1e3)

    writers = [Stoppable(write_metrics, "metrics-writer", cpu=1)] if program.size else []
    train_beside(program, trainer, writers)


if __name__ == "__main__":
    main()
