"""How much longer a training step takes under trainperf, and under its neighbours on the same loops."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from benchmarks.harness import Block, Figure, Loop, paired, ratio_figure


def watch() -> AbstractContextManager[Any]:
    import trainperf

    return trainperf.watch(verbose=False)


def torch_profiler() -> AbstractContextManager[Any]:
    from torch.profiler import ProfilerActivity, profile

    return profile(activities=[ProfilerActivity.CPU])


@contextmanager
def gilknocker() -> Any:
    from gilknocker import KnockKnock

    knocker = KnockKnock(1_000)
    knocker.start()
    try:
        yield
    finally:
        knocker.stop()


Pairs = list[tuple[Block, Block]]


def compare(loop: Loop, context: Callable[[], AbstractContextManager[Any]], *, pairs: int, steps: int) -> Pairs:
    return paired(
        lambda: loop.run_within(nullcontext, steps),
        lambda: loop.run_within(context, steps),
        pairs,
    )


def mean_ratios(blocks: Pairs) -> list[float]:
    return [b.mean_ns / a.mean_ns for a, b in blocks]


def figures(*, quick: bool = False) -> list[Figure]:
    result = []
    # Blocks of over a second: the first steps of a watch pay for its start (the first samples come four times as
    # often), which no training of minutes would notice.
    for target_ms, target, full, steps in ((1.4, 1.01, 32, 1000), (20.0, 1.003, 32, 60)):
        pairs = full // 4 if quick else full
        loop = Loop(target_ms)
        name = f"{loop.step_ms:.1f} ms steps with / without"
        watched = compare(loop, watch, pairs=pairs, steps=steps)
        size = f"{pairs} pairs of {steps} steps"
        result.append(ratio_figure(f"{name}: trainperf", mean_ratios(watched), target=target, note=size))
        middle = [b.middle_ns / a.middle_ns for a, b in watched]
        result.append(ratio_figure(f"{name}: trainperf, median step", middle, target=target, note="of the same blocks"))
        cpu = [b.cpu_ns / a.cpu_ns for a, b in watched]
        result.append(ratio_figure(f"{name}: trainperf, CPU time of the process", cpu, note="with our own threads"))
        same = compare(loop, nullcontext, pairs=pairs, steps=steps)
        result.append(ratio_figure(f"{name}: nothing", mean_ratios(same), note="the noise of this measurement"))
        few = max(3, pairs // 4)
        for peer, context in (("torch.profiler", torch_profiler), ("gilknocker at 1 ms", gilknocker)):
            if context is gilknocker and not importlib.util.find_spec("gilknocker"):
                result.append(Figure(f"{name}: {peer}", None, note="it is not installed"))
                continue
            ratios = mean_ratios(compare(loop, context, pairs=few, steps=steps))
            result.append(ratio_figure(f"{name}: {peer}", ratios, note=f"{few} pairs of {steps} steps"))
    return result
