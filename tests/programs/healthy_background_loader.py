"""A loader that a background thread reads in time: its fetches are no waits of the loop."""

import queue
import threading

import torch
from _common import Program, Ready, Trainer
from torch.utils.data import DataLoader


def main() -> None:
    program = Program(cause="", finding="", steps=300, size=0)
    trainer = Trainer(width=768).warm_up(program.warm_up)
    batches: queue.Queue[tuple[torch.Tensor, torch.Tensor]] = queue.Queue(maxsize=4)

    def read() -> None:
        for batch in DataLoader(Ready(trainer, program.steps), batch_size=None):
            batches.put(batch)

    with program.watch():
        reader = threading.Thread(target=read, name="prefetcher")
        reader.start()
        for _ in range(program.steps):
            trainer.step(*batches.get())
        reader.join()
    program.report()


if __name__ == "__main__":
    main()
