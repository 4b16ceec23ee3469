"""The process' own threads compete for the one CPU that it may use, without the GIL. Size: threads."""

import os
import zlib

from _common import Program, Ready, Stoppable, Trainer
from torch.utils.data import DataLoader


def main() -> None:
    program = Program(cause="descheduled", finding="descheduled", steps=150, size=2, where="")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    data = os.urandom(2_000_000)
    compressors = [Stoppable(lambda: zlib.compress(data, 9), f"compressor-{i}") for i in range(int(program.size))]
    for compressor in compressors:
        compressor.start()
    with program.watch():
        for x, y in DataLoader(Ready(trainer, program.steps), batch_size=None):
            trainer.step(x, y)
    program.truth_ns = program.delay_ns
    for compressor in compressors:
        compressor.stop()
    program.report()


if __name__ == "__main__":
    main()
