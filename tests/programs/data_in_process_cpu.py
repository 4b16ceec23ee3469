"""A dataset read in the training process that decodes in pure Python. Size: ms of decoding per batch."""

import math

import torch
from _common import Program, Trainer, calibrated
from torch.utils.data import DataLoader, Dataset

BATCH = 16


def decode(n: int) -> float:
    return sum(math.sin(i) for i in range(n))  # trouble


class Decoded(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __init__(self, program: Program) -> None:
        self.length = BATCH * program.steps
        self.work = calibrated(decode, program.size / BATCH)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self.work:
            decode(self.work)
        return torch.zeros(64), torch.tensor(index % 10)


def main() -> None:
    program = Program(cause="data_wait", finding="data-starved", steps=150, size=6.0, who="MainThread")
    trainer = Trainer(width=1024, batch=BATCH).warm_up(program.warm_up)
    loader = DataLoader(Decoded(program), batch_size=BATCH)
    with program.watch():
        batches = iter(loader)
        for _ in range(program.steps):
            with program.trouble():  # the whole fetch: making the tensors and collating them is waiting for data too
                x, y = next(batches)
            trainer.step(x, y)
    program.report()


if __name__ == "__main__":
    main()
