"""Workers that are started again for every short epoch. Size: workers."""

from _common import Program, Ready, Trainer, train_in_epochs
from torch.utils.data import DataLoader

EPOCH = 6


def main() -> None:
    program = Program(cause="data_wait", finding="worker-startup", steps=72, size=2, where="")
    trainer = Trainer(width=256).warm_up(program.warm_up)
    loader = DataLoader(Ready(trainer, EPOCH), batch_size=None, num_workers=int(program.size))
    train_in_epochs(program, trainer, loader, EPOCH)


if __name__ == "__main__":
    main()
