"""A checkpoint every ten steps. Size: MB of one checkpoint."""

import tempfile
from pathlib import Path

import torch
from _common import Program, Ready, Trainer
from torch.utils.data import DataLoader


def main() -> None:
    program = Program(cause="checkpoint", finding="checkpoint", steps=150, size=24, who="MainThread")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    weights = {"weights": torch.randn(int(program.size * 1e6 / 4))}
    with tempfile.TemporaryDirectory() as folder, program.watch():
        for number, (x, y) in enumerate(DataLoader(Ready(trainer, program.steps), batch_size=None), 1):
            trainer.step(x, y)
            if program.size and number % 10 == 0:
                with program.trouble():
                    torch.save(weights, Path(folder) / "last.pt")  # trouble
    program.report()


if __name__ == "__main__":
    main()
