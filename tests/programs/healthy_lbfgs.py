"""LBFGS: its closure runs backward many times within one optimizer step."""

import torch
from _common import Program, Ready, Trainer
from torch.utils.data import DataLoader


def main() -> None:
    program = Program(cause="", finding="", steps=40, size=0)
    trainer = Trainer(width=256)
    optimizer = torch.optim.LBFGS(trainer.model.parameters(), lr=0.1, max_iter=6)

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = trainer.loss(trainer.model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)

    for _ in range(3):
        step(*trainer.example())
    with program.watch():
        for x, y in DataLoader(Ready(trainer, program.steps), batch_size=None):
            step(x, y)
    program.report()


if __name__ == "__main__":
    main()
