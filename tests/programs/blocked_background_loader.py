"""A loader that a background thread reads, too slowly: the loop waits for its queue. Size: ms per batch."""

import queue
import threading
import time

import torch
from _common import Program, Ready, Trainer
from torch.utils.data import DataLoader


class Slow(Ready):
    def __init__(self, program: Program, trainer: Trainer) -> None:
        super().__init__(trainer, program.steps)
        self.wait_s = program.size / 1e3

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self.wait_s:
            time.sleep(self.wait_s)
        return super().__getitem__(index)


def main() -> None:
    program = Program(cause="blocked_io", finding="blocked", steps=200, size=8.0, who="prefetcher")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    batches: queue.Queue[tuple[torch.Tensor, torch.Tensor]] = queue.Queue(maxsize=4)

    def read() -> None:
        for batch in DataLoader(Slow(program, trainer), batch_size=None):
            batches.put(batch)

    with program.watch():
        reader = threading.Thread(target=read, name="prefetcher")
        reader.start()
        for _ in range(program.steps):
            if program.size:
                with program.trouble():
                    x, y = batches.get()  # trouble
            else:
                x, y = batches.get()
            trainer.step(x, y)
        reader.join()
    program.report()


if __name__ == "__main__":
    main()
