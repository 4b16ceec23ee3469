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
    loops = ((1.4, 1.01, 2), (20.0, 1.003, 4))
    for target_ms, target, rounds in loops[:1] if quick else loops:
        loop = Loop(target_ms)
        name = f"{loop.step_ms:.1f} ms steps with / without"
        plain = turns.Training(loop.train)
        ours = turns.Training(within(watch, loop))
        others = {turns.OURS: ours, turns.NOTHING: plain}
        pairs = 2 if quick else 10
        measured = turns.in_turns(plain, others, step_ms=loop.step_ms, pairs=pairs, rounds=rounds)
        result += turns.figures(name, measured, target=target)
        for peer, context in () if quick else PEERS.items():
            result += _peer(f"{name}: {peer}", peer, context, loop, pairs=6)
    return result


def _peer(
    name: str, peer: str, context: Callable[[], AbstractContextManager[Any]], loop: Loop, *, pairs: int
) -> list[Figure]:
    if context is gilknocker and not importlib.util.find_spec("gilknocker"):
        return [Figure(name, None, note="it is not installed")]
    others = {peer: turns.Training(within(context, loop))}
    try:
        measured = turns.in_turns(turns.Training(loop.train), others, step_ms=loop.step_ms, pairs=pairs, rounds=1)
    except RuntimeError as error:
        return [Figure(name, None, note=str(error))]
    return turns.figures(name.removesuffix(f": {peer}"), measured)
