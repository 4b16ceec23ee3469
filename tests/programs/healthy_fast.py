"""Steps of about 1.4 ms on one thread, and nothing wrong."""

from _common import Program, Ready, Trainer
from torch.utils.data import DataLoader


def main() -> None:
    program = Program(cause="", finding="", steps=1000, size=0)
    trainer = Trainer(width=384).warm_up(program.warm_up)
    with program.watch():
        for x, y in DataLoader(Ready(trainer, program.steps), batch_size=None):
            trainer.step(x, y)
    program.report()


if __name__ == "__main__":
    main()
