"""The founding case: a thread holds the GIL during the first third of the run, which is slow. Size: ms of one hold."""

import json
import time

from _common import Program, Stoppable, Trainer, calibrated, train_beside


def index_files(n: int) -> str:
    return json.dumps([0.5] * n)  # trouble


def main() -> None:
    program = Program(cause="gil_wait", finding="uneven", steps=360, size=12.0, who="indexer")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    work = calibrated(index_files, program.size)

    def index() -> None:
        index_files(work)
        time.sleep(program.size / 4e3)

    indexers = [Stoppable(index, "indexer", cpu=1)] if program.size else []
    train_beside(program, trainer, indexers, until=1 / 3)


if __name__ == "__main__":
    main()
