"""Two workers that have batches ready when they are asked for."""

from _common import Program, Ready, Trainer
from torch.utils.data import DataLoader


def main() -> None:
    program = Program(cause="", finding="", steps=60, size=0)
    trainer = Trainer(width=1536, batch=256).warm_up(program.warm_up)
    loader = DataLoader(Ready(trainer, program.steps), batch_size=None, num_workers=2)
    with program.watch():
        for x, y in loader:
            trainer.step(x, y)
    program.report()


if __name__ == "__main__":
    main()
