"""What one mark costs the user's thread."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.harness import Figure, median_interval

CALLS = 1500  # fewer than a ring holds, so that none is dropped between two wake-ups of the collector


def ns_per_call(call: Callable[[], object], empty: Callable[[], object]) -> float:
    def run(function: Callable[[], object]) -> int:
        start = time.perf_counter_ns()
        for _ in range(CALLS):
            function()
        return time.perf_counter_ns() - start

    return (run(call) - run(empty)) / CALLS


def figures(*, quick: bool = False) -> list[Figure]:
    import trainperf
    from trainperf import _native

    repeats = 10 if quick else 40
    result = []
    with trainperf.watch(verbose=False) as run:

        def phase() -> None:
            _native.begin_phase(8)
            _native.end_phase(8)

        def bracket() -> None:
            _native.begin(_native.OPTIMIZER, 1)
            _native.end(_native.OPTIMIZER)

        def nothing() -> None:
            pass

        # Bracketed in C: from the ninth on their time is summed.
        record = _native.logging_function(nothing, _native.ApartState(), _native.begin, _native.end)

        for name, call, marks, target in (
            ("run.step()", run.step, 1, 2.0),
            ("one phase mark (of a pair)", phase, 2, 1.0),
            ("one bracket mark (of a pair)", bracket, 2, 1.0),
            ("one log record of many", record, 1, 0.5),
        ):
            values = []
            for _ in range(repeats):
                values.append(ns_per_call(call, nothing) / marks / 1e3)
                time.sleep(0.11)  # the collector empties the ring
            value, low, high = median_interval(values)
            result.append(Figure(f"cost of {name}", value, "us", low, high, target, note=f"{repeats} x {CALLS}"))
    return result
