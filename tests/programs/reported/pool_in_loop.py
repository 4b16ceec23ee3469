"""Each batch is augmented by a Pool, and the loop waits for it."""

import json
import multiprocessing
import time

import torch
from _common import FIXED, Classifier, for_seconds


def sharpen(seed: int) -> float:
    total, begin = 0.0, time.thread_time()
    while time.thread_time() - begin < 0.012:
        total += seed % 7
    return total


def flip(seed: int) -> float:
    begin = time.thread_time()
    while time.thread_time() - begin < 0.002:
        seed += 1
    return float(seed)


def augment(seed: int) -> float:
    return sharpen(seed) + flip(seed)


def main() -> None:
    trainer = Classifier()
    made = [augment(0)]
    waited, started = 0, 0
    with multiprocessing.get_context("fork").Pool(1) as pool:
        for step in for_seconds(6):
            started = started or time.perf_counter_ns()
            inputs, labels = trainer.batch()
            if not FIXED:
                before = time.perf_counter_ns()
                made = pool.map(augment, range(step, step + 2))  # trouble
                waited += time.perf_counter_ns() - before
            trainer.step(inputs + torch.tensor(made[0] % 2), labels)
        wall = time.perf_counter_ns() - started
    told = (
        {"finding": None}
        if FIXED
        else {"finding": "blocked", "share": round(waited / wall, 3), "fix": "make sharpen cheaper"}
    )
    print("TRUTH " + json.dumps(told))


if __name__ == "__main__":
    main()
