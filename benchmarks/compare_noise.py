"""How often `trainperf compare` is wrong: runs of one program against each other, and against runs of a slower one.

    python benchmarks/compare_noise.py [--runs 12] [--slower 10] [--steps 1200]

Each run is a process of its own. Every pair of equal runs should be "no difference", or not be told at all; every pair
of a run and a slower one should be found. The slower loop does the same work again in some of its steps, so that what
slows the machine slows both. Pairs share runs, so the rates are of less than so many independent pairs.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

LOOP = """
import sys, torch, trainperf
from torch import nn
path, slower, steps = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss = nn.CrossEntropyLoss()
x, y = torch.randn(256, 64), torch.randint(0, 10, (256,))
batches = torch.utils.data.DataLoader([(x, y)] * steps, batch_size=None)
owed = 0.0
with trainperf.watch(path, verbose=False):
    for x, y in batches:
        owed += slower
        optimizer.zero_grad()
        loss(model(x), y).backward()
        if owed >= 1:
            owed -= 1
            loss(model(x), y).backward()  # as much again, in this step
        optimizer.step()
"""


def run(path: Path, slower: float, steps: int) -> Path:
    subprocess.run([sys.executable, "-c", LOOP, str(path), str(slower), str(steps)], check=True)
    return path


def main() -> None:
    from trainperf.comparison import compare
    from trainperf.run import Run

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=12, help="of each program")
    parser.add_argument("--slower", type=float, default=12.0, help="percent of the second program's work")
    parser.add_argument("--steps", type=int, default=1200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        same, slow = [], []
        for i in range(arguments.runs):  # in turns, so that what changes on the machine changes for both
            same.append(run(Path(folder, f"same{i}.tpr"), 0.0, arguments.steps))
            slow.append(run(Path(folder, f"slow{i}.tpr"), arguments.slower / 100, arguments.steps))
        runs = {path: Run(path) for path in (*same, *slow)}
        equal = Counter(compare(runs[a], runs[b]).kind for a, b in itertools.combinations(same, 2))
        unequal = Counter(compare(runs[a], runs[b]).kind for a, b in itertools.product(same, slow))
        means = [runs[path].wall_ns / runs[path].step_count / 1e6 for path in same]
        slower = [runs[path].wall_ns / runs[path].step_count / 1e6 for path in slow]
    ranges = f"{min(means):.2f} to {max(means):.2f} ms; of the slower: {min(slower):.2f} to {max(slower):.2f}"
    print(f"mean step of the same program: {ranges}")
    wrong = equal["faster"] + equal["slower"]
    print(f"same program:   {equal.total()} pairs: {wrong / equal.total():.1%} false alarms; {dict(equal)}")
    print(f"slower program: {unequal.total()} pairs: {unequal['slower'] / unequal.total():.1%} found; {dict(unequal)}")


if __name__ == "__main__":
    main()
