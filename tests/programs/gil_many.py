"""Several threads that hold the GIL shortly and often. Size: threads."""

import time

from _common import Program, Ready, Stoppable, Trainer, calibrated, pin
from torch.utils.data import DataLoader


def poll(n: int) -> int:
    return sum(i & 3 for i in range(n))  # trouble


def main() -> None:
    program = Program(cause="gil_wait", finding="gil-many", steps=80, size=3, who="poller")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    work = calibrated(poll, 0.4)

    def look() -> None:
        poll(work)
        time.sleep(0.001)

    pollers = [Stoppable(look, f"poller-{i}", cpu=1) for i in range(int(program.size))]
    for poller in pollers:
        poller.start()
    with program.watch():
        pin(0)
        for x, y in DataLoader(Ready(trainer, program.steps), batch_size=None):
            trainer.step(x, y)
    program.blame_gil()
    for poller in pollers:
        poller.stop()
    program.report()


if __name__ == "__main__":
    main()
