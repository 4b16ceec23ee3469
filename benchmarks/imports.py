"""How long `import trainperf` takes, in processes of its own, and that it does not import torch.

Modules are compiled, as those of an installed package are: the first process does that, and is not counted.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

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
    with tempfile.TemporaryDirectory() as compiled:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = compiled
        for i in range(1 + (5 if quick else 25)):
            done = subprocess.run(
                [sys.executable, "-c", CODE], check=True, capture_output=True, text=True, env=environment
            )
            took, has_torch, _has_numpy = done.stdout.split()
            if i > 0:
                values.append(float(took))
            torch = torch or has_torch == "1"
    value, low, high = median_interval(values)
    note = "IMPORTS TORCH" if torch else "torch not imported"
    return [Figure("import trainperf", value, "ms", low, high, 40.0, note=note)]
