"""Workers that are started again for every short epoch. Size: workers."""

from _common import Program, Ready, Trainer
from torch.utils.data import DataLoader

EPOCH = 6


def main() -> None:
    program = Program(cause="data_wait", finding="worker-startup", steps=72, size=2, where="")
    trainer = Trainer(width=256).warm_up(program.warm_up)
    loader = DataLoader(Ready(trainer, EPOCH), batch_size=None, num_workers=int(program.size))
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
