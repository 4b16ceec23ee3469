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


def within(context: Callable[[], AbstractContextManager[Any]], loop: Loop) -> Callable[[turns.StepEnded], None]:
    def train(step_ended: turns.StepEnded) -> None:
        with context():
            loop.train(step_ended)

    return train


def figures(*, quick: bool = False) -> list[Figure]:
    result = []
    for target_ms, target in ((1.4, 1.01), (20.0, 1.003)):
        loop = Loop(target_ms)
        name = f"{loop.step_ms:.1f} ms steps with / without"
        plain = {kind: turns.Training(loop.train) for kind in turns.PLAIN}
        ours = turns.Training(within(watch, loop))
        others: dict[str, list[turns.Rounds]] = {}
        for peer, context in (("torch.profiler", torch_profiler), ("gilknocker at 1 ms", gilknocker)):
            if context is gilknocker and not importlib.util.find_spec("gilknocker"):
                result.append(Figure(f"{name}: {peer}", None, note="it is not installed"))
                continue
            its = {**plain, peer: turns.Training(within(context, loop))}
            others[peer] = turns.in_turns(its, sets=1 if quick else 4, turns=10)
        measured = turns.in_turns({**plain, "trainperf": ours}, sets=2 if quick else 10)
        result += turns.figures(name, measured, target=target, others=others)
    return result
