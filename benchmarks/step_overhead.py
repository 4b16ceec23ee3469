"""How much longer a training step takes under trainperf, and under its neighbours on the same loops."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from benchmarks.harness import Figure, Loop, paired_ratios, ratio_figure


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


def compare(loop: Loop, context: Callable[[], AbstractContextManager[Any]], *, pairs: int, steps: int) -> list[float]:
    return paired_ratios(
        lambda: loop.run_within(nullcontext, steps),
        lambda: loop.run_within(context, steps),
        pairs,
    )


def figures(*, quick: bool = False) -> list[Figure]:
    result = []
    for target_ms, target, full, steps in ((1.4, 1.01, 60, 150), (20.0, 1.003, 40, 15)):
        pairs = full // 6 if quick else full
        loop = Loop(target_ms)
        name = f"step time with / without, {loop.step_ms:.1f} ms steps"
        ratios = compare(loop, watch, pairs=pairs, steps=steps)
        result.append(ratio_figure(f"{name}: trainperf", ratios, target=target, note=f"{pairs} pairs of {steps} steps"))
        same = compare(loop, nullcontext, pairs=pairs, steps=steps)
        result.append(ratio_figure(f"{name}: nothing against nothing", same, note="the noise of this very measurement"))
        few = max(3, pairs // 4)
        ratios = compare(loop, torch_profiler, pairs=few, steps=steps)
        result.append(ratio_figure(f"{name}: torch.profiler", ratios, note=f"{few} pairs"))
        if importlib.util.find_spec("gilknocker"):
            ratios = compare(loop, gilknocker, pairs=few, steps=steps)
            result.append(ratio_figure(f"{name}: gilknocker at 1 ms", ratios, note=f"{few} pairs"))
        else:
            result.append(Figure(f"{name}: gilknocker at 1 ms", None, note="gilknocker is not installed"))
    return result
