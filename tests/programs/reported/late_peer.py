"""Two ranks average their gradients by hand at each step; the other one comes 8 ms late."""

import multiprocessing
import os
import tempfile
import time

import torch.distributed as dist
from _common import Classifier, Clock, tell

STEPS = 300


def train(rank, path, late_s):
    """Time asleep in all-reduce, and in all."""
    training, exchanging = Classifier(), Clock()
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    started = time.perf_counter_ns()
    for _ in range(STEPS):
        training.backward(*training.batch(384))
        time.sleep(late_s)
        with exchanging:
            for weight in training.model.parameters():
                dist.all_reduce(weight.grad)  # trouble
                weight.grad /= 2
        training.optimizer.step()
    wall = time.perf_counter_ns() - started
    dist.destroy_process_group()
    return exchanging.off_cpu_ns, wall


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ranks")
        peer = multiprocessing.get_context("fork").Process(target=train, args=(1, path, 0.008), daemon=True)
        peer.start()
        spent, wall = train(0, path, 0)
        peer.join()
    tell("blocked", spent, wall)


if __name__ == "__main__":
    main()
