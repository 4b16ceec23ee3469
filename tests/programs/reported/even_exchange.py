"""Two even ranks exchange 37 MB of gradients at each small step. FIXED=1: they accumulate 16 steps' first."""

import multiprocessing
import os
import tempfile
import time

import torch.distributed as dist
from _common import FIXED, Classifier, Clock, tell

STEPS, EACH = 80, 16 if FIXED else 1


def train(rank, path):
    """Time in all-reduce, and in all."""
    training, exchanging = Classifier(width=3000), Clock()
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    started = time.perf_counter_ns()
    for step in range(STEPS):
        training.backward(*training.batch(8))
        if step % EACH == EACH - 1:
            with exchanging:
                for weight in training.model.parameters():
                    dist.all_reduce(weight.grad)  # trouble
            training.optimizer.step()
    wall = time.perf_counter_ns() - started
    dist.destroy_process_group()
    return exchanging.ns, wall


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ranks")
        peer = multiprocessing.get_context("fork").Process(target=train, args=(1, path), daemon=True)
        peer.start()
        spent, wall = train(0, path)
        peer.join()
    tell("blocked", spent, wall)


if __name__ == "__main__":
    main()
