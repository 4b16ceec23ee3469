"""Other processes run on the one CPU that training may use. Size: processes."""

import os
import subprocess
import sys

from _common import Program, Ready, Trainer
from torch.utils.data import DataLoader


def main() -> None:
    program = Program(cause="descheduled", finding="descheduled", steps=200, size=1, where="")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    cpu = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu})
    others = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(int(program.size))]
    try:
        with program.watch():
            for x, y in DataLoader(Ready(trainer, program.steps), batch_size=None):
                trainer.step(x, y)
    finally:
        for other in others:
            other.kill()
            other.wait()
    program.truth_ns = program.delay_ns
    program.report()


if __name__ == "__main__":
    main()
