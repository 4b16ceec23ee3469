"""Apart: what is told by itself is no part of what is measured around it."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from trainperf.hooks.apart import Apart
from trainperf.hooks.patch import Switch

MS = 1_000_000


@pytest.fixture
def apart() -> Apart:
    made = Apart()
    made.take()
    return made


class Native:
    """A stand-in for the marks."""

    def __init__(self) -> None:
        self.marks: list[str] = []

    def begin(self, *_: int) -> None:
        self.marks.append("begin")

    def end(self, *_: int) -> None:
        self.marks.append("end")


class Stretches:
    """Makes them, in Python or in C."""

    def __init__(self, kind: str, apart: Apart) -> None:
        self.kind, self.apart, self.switch, self.native = kind, apart, Switch(), Native()

    def __call__(self, body: Any) -> Any:
        if self.kind == "logged":
            return self.apart.logged(body, self.switch, self.native)  # type: ignore[arg-type]
        return self.apart.bracketed(body, self.switch, self.native.begin, self.native.end, 0)

    @property
    def marks(self) -> list[str]:
        return self.native.marks


@pytest.fixture(params=["bracketed", "logged"])
def stretch(apart: Apart, request: pytest.FixtureRequest) -> Stretches:
    return Stretches(request.param, apart)


def test_a_stretch_is_marked_and_of_nested_ones_the_outermost_counts(apart: Apart, stretch: Stretches) -> None:
    inner = stretch(lambda: time.sleep(0.01))
    outer = stretch(lambda: [inner(), inner()])
    start = time.perf_counter_ns()
    outer()
    assert 20 * MS <= apart.ns <= time.perf_counter_ns() - start and apart.depth == 0
    assert stretch.marks == ["begin", "begin", "end", "begin", "end", "end"]


def test_where_the_original_raises_it_ends(apart: Apart, stretch: Stretches) -> None:
    def fails() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stretch(fails)()
    assert apart.depth == 0 and stretch.marks == ["begin", "end"]


def test_a_ctrl_c_before_it_is_marked_leaves_nothing_begun(apart: Apart, stretch: Stretches) -> None:
    def interrupted(*_: int) -> None:
        raise KeyboardInterrupt

    stretch.native.begin = interrupted  # type: ignore[method-assign]
    call = stretch(lambda: None)
    with pytest.raises(KeyboardInterrupt):
        call()
    assert apart.depth == 0


def test_other_threads_are_marked_and_not_apart(apart: Apart, stretch: Stretches) -> None:
    thread = threading.Thread(target=stretch(lambda: time.sleep(0.01)))
    thread.start()
    thread.join()
    assert apart.ns == 0 and stretch.marks == ["begin", "end"]


def test_switched_off_it_only_calls(apart: Apart, stretch: Stretches) -> None:
    call = stretch(lambda: 3)
    stretch.switch.off()
    assert call() == 3 and stretch.marks == [] and apart.ns == 0


def test_switched_off_within_it_ends(apart: Apart, stretch: Stretches) -> None:
    stretch(stretch.switch.off)()
    assert apart.depth == 0 and stretch.marks == ["begin", "end"]


def test_who_measures_within_gives_back(apart: Apart) -> None:
    apart.begin()
    taken = apart.take()
    assert apart.depth == 0
    apart.give_back(taken)
    assert apart.depth == 1 and apart.thread == threading.get_ident()
