"""gc.collect() in the loop, over a large heap. Size: thousands of objects in the heap."""

import gc

from _common import Program, Ready, Trainer
from torch.utils.data import DataLoader


def main() -> None:
    program = Program(cause="gc", finding="gc-pauses", steps=320, size=300, who="MainThread")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    heap = [[i] for i in range(int(program.size * 1000))]
    with program.watch():
        for number, (x, y) in enumerate(DataLoader(Ready(trainer, program.steps), batch_size=None)):
            trainer.step(x, y)
            if heap and number % 8 == 0:
                with program.trouble():
                    gc.collect()  # trouble
    program.report()


if __name__ == "__main__":
    main()
