"""What tracing costs on a GPU: microseconds per launch in each tier, and our own thread's share of a core.

    python benchmarks/gpu_overhead.py [--quick]       # `make gpu` runs it after tests/gpu

Blocks of launches without and with a watch alternate in one process; the figure is the median difference of neighbours,
divided by the launches. Skipped, with the reason, where there is no GPU.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.harness import Figure, median_interval, paired  # the line above makes it importable

LAUNCHES = 20_000


def why_not() -> str:
    import torch

    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    return "" if torch.cuda.is_available() else "no GPU, or no driver for it"


def launch_block() -> float:
    """Seconds of wall time for LAUNCHES tiny launches: bound by the host, so that its every microsecond shows."""
    import torch

    x = torch.ones(16, device="cuda")
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(LAUNCHES):
        x.add_(1.0)
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def watched_block(folder: str, shares: list[float], launches: list[int], **options: Any) -> float:
    import trainperf

    path = Path(folder) / "bench.tpr"
    with trainperf.watch(path, overwrite=True, verbose=False, **options) as run:
        run.step()
        wall = launch_block()
        run.step()
    found = trainperf.open(path)
    shares.append(found.overhead_ns.get("collector", 0) / 1e9 / wall)
    launches.append(sum(device.totals.kernels for device in found.devices))
    return wall


def figures(*, quick: bool = False) -> list[Figure]:
    why = why_not()
    if why:
        return [Figure("CUPTI, per kernel launch", None, "us", target=0.3, note=why)]
    pairs = 5 if quick else 15
    launch_block()
    result = []
    with tempfile.TemporaryDirectory() as folder:
        for name, options in (
            ("nothing", None),
            ("a watch, cuda='off'", {"cuda": "off"}),
            ("cupti-full", {"budget": 1.0}),
        ):
            shares: list[float] = []
            launches: list[int] = []

            def other(options: Any = options, shares: list[float] = shares, launches: list[int] = launches) -> float:
                return launch_block() if options is None else watched_block(folder, shares, launches, **options)

            costs = [(b - a) / LAUNCHES * 1e6 for a, b in paired(launch_block, other, pairs)]
            value, low, high = median_interval(costs)
            target = 0.3 if name == "cupti-full" else None
            note = f"{LAUNCHES:,} launches a block"
            if name == "cupti-full" and min(launches) < LAUNCHES:
                note = f"only {min(launches):,} of {LAUNCHES:,} kernels were seen"
            result.append(Figure(f"per launch: {name}", value, "us", low, high, target, note=note))
            if name == "cupti-full":
                share, low, high = median_interval(shares)
                rate = LAUNCHES / launch_block()
                result.append(
                    Figure("our thread, of a core", share * 50_000 / rate * 100, "%", target=2.0,
                           note=f"scaled to 50,000 launches/s from {rate:,.0f}/s; {low:.2%} .. {high:.2%} measured")
                )  # fmt: skip
    return result


if __name__ == "__main__":
    from benchmarks.run import table

    print(table(figures(quick="--quick" in sys.argv)))
