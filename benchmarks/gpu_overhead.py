"""What tracing costs on a GPU: per launch, per step of a training, and on threads beside it.

    python benchmarks/gpu_overhead.py [--quick]       # `make gpu` runs it after tests/gpu

Per launch: within one watch, blocks of launches, some 20 ms each, of which each middle one of three is traced; the
figure is what lies between it and the mean of its neighbours, divided by the launches. Per step: stretches of a
training, of which each middle one of three is watched. Skipped, with the reason, where there is no GPU.
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

LAUNCHES, WARM_UP = 2_000, 200  # of a block
STEPS_S = 0.4  # of a stretch
WINDOWS_S = 4.0  # where kernels are traced in windows: long enough for some
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
    """Of each three blocks the middle one less the mean of its neighbours: what drifts is in them alike."""
    return [b - (a + c) / 2 for a, b, c in zip(blocks[::3], blocks[1::3], blocks[2::3], strict=True)]


def per_launch(folder: str, threes: int) -> list[Figure]:
    import trainperf

    launch = launcher()
    path = Path(folder) / "launches.tpr"
    costs: dict[str, list[float]] = {}
    with trainperf.watch(path, overwrite=True, verbose=False, budget=1.0, cuda="full") as run:
        run.step()
        session: Any = run._session
        session.pause_cuda()
        for name in ("untraced", "traced by CUPTI"):
            blocks = []
            for _ in range(threes):
                blocks.append(launch(LAUNCHES))
                session.resume_cuda()
                launch(WARM_UP)
                if name == "untraced":  # what attaching leaves behind is in both
                    session.pause_cuda()
                blocks.append(launch(LAUNCHES))
                if name != "untraced":
                    session.pause_cuda()
                blocks.append(launch(LAUNCHES))
                run.step()
            costs[name] = middle_of_three(blocks)
            plain_us = statistics.median(blocks[::3])
        session.resume_cuda()
    seen = sum(device.totals.kernels for device in trainperf.open(path).devices)
    launched = threes * (LAUNCHES + 2 * WARM_UP)
    if seen < launched:
        raise RuntimeError(f"{seen:,} kernels were seen of {launched:,} that were launched while CUPTI was attached")
    return [
        Figure(f"per launch: {name}", *_estimate(values, "us"), target=0.3 if "CUPTI" in name else None,
               note=f"a launch takes {plain_us:.1f} us; {threes} times {LAUNCHES:,} of them")
        for name, values in costs.items()
    ]  # fmt: skip


def _estimate(values: list[float], unit: str) -> tuple[float, str, float | None, float | None]:
    value, low, high = paired_interval(values)
    return value, unit, low, high


def our_threads_s() -> dict[str, float]:
    """CPU seconds of the collector and of the sampler: of each name the first thread, as CUPTI's own bears the name of
    the one that it was started from."""
    found: dict[str, float] = {}
    for task in sorted(Path("/proc/self/task").iterdir(), key=lambda path: int(path.name)):
        name = (task / "comm").read_text().strip()
        if name in ("trainperf", "tp-sampler"):
            found.setdefault(name, int((task / "schedstat").read_text().split()[0]) / 1e9)
    return found


def beside(folder: str, seconds: float) -> list[Figure]:
    """CPU time on the collector, and on what is left: CUPTI has a thread of its own."""
    import trainperf

    launch = launcher()
    found = {}
    for cuda in ("off", "full"):
        path = Path(folder) / f"beside-{cuda}.tpr"
        count = 0
        with trainperf.watch(path, overwrite=True, verbose=False, cuda=cuda, budget=1.0) as run:
            launch(LAUNCHES)
            run.step()
            ours, begin = our_threads_s(), time.perf_counter()
            cpu, own = time.process_time(), time.thread_time()
            while time.perf_counter() - begin < seconds:
                launch(LAUNCHES)
                count += LAUNCHES
                run.step()
            cpu, own = time.process_time() - cpu, time.thread_time() - own
            ours = {name: now - ours[name] for name, now in our_threads_s().items()}
        found[cuda] = (ours["trainperf"] / count, (cpu - own - sum(ours.values())) / count, count / seconds)
    collector, others, rate = (
        found["full"][0] - found["off"][0], found["full"][1] - found["off"][1], found["full"][2]
    )  # fmt: skip
    note = f"for {RATE:,} launches/s, from {rate:,.0f}/s for {seconds:.0f} s"
    return [
        Figure("our thread, of a core", collector * RATE * 100, "%", target=2.0, note=note),
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


def per_step(folder: str, threes: int) -> list[Figure]:
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
        step_ms = stretch(50)
        for cuda, seconds, times in (("full", STEPS_S, threes), ("auto", WINDOWS_S, max(3, threes // 4))):
            steps = max(20, round(seconds * 1e3 / step_ms))
            blocks = []
            for _ in range(times):
                blocks.append(stretch(steps))
                with trainperf.watch(Path(folder) / "steps.tpr", overwrite=True, verbose=False, cuda=cuda):
                    stretch(10)  # at first the loop's functions are met
                    blocks.append(stretch(steps))
                blocks.append(stretch(steps))
            plain_ms = statistics.median(blocks[::3])
            value, low, high = paired_interval([1 + cost / plain_ms for cost in middle_of_three(blocks)])
            run = trainperf.open(Path(folder) / "steps.tpr")
            (device,) = run.devices
            traced = device.steps.untraced == 0
            kernels = statistics.median(device.steps.kernels[traced])
            note = f"steps of {plain_ms:.2f} ms, {kernels:.0f} kernels, {traced.mean():.0%} traced"
            target = 1.01 if cuda == "auto" else None
            result.append(Figure(f"watched, cuda={cuda}: {name}", value, "x", low, high, target, note=note))
    return result


def figures(*, quick: bool = False) -> list[Figure]:
    why = why_not()
    if why:
        return [Figure("CUPTI, per kernel launch", None, "us", target=0.3, note=why)]
    with tempfile.TemporaryDirectory() as folder:
        return [
            *per_launch(folder, 50 if quick else 150),
            *beside(folder, 3 if quick else 8),
            *per_step(folder, 8 if quick else 16),
        ]


if __name__ == "__main__":
    from benchmarks.run import table

    print(table(figures(quick="--quick" in sys.argv)))
