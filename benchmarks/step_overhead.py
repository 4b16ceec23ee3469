"""How much longer a training step takes under trainperf, and under its neighbours on the same loops."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from benchmarks.harness import Block, Figure, Loop, ratio_figure, sandwiched


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


Sandwiches = list[tuple[Block, Block, Block]]
# At first a watch samples up to four times as often, and meets each function of the loop for the first time: this long,
# which no training of minutes would notice.
SETTLE_MS = 1500.0
WARM_UP_MS = 100.0


def compare(loop: Loop, context: Callable[[], AbstractContextManager[Any]], *, count: int, steps: int) -> Sandwiches:
    """Blocks of about half a second: what else the machine does changes by the second."""
    warm_up = max(2, round((SETTLE_MS if context is watch else WARM_UP_MS) / loop.step_ms))
    return sandwiched(
        lambda: loop.run_within(nullcontext, steps, max(2, round(WARM_UP_MS / loop.step_ms))),
        lambda: loop.run_within(context, steps, warm_up),
        count,
    )


def ratios(blocks: Sandwiches, what: Callable[[Block], float]) -> list[float]:
    return [2 * what(b) / (what(before) + what(after)) for before, b, after in blocks]


def wall(block: Block) -> float:
    return block.mean_ns


def figures(*, quick: bool = False) -> list[Figure]:
    result = []
    for target_ms, target, full, steps in ((1.4, 1.01, 48, 400), (20.0, 1.003, 32, 40)):
        count = full // 4 if quick else full
        loop = Loop(target_ms)
        name = f"{loop.step_ms:.1f} ms steps with / without"
        size = f"{count} x {steps} steps; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"
        watched = compare(loop, watch, count=count, steps=steps)
        same = compare(loop, nullcontext, count=count, steps=steps)
        for label, what, goal, note in (
            ("", wall, target, size),
            (", median step", lambda block: block.middle_ns, target, "of the same blocks"),
            (
                ", CPU time of the training thread",
                lambda block: block.thread_ns,
                target,
                "what others run is not in it",
            ),
            (", CPU time of the process", lambda block: block.cpu_ns, None, "with our own threads: an upper bound"),
        ):
            result.append(ratio_figure(f"{name}: trainperf{label}", ratios(watched, what), target=goal, note=note))
            noise = "the noise of this measurement"
            result.append(ratio_figure(f"{name}: nothing{label}", ratios(same, what), note=noise))
        few = max(3, count // 6)
        for peer, context in (("torch.profiler", torch_profiler), ("gilknocker at 1 ms", gilknocker)):
            if context is gilknocker and not importlib.util.find_spec("gilknocker"):
                result.append(Figure(f"{name}: {peer}", None, note="it is not installed"))
                continue
            blocks = compare(loop, context, count=few, steps=steps)
            result.append(ratio_figure(f"{name}: {peer}", ratios(blocks, wall), note=f"{few} x {steps} steps"))
    return result
