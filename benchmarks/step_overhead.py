"""How much longer a training step takes under trainperf, and under its neighbours on the same loops."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from benchmarks import turns
from benchmarks.harness import Figure, Loop


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


def within(context: Callable[[], AbstractContextManager[Any]], loop: Loop) -> Callable[[turns.StepEnded, int], None]:
    def train(step_ended: turns.StepEnded, steps: int) -> None:
        with context():
            loop.train(step_ended, steps)

    return train


PEERS = {"torch.profiler": torch_profiler, "gilknocker at 1 ms": gilknocker}


def figures(*, quick: bool = False) -> list[Figure]:
    result = []
    for target_ms, target, rounds in ((1.4, 1.01, 6), (20.0, 1.003, 16)):
        loop = Loop(target_ms)
        name = f"{loop.step_ms:.1f} ms steps with / without"
        plain = turns.Training(loop.train)
        ours = {"trainperf": turns.Training(within(watch, loop)), turns.NOTHING: plain}
        measured = turns.in_turns(plain, ours, step_ms=loop.step_ms, sets=2 if quick else 8, rounds=rounds)
        result += turns.figures(name, measured, target=target)
        for peer, context in PEERS.items():
            if context is gilknocker and not importlib.util.find_spec("gilknocker"):
                result.append(Figure(f"{name}: {peer}", None, note="it is not installed"))
                continue
            its = {peer: turns.Training(within(context, loop))}
            measured = turns.in_turns(plain, its, step_ms=loop.step_ms, sets=1 if quick else 6, rounds=2)
            result += turns.figures(name, measured, target=target)
    return result
