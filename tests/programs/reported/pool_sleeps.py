"""Each batch is fetched by a Pool whose tasks wait for a server, and the loop waits for them."""

import json
import multiprocessing
import time

import torch
from _common import FIXED, Classifier, for_seconds


def fetch(seed: int) -> float:
    time.sleep(0.02)
    return float(seed % 2)


def main() -> None:
    trainer = Classifier()
    made = [fetch(0)]
    waited, started = 0, 0
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for step in for_seconds(6):
            started = started or time.perf_counter_ns()
            inputs, labels = trainer.batch()
            if not FIXED:
                before = time.perf_counter_ns()
                made = pool.map(fetch, range(step, step + 4), chunksize=1)  # trouble
                waited += time.perf_counter_ns() - before
            trainer.step(inputs + torch.tensor(made[0]), labels)
        wall = time.perf_counter_ns() - started
    told = (
        {"finding": None}
        if FIXED
        else {"finding": "blocked", "share": round(waited / wall, 3), "fix": "give the pool more workers"}
    )
    print("TRUTH " + json.dumps(told))


if __name__ == "__main__":
    main()
