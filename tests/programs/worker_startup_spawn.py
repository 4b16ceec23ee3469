"""Spawned workers, not persistent, two short epochs: each start imports torch again. Size: workers."""

from _common import Program, Ready, Trainer
from torch.utils.data import DataLoader

EPOCH = 12


def main() -> None:
    program = Program(cause="data_wait", finding="worker-startup", steps=24, size=1, where="")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    workers = int(program.size)
    loader = DataLoader(
        Ready(trainer, EPOCH),
        batch_size=None,
        num_workers=workers,
        multiprocessing_context="spawn" if workers else None,
    )
    with program.watch():
        for _ in range(program.steps // EPOCH):
            with program.trouble():
                batches = iter(loader)
                x, y = next(batches)
            trainer.step(x, y)
            for _ in range(EPOCH - 1):
                with program.trouble():
                    x, y = next(batches)
                trainer.step(x, y)
            with program.trouble():  # ends the workers, which takes its time too
                assert next(batches, None) is None
    program.report(EPOCH * (program.steps // EPOCH))


if __name__ == "__main__":
    main()
