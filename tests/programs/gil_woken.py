"""A thread that is given each step's figures to write, and holds the GIL for it in C, 2.5 ms of each step. Size: ms.

The training thread's wait begins while the writer frees what it has taken out of the queue, one line before.
"""

import ctypes
import queue

import torch
from _common import Program, Stoppable, Trainer
from torch.utils.data import DataLoader, TensorDataset

hold = ctypes.PyDLL(None).usleep  # sleeps with the GIL in hand


def main() -> None:
    program = Program(cause="gil_wait", finding="gil-hog", steps=300, size=2.5, who="metrics-writer")
    trainer = Trainer(width=384, layers=5).warm_up(program.warm_up)
    figures: queue.Queue[object] = queue.Queue()

    def write() -> None:
        given = figures.get() is not None
        if given:
            hold(int(program.size * 1e3))  # trouble

    writer = Stoppable(write, "metrics-writer")
    rows = TensorDataset(torch.randn(program.steps * 64, 64), torch.randint(0, 10, (program.steps * 64,)))
    loader = DataLoader(rows, batch_size=64)
    writer.start()
    with program.watch():
        for x, y in loader:
            trainer.step(x, y)
            if program.size:
                figures.put([p.grad[:4].flatten().tolist() for p in trainer.model.parameters() if p.grad is not None])
    program.blame_gil()
    writer.ending.set()
    figures.put(None)
    writer.join()
    program.report()


if __name__ == "__main__":
    main()
