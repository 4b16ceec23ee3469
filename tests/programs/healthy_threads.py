"""Torch computes on two threads, its default on two cores: the main one waits for the other now and then."""

from _common import Program, Ready, Trainer
from torch.utils.data import DataLoader


def main() -> None:
    program = Program(cause="", finding="", steps=80, size=0, threads=2)
    trainer = Trainer(width=768, batch=128).warm_up(program.warm_up)
    with program.watch():
        for x, y in DataLoader(Ready(trainer, program.steps), batch_size=None):
            trainer.step(x, y)
    program.report()


if __name__ == "__main__":
    main()
