"""Spawned workers, not persistent, two short epochs: each start imports torch again. Size: workers."""

from _common import Program, Ready, Trainer, train_in_epochs
from torch.utils.data import DataLoader

EPOCH = 12


def main() -> None:
    program = Program(cause="data_wait", finding="worker-startup", steps=24, size=1, where="")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    workers = int(program.size)
    spawn = "spawn" if workers else None
    loader = DataLoader(Ready(trainer, EPOCH), batch_size=None, num_workers=workers, multiprocessing_context=spawn)
    train_in_epochs(program, trainer, loader, EPOCH)


if __name__ == "__main__":
    main()
