"""A thread that spins in pure Python and gives the GIL up only when it must, every 5 ms. Size: spinning threads."""

from _common import Program, Ready, Stoppable, Trainer, pin
from torch.utils.data import DataLoader


def spin() -> None:
    for _ in range(10_000):  # trouble
        pass  # trouble


def main() -> None:
    program = Program(cause="gil_wait", finding="gil-hog", steps=12, size=1, who="spinner")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    spinners = [Stoppable(spin, f"spinner-{i}", cpu=1) for i in range(int(program.size))]
    for spinner in spinners:
        spinner.start()
    with program.watch():
        pin(0)
        for x, y in DataLoader(Ready(trainer, program.steps), batch_size=None):
            trainer.step(x, y)
    program.blame_gil()
    for spinner in spinners:
        spinner.stop()
    program.report()


if __name__ == "__main__":
    main()
