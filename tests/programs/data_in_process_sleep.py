"""A dataset that reads each batch in the training process, from storage that answers slowly (a pipe to a process that
waits before it writes, as network storage does). Size: ms of waiting per batch."""

import os
import subprocess
import sys
import time

import torch
from _common import Program, Trainer, run_delay_ns
from torch.utils.data import DataLoader, Dataset

STORAGE = """
import os, sys, time
while os.read(0, 1):
    time.sleep(float(sys.argv[1]) / 1e3)
    os.write(1, bytes(4096))
"""


class Stored(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __init__(self, program: Program, trainer: Trainer) -> None:
        self.program, self.trainer = program, trainer
        self.storage = subprocess.Popen(
            [sys.executable, "-S", "-c", STORAGE, str(program.size)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.storage.stdin and self.storage.stdout
        self.ask, self.answer = self.storage.stdin.fileno(), self.storage.stdout.fileno()
        self.read()  # the process has started when this returns

    def read(self) -> bytes:
        os.write(self.ask, b"?")
        return os.read(self.answer, 4096)  # trouble

    def __len__(self) -> int:
        return self.program.steps

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.program.size:
            return self.trainer.example()
        delay, start = run_delay_ns(), time.perf_counter_ns()
        with self.program.trouble():
            self.read()
        batch = self.trainer.example()  # after a sleep that takes longer, and the loop waits for it as well
        self.program.truth_max_ns += time.perf_counter_ns() - start - (run_delay_ns() - delay)
        return batch

    def close(self) -> None:
        self.storage.communicate()


def main() -> None:
    program = Program(cause="data_wait", finding="data-starved", steps=150, size=6.0, who="MainThread")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    dataset = Stored(program, trainer)
    with program.watch():
        for x, y in DataLoader(dataset, batch_size=None):
            trainer.step(x, y)
    dataset.close()
    program.report()


if __name__ == "__main__":
    main()
