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


def logging(apart: Apart, body: Any, marks: list[str], switch: Switch | None = None) -> Any:
    def begin(_: int) -> None:
        marks.append("begin")

    def end(_: int) -> None:
        marks.append("end")

    return apart.bracketed(body, switch or Switch(), begin, end, 0)


def test_a_stretch_is_marked_and_of_nested_ones_the_outermost_counts(apart: Apart) -> None:
    marks: list[str] = []
    inner = logging(apart, lambda: time.sleep(0.01), marks)
    outer = logging(apart, lambda: [inner(), inner()], marks)
    start = time.perf_counter_ns()
    outer()
    assert 20 * MS <= apart.ns <= time.perf_counter_ns() - start and apart.depth == 0
    assert marks == ["begin", "begin", "end", "begin", "end", "end"]


def test_where_the_original_raises_it_ends(apart: Apart) -> None:
    def fails() -> None:
        raise ZeroDivisionError

    marks: list[str] = []
    with pytest.raises(ZeroDivisionError):
        logging(apart, fails, marks)()
    assert apart.depth == 0 and marks == ["begin", "end"]


def test_a_ctrl_c_before_it_is_marked_leaves_nothing_begun(apart: Apart) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    call = apart.bracketed(lambda: None, Switch(), interrupted, lambda _: None, 0)
    with pytest.raises(KeyboardInterrupt):
        call()
    assert apart.depth == 0


def test_other_threads_are_marked_and_not_apart(apart: Apart) -> None:
    marks: list[str] = []
    thread = threading.Thread(target=logging(apart, lambda: time.sleep(0.01), marks))
    thread.start()
    thread.join()
    assert apart.ns == 0 and marks == ["begin", "end"]


def test_switched_off_it_only_calls(apart: Apart) -> None:
    switch, marks = Switch(), []  # type: ignore[var-annotated]
    call = logging(apart, lambda: 3, marks, switch)
    switch.off()
    assert call() == 3 and marks == [] and apart.ns == 0


def test_who_measures_within_gives_back(apart: Apart) -> None:
    apart.begin()
    taken = apart.take()
    assert apart.depth == 0
    apart.give_back(taken)
    assert apart.depth == 1 and apart.thread == threading.get_ident()
