"""Automatic garbage collections over a large heap. Size: thousands of objects that a step adds to a replay buffer."""

import gc
import time
from collections import deque

from _common import Program, Ready, Trainer, run_delay_ns
from torch.utils.data import DataLoader


class CollectionClock:
    """Times the collections of the process."""

    def __init__(self) -> None:
        self.total_ns, self.delay_ns, self.start_ns, self.start_delay_ns = 0, 0, 0, 0

    def __call__(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self.start_ns, self.start_delay_ns = time.perf_counter_ns(), run_delay_ns()
        else:
            self.total_ns += time.perf_counter_ns() - self.start_ns
            self.delay_ns += run_delay_ns() - self.start_delay_ns


def main() -> None:
    program = Program(cause="gc", finding="gc-pauses", steps=150, size=10, where="", who="MainThread")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    added = int(program.size * 1000)
    replay: deque[list[list[int]]] = deque(maxlen=60)
    for _ in range(60):
        replay.append([[i] for i in range(added)])
    if added:
        gc.set_threshold(700, 3, 2)
    clock = CollectionClock()
    with program.watch():
        gc.callbacks.append(clock)
        for x, y in DataLoader(Ready(trainer, program.steps), batch_size=None):
            trainer.step(x, y)
            if added:
                replay.append([[i] for i in range(added)])
        gc.callbacks.remove(clock)
    program.truth_ns, program.truth_max_ns = clock.total_ns - clock.delay_ns, clock.total_ns
    program.report()


if __name__ == "__main__":
    main()
