"""Distillation: the forward pass of a teacher in eval mode, without gradients, in each step."""

import torch
from _common import Program, Ready, Trainer
from torch import nn
from torch.utils.data import DataLoader


def main() -> None:
    program = Program(cause="", finding="", steps=300, size=0)
    trainer = Trainer(width=384).warm_up(program.warm_up)
    teacher = nn.Sequential(nn.Linear(64, 768), nn.ReLU(), nn.Linear(768, 10))
    distance = nn.MSELoss()
    with program.watch():
        for x, _y in DataLoader(Ready(trainer, program.steps), batch_size=None):
            teacher.eval()
            with torch.no_grad():
                target = teacher(x)
            trainer.optimizer.zero_grad()
            distance(trainer.model(x), target).backward()
            trainer.optimizer.step()
    program.report()


if __name__ == "__main__":
    main()
