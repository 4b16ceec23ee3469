"""What tracing costs on a GPU: per launch, per step of a training, and on threads beside it.

    python benchmarks/gpu_overhead.py [--quick]       # `make gpu` runs it after tests/gpu

Per launch: within one watch, blocks of launches with CUPTI let go and with CUPTI attached alternate, some 20 ms each;
the figure is what lies between a block and the mean of its two neighbours, divided by the launches. Per step: stretches
of a training without and with a watch. Skipped, with the reason, where there is no GPU.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.harness import Figure, paired_interval  # the line above makes it importable

LAUNCHES = 2_000  # of a block
STEPS_S = 0.4  # of a stretch
RATE = 50_000  # launches a second that the share of a core is told for


def why_not() -> str:
    import torch

    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    return "" if torch.cuda.is_available() else "no GPU, or no driver for it"


def launcher() -> Callable[[int], float]:
    """launch(count): tiny kernels, bound by the host; the microseconds of wall time for each."""
    import torch

    x = torch.ones(16, device="cuda")

    def launch(count: int) -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            x.add_(1.0)
        took = time.perf_counter() - begin
        torch.cuda.synchronize()
        return took / count * 1e6

    launch(LAUNCHES)
    return launch


def middle_of_three(blocks: list[float]) -> list[float]:
    """Each second block less the mean of its neighbours: what drifts is in them alike."""
    return [b - (a + c) / 2 for a, b, c in zip(blocks[::2], blocks[1::2], blocks[2::2], strict=False)]


def per_launch(folder: str, pairs: int) -> list[Figure]:
    import trainperf

    launch = launcher()
    path = Path(folder) / "launches.tpr"
    costs: dict[str, list[float]] = {}
    with trainperf.watch(path, overwrite=True, verbose=False, budget=1.0) as run:
        run.step()
        session: Any = run._session
        for name, traced in (("nothing", False), ("traced by CUPTI", True)):
            session.pause_cuda()
            blocks = []
            for n in range(2 * pairs + 1):
                if traced and n % 2:
                    session.resume_cuda()
                    launch(LAUNCHES // 10)
                blocks.append(launch(LAUNCHES))
                if traced and n % 2:
                    session.pause_cuda()
                run.step()
            session.resume_cuda()
            costs[name] = middle_of_three(blocks)
            plain_us = statistics.median(blocks[::2])
    seen = sum(device.totals.kernels for device in trainperf.open(path).devices)
    if seen < pairs * LAUNCHES:
        raise RuntimeError(f"{seen:,} kernels were seen of {pairs * LAUNCHES:,} that were launched")
    return [
        Figure(f"per launch: {name}", *_estimate(values, "us"), target=0.3 if "CUPTI" in name else None,
               note=f"a launch takes {plain_us:.1f} us; {pairs} times {LAUNCHES:,} of them")
        for name, values in costs.items()
    ]  # fmt: skip


def _estimate(values: list[float], unit: str) -> tuple[float, str, float | None, float | None]:
    value, low, high = paired_interval(values)
    return value, unit, low, high


def beside(folder: str, seconds: float) -> list[Figure]:
    """CPU time on threads of ours, and on what is left: CUPTI has one of its own."""
    import trainperf

    launch = launcher()
    found = {}
    for cuda in ("off", "auto"):
        path = Path(folder) / f"beside-{cuda}.tpr"
        count = 0
        with trainperf.watch(path, overwrite=True, verbose=False, cuda=cuda, budget=1.0) as run:
            begin, cpu, own = time.perf_counter(), time.process_time(), time.thread_time()
            while time.perf_counter() - begin < seconds:
                launch(LAUNCHES)
                count += LAUNCHES
                run.step()
            others = time.process_time() - cpu - (time.thread_time() - own)
        overhead = trainperf.open(path).overhead_ns
        ours = overhead["collector"] / 1e9
        found[cuda] = (ours / count, (others - ours - overhead["sampler"] / 1e9) / count, count / seconds)
    ours, others, rate = (found["auto"][0] - found["off"][0], found["auto"][1] - found["off"][1], found["auto"][2])
    note = f"for {RATE:,} launches/s, from {rate:,.0f}/s for {seconds:.0f} s"
    return [
        Figure("our thread, of a core", ours * RATE * 100, "%", target=2.0, note=note),
        Figure("CUPTI's thread, of a core", others * RATE * 100, "%", note=note),
    ]


def trainings() -> dict[str, Callable[[], None]]:
    import torch

    def training(width: int, layers: int, batch: int) -> Callable[[], None]:
        blocks = [torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU()) for _ in range(layers)]
        model = torch.nn.Sequential(*blocks).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        inputs = torch.randn(batch, width).pin_memory()

        def step() -> None:
            optimizer.zero_grad()
            model(inputs.cuda(non_blocking=True)).square().mean().backward()
            optimizer.step()

        return step

    return {"the GPU is busy": training(2048, 8, 4096), "the host is slower": training(256, 16, 32)}


def per_step(folder: str, pairs: int) -> list[Figure]:
    import torch
    import trainperf

    result = []
    for name, step in trainings().items():

        def stretch(steps: int, step: Callable[[], None] = step) -> float:
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(steps):
                step()
            torch.cuda.synchronize()
            return (time.perf_counter() - begin) / steps * 1e3

        stretch(50)
        steps = max(20, round(STEPS_S * 1e3 / stretch(50)))
        blocks = []
        for n in range(2 * pairs + 1):
            if n % 2 == 0:
                blocks.append(stretch(steps))
                continue
            with trainperf.watch(Path(folder) / "steps.tpr", overwrite=True, verbose=False):
                stretch(10)  # at first the loop's functions are met
                blocks.append(stretch(steps))
        plain_ms = statistics.median(blocks[::2])
        value, low, high = paired_interval([1 + cost / plain_ms for cost in middle_of_three(blocks)])
        run = trainperf.open(Path(folder) / "steps.tpr")
        kernels = statistics.median(run.devices[0].steps.kernels)
        note = f"steps of {plain_ms:.2f} ms, {kernels:.0f} kernels; {run.tiers['cuda'].tier}"
        result.append(Figure(f"watched: {name}", value, "x", low, high, 1.01, note=note))
    return result


def figures(*, quick: bool = False) -> list[Figure]:
    why = why_not()
    if why:
        return [Figure("CUPTI, per kernel launch", None, "us", target=0.3, note=why)]
    with tempfile.TemporaryDirectory() as folder:
        return [
            *per_launch(folder, 50 if quick else 200),
            *beside(folder, 3 if quick else 8),
            *per_step(folder, 8 if quick else 20),
        ]


if __name__ == "__main__":
    from benchmarks.run import table

    print(table(figures(quick="--quick" in sys.argv)))
