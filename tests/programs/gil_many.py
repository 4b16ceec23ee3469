"""Several threads that hold the GIL shortly and often. Size: threads."""

import time

from _common import Program, Stoppable, Trainer, calibrated, train_beside


def poll(n: int) -> int:
    return sum(i & 3 for i in range(n))  # trouble


def main() -> None:
    program = Program(cause="gil_wait", finding="gil-many", steps=80, size=3, who="poller")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    work = calibrated(poll, 0.4)

    def look() -> None:
        poll(work)
        time.sleep(0.001)

    train_beside(program, trainer, [Stoppable(look, f"poller-{i}", cpu=1) for i in range(int(program.size))])


if __name__ == "__main__":
    main()
