"""Workers keep up, but a batch is made of many tensors and each costs the training process a file descriptor to fetch:
the batch is ready and is not delivered. Size: tensors per batch."""

import torch
from _common import Program, Trainer
from torch.utils.data import DataLoader, Dataset


class Pieces(Dataset[list[torch.Tensor]]):
    def __init__(self, trainer: Trainer, length: int, pieces: int) -> None:
        self.example, self.length, self.pieces = trainer.example(), length, pieces

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        return [*self.example, *(torch.zeros(16) for _ in range(self.pieces))]


def main() -> None:
    program = Program(cause="data_wait", finding="ready-not-delivered", steps=80, size=80, where="")
    trainer = Trainer(width=1024, batch=256).warm_up(program.warm_up)
    dataset = Pieces(trainer, program.steps, int(program.size))
    loader = DataLoader(dataset, batch_size=None, num_workers=2, prefetch_factor=4)
    with program.watch():
        with program.trouble():
            batches = iter(loader)
        for _ in range(program.steps):
            with program.trouble():
                x, y, *_pieces = next(batches)
            trainer.step(x, y)
    program.report()


if __name__ == "__main__":
    main()
