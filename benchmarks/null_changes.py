"""How often `trainperf try` proves a change that does nothing, and how often it finds one that helps.

    python benchmarks/null_changes.py [--trials 2000]     simulated: seven kinds of noise, pairs as the test sees them
    python benchmarks/null_changes.py --live 20           real trials: a source of samples with a fixed rate

Simulated, a row is a kind of noise; the columns are false wins, and wins and median pairs for gains of 5 and 30 %.
Live, samples come at a rate that differs by a tenth from run to run and from half second to half second, however many
workers ask for them, and the change is two workers. "turns": its pairs were taken in one process.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from trainperf.prove.sequential import MAX_PAIRS, MAX_TURNS, Evidence, judge

Noise = Callable[[random.Random], float]

# Of a pair's logarithm.
NOISES: dict[str, Noise] = {
    "quiet, 1 %": lambda r: r.gauss(0, 0.014),
    "noisy, 5 %": lambda r: r.gauss(0, 0.07),
    "wild, 15 %": lambda r: r.gauss(0, 0.21),
    "heavy tails": lambda r: 0.03 * r.gauss(0, 1) / math.sqrt(r.gammavariate(1.0, 1.0)),
    "stalls": lambda r: r.gauss(0, 0.02) + r.choice((-1, 1)) * (r.random() < 0.1) * r.uniform(0.2, 0.6),
    "two speeds": lambda r: r.choice((-0.1, 0.0, 0.0, 0.1)) + r.gauss(0, 0.01),
    "skewed": lambda r: r.expovariate(20) - r.expovariate(20),
}

SOURCE = """
import fcntl, math, mmap, os, random, struct, tempfile, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(0)
PER = 0.0005 * math.exp(random.SystemRandom().gauss(0, 0.10))
FASTER = [math.exp(random.SystemRandom().gauss(0, 0.10)) for _ in range(1000)]  # in each half second
DUE = mmap.mmap(-1, 8)  # shared with workers: when the next sample is there
LOCK = tempfile.NamedTemporaryFile()

class Source(Dataset):
    def __init__(self):
        self.x, self.pid = torch.randn(256, 64), None
    def __len__(self):
        return 100_000
    def __getitem__(self, i):
        if self.pid != os.getpid():
            self.file, self.pid = open(LOCK.name), os.getpid()
        fcntl.flock(self.file, fcntl.LOCK_EX)
        now = time.monotonic()
        due = max(struct.unpack("d", DUE[:8])[0], now - 0.05) + PER * FASTER[int(2 * now) % 1000]
        DUE[:8] = struct.pack("d", due)
        fcntl.flock(self.file, fcntl.LOCK_UN)
        if due > now + 0.0005:
            time.sleep(due - now)
        return self.x[i % 256], i % 10

model = nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x, y in DataLoader(Source(), batch_size=16, shuffle=True):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


def decided(noise: Noise, effect: float, r: random.Random, most: int) -> Evidence:
    logs: list[float] = []
    while True:
        logs.append(effect + noise(r))
        evidence = judge(logs)
        if evidence.decision != "open" or len(logs) == most:
            return evidence


def simulate(trials: int, most: int) -> None:
    print(f"At most {most} pairs:\n")
    print(f"{'noise':<12}  false wins   +5 % found, pairs   +30 % found, pairs   interval holds +30 %")
    for name, noise in NOISES.items():
        r = random.Random(name)
        false = sum(decided(noise, 0.0, r, most).decision == "won" for _ in range(trials))
        row = f"{name:<12}  {false / trials:>9.2%}"
        for gain in (1.05, 1.30):
            found = [decided(noise, math.log(gain), r, most) for _ in range(trials // 4)]
            won = [e.pairs for e in found if e.decision == "won"]
            row += f"   {len(won) / len(found):>10.1%}, {statistics.median(won) if won else 0:>5g}"
        held = sum(e.interval[0] <= 1.30 <= e.interval[1] for e in found) / len(found)
        print(f"{row}   {held:>17.1%}", flush=True)


def live(count: int) -> int:
    verdicts: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "source.py")
        script.write_text(SOURCE)
        words = [sys.executable, "-m", "trainperf", "try", "--json", "--budget", "2m", "--change", "num_workers=2"]
        for number in range(count):
            patch = ["-o", str(Path(folder, f"{number}.patch"))]
            done = subprocess.run(
                [*words, *patch, "--", str(script)], cwd=folder, capture_output=True, text=True, check=False
            )
            if not done.stdout:
                print(done.stderr, file=sys.stderr)
                return 1
            (change,) = json.loads(done.stdout)["changes"]
            verdicts[change["verdict"]] += 1
            how = "turns" if "pairs in one process" in done.stderr else "runs"
            found = f"{change['verdict']} {change['gain']} {change['interval']}"
            print(f"{number + 1}: {found}, {change['pairs']} pairs of {how}", flush=True)
    print(f"{count} changes that do nothing: {verdicts['proven']} proven; {dict(verdicts)}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000, help="simulated, of each noise")
    parser.add_argument("--live", type=int, metavar="N", help="so many real ones")
    arguments = parser.parse_args()
    if arguments.live:
        return live(arguments.live)
    for most in (MAX_PAIRS, MAX_TURNS):  # of trials, and of turns in one process
        simulate(arguments.trials, most)
    return 0


if __name__ == "__main__":
    sys.exit(main())
