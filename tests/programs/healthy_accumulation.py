"""Gradient accumulation: an optimizer step every fourth batch. Each batch is a step."""

from _common import Program, Ready, Trainer
from torch.utils.data import DataLoader


def main() -> None:
    program = Program(cause="", finding="", steps=400, size=0)
    trainer = Trainer(width=512).warm_up(program.warm_up)
    with program.watch():
        for number, (x, y) in enumerate(DataLoader(Ready(trainer, program.steps), batch_size=None), 1):
            trainer.loss(trainer.model(x), y).backward()
            if number % 4 == 0:
                trainer.optimizer.step()
                trainer.optimizer.zero_grad()
    program.report()


if __name__ == "__main__":
    main()
