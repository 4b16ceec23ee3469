"""How often chores are done on the user's thread."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from trainperf.hooks.context import Ticker


class Loop:
    """Steps of 1 ms, and chores that take what they are told to, on a clock of its own."""

    def __init__(self) -> None:
        self.now, self.change_due = 1000.0, False
        self.failed: list[str] = []
        context: Any = SimpleNamespace(native=SimpleNamespace(change_due=lambda: self.change_due))
        context.fail = lambda hook, error: self.failed.append(hook)
        self.ticker = Ticker(context, lambda: self.now)

    def chore(self, takes_s: float, again_s: float | None = None) -> tuple[list[float], Callable[[], float | None]]:
        """The times at which it is done."""
        times: list[float] = []

        def work() -> float | None:
            times.append(self.now)
            self.now += takes_s
            return again_s

        return times, work

    def train(self, seconds: float) -> None:
        ends = self.now + seconds
        while self.now < ends:
            self.now += 0.001
            assert self.ticker.tick_if_due() > 0


def apart(times: list[float]) -> list[float]:
    return [b - a for a, b in itertools.pairwise(times)]


@pytest.mark.parametrize(("takes_s", "apart_s"), [(1e-6, 0.2), (30e-6, 0.3), (1e-3, 5.0)])
def test_a_chore_has_a_ten_thousandth_of_the_time_and_five_times_a_second(takes_s: float, apart_s: float) -> None:
    loop = Loop()
    times, work = loop.chore(takes_s)
    loop.ticker.add("a", work)
    loop.train(50)
    assert apart(times) == pytest.approx([0.2] + [apart_s] * (len(times) - 2), abs=0.003)
    assert len(times) == pytest.approx(50 / apart_s, abs=3)


def test_a_dear_chore_leaves_the_others_their_pace_and_one_preemption_is_no_cost() -> None:
    loop = Loop()
    dear, cheap = loop.chore(0.02), loop.chore(1e-6)
    preempted = iter([False, True])
    loop.ticker.add("dear", dear[1])
    loop.ticker.add("cheap", cheap[1])
    preemptions: list[float] = []

    def now_and_then() -> None:
        preemptions.append(loop.now)
        loop.now += 0.03 * next(preempted, False)

    loop.ticker.add("preempted", now_and_then)
    loop.train(10)
    assert len(dear[0]) == 3 and len(cheap[0]) > 45 and len(preemptions) > 45


def test_a_chore_that_says_when_it_is_due_comes_then_and_others_come_along() -> None:
    loop = Loop()
    (often, at_once), (seldom, late), (paced, other) = loop.chore(0, 0.15), loop.chore(0, 2.0), loop.chore(0)
    loop.ticker.add("often", at_once)
    loop.ticker.add("seldom", late, after_s=0.7)
    loop.ticker.add("paced", other)
    loop.train(3.5)
    assert apart(often) == pytest.approx([0.15] * (len(often) - 1), abs=0.002)
    assert seldom == pytest.approx([1000.7, 1002.7], abs=0.002)
    assert set(paced) < set(often + seldom)


def test_what_is_traced_is_changed_at_once() -> None:
    loop = Loop()
    (changes, change), (others, other) = loop.chore(0), loop.chore(0)
    loop.ticker.add("cuda", change, at_changes=True)
    loop.ticker.add("other", other)
    loop.train(0.02)
    loop.change_due = True
    loop.train(0.02)
    assert len(changes) > 15 and len(others) == 1


def test_one_that_fails_takes_itself_away_alone_and_one_that_is_added_late_is_done() -> None:
    loop = Loop()
    times, work = loop.chore(0)

    def fails() -> None:
        raise ValueError

    loop.ticker.add("fails", fails)
    loop.ticker.add("works", work)
    loop.train(1)
    late, comes = loop.chore(0)
    loop.ticker.add("late", comes)
    loop.train(0.3)
    assert loop.failed == ["fails"] and len(times) >= 6 and len(late) >= 2
    loop.ticker.discard("works")
    loop.ticker.discard("late", work)
    before = len(times), len(late)
    loop.train(0.5)
    assert len(times) == before[0] and len(late) > before[1]
