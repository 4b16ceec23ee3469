"""How long `import trainperf` takes, in processes of its own, and that it does not import torch."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.harness import Figure, median_interval

CODE = """
import sys, time
start = time.perf_counter_ns()
import trainperf
took = time.perf_counter_ns() - start
print(took / 1e6, int("torch" in sys.modules), int("numpy" in sys.modules))
"""


def figures(*, quick: bool = False) -> list[Figure]:
    values, torch = [], False
    for _ in range(5 if quick else 25):
        done = subprocess.run([sys.executable, "-c", CODE], check=True, capture_output=True, text=True)
        took, has_torch, _has_numpy = done.stdout.split()
        values.append(float(took))
        torch = torch or has_torch == "1"
    value, low, high = median_interval(values)
    note = "IMPORTS TORCH" if torch else "torch not imported"
    return [Figure("import trainperf", value, "ms", low, high, 40.0, note=note)]
