"""Pure Python on the critical path: a metric is computed number by number. Size: ms per step."""

from _common import Program, Ready, Trainer, calibrated
from torch.utils.data import DataLoader


def accuracy(n: int) -> float:
    return sum(i % 7 == 0 for i in range(n)) / (n + 1)  # trouble


def main() -> None:
    program = Program(cause="python", finding="host-python", steps=1000, size=4.0, who="MainThread")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    work = calibrated(accuracy, program.size)
    with program.watch():
        for x, y in DataLoader(Ready(trainer, program.steps), batch_size=None):
            trainer.step(x, y)
            if work:
                with program.trouble():
                    accuracy(work)
    program.report()


if __name__ == "__main__":
    main()
