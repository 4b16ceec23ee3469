"""Brackets around functions, in C, as CPython's versions call them. What torch makes of it: tests/unit."""

from __future__ import annotations

import copy
import ctypes
import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from playing import FREE_THREADED
from recorder import Recorder
from trainperf._native import (
    ApartState,
    BracketFunction,
    backward_function,
    fetch_function,
    logging_function,
    step_functions,
)

ALL_SLOW = "without a GIL nothing guards what a bracket knows: all goes the slow way"
enabled = [True]


def is_grad_enabled() -> bool:
    return enabled[0]


def test_arguments_results_and_errors_go_through(recorder: Recorder) -> None:
    def original(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("fails"):
            raise kwargs["fails"]
        return args, kwargs

    firsts: list[int] = []
    calls = backward_function(original, lambda: firsts.append(1), lambda: -1, lambda: 1.0, recorder.begin, recorder.end)
    assert calls(1, 2, x=3) == ((1, 2), {"x": 3}) and calls() == ((), {})
    error = ZeroDivisionError("theirs")
    with pytest.raises(ZeroDivisionError) as caught:
        calls(fails=error)
    assert caught.value is error and error.__context__ is None
    assert recorder.words() == ["begin BACKWARD", "end BACKWARD"] * 3 and firsts == [1]


def test_what_writes_logs_is_bracketed_and_apart(recorder: Recorder) -> None:
    class Writer:
        def write(self, *args: Any, **kwargs: Any) -> Any:
            assert apart.depth == 1
            if kwargs.get("fails"):
                raise kwargs["fails"]
            return self, args, kwargs

    apart = ApartState()
    apart.thread = threading.get_ident()
    calls = logging_function(Writer.write, apart, recorder.begin, recorder.end)
    Writer.write = calls.as_method()  # type: ignore[method-assign]
    writer, error = Writer(), OSError("theirs")
    assert writer.write(1, x=2) == (writer, (1,), {"x": 2})
    with pytest.raises(OSError, match="theirs") as caught:
        writer.write(fails=error)
    assert caught.value is error and error.__context__ is None and apart.depth == 0
    assert recorder.words() == ["begin LOGGING", "end LOGGING"] * 2
    with pytest.raises(TypeError, match="ApartState"):
        logging_function(abs, object(), recorder.begin, recorder.end)  # type: ignore[arg-type]


def test_an_interrupt_in_a_chore_is_the_users() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    recorder = Recorder()
    calls = backward_function(abs, int, lambda: -1, interrupted, recorder.begin, recorder.end)
    with pytest.raises(KeyboardInterrupt):
        calls(-1)
    assert recorder.words() == ["begin BACKWARD", "end BACKWARD"]
    assert calls(-1) == 1  # and not again for a while


def test_an_interrupt_in_a_chore_of_a_backward_that_failed_has_its_error_before_it(recorder: Recorder) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    def fails() -> None:
        raise ZeroDivisionError("theirs")

    calls = backward_function(fails, int, lambda: -1, interrupted, recorder.begin, recorder.end)
    with pytest.raises(KeyboardInterrupt) as caught:
        calls()
    before = caught.value.__context__
    assert isinstance(before, ZeroDivisionError) and before.__traceback__ is not None
    with pytest.raises(ZeroDivisionError):
        calls()  # no chore: it was just there


def test_chores_come_when_they_say(recorder: Recorder) -> None:
    waits, ticks = iter([0.0, 0.0, 1.0, 1.0]), []

    def tick() -> float:
        ticks.append(next(waits))
        return ticks[-1]

    calls = backward_function(abs, int, lambda: -1, tick, recorder.begin, recorder.end)
    for _ in range(6):
        calls(-1)
    assert ticks == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("place", ["first", "graph_task", "tick"])
def test_an_error_of_ours_is_shown_and_the_backward_runs(place: str, recorder: Recorder, monkeypatch: Any) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: shown.append(repr(unraisable.exc_value)))

    def ours() -> int:
        raise ValueError("ours")

    parts = {"first": int, "graph_task": lambda: -1, "tick": int, place: ours}
    calls = backward_function(abs, *parts.values(), recorder.begin, recorder.end)
    assert [calls(-1) for _ in range(3)] == [1, 1, 1]
    assert shown == ["ValueError('ours')"]  # once, and not at each
    assert recorder.words() == ([] if place == "graph_task" else ["begin BACKWARD", "end BACKWARD"] * 3)


def test_a_chore_that_does_not_say_when_it_is_due_again_is_shown_once(recorder: Recorder, monkeypatch: Any) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: shown.append(type(unraisable.exc_value)))
    tick: Any = lambda: None  # noqa: E731
    calls = backward_function(abs, int, lambda: -1, tick, recorder.begin, recorder.end)
    assert [calls(-1) for _ in range(3)] == [1, 1, 1] and shown == [TypeError]


@pytest.mark.skipif(FREE_THREADED, reason=ALL_SLOW)
def test_how_a_fetch_ended(recorder: Recorder) -> None:
    things: list[Any] = [1]

    def original(it: object) -> Any:
        if not things:
            raise StopIteration
        thing = things.pop()
        if isinstance(thing, Exception):
            raise thing
        return thing

    thing = object()
    calls = fetch_function(original, pytest.fail, is_grad_enabled, recorder.begin, recorder.end)
    calls.know(thing, 7)
    assert calls(thing) == 1
    enabled[0] = False
    with pytest.raises(StopIteration):
        calls(thing)
    enabled[0] = True
    things.append(KeyError("lost"))
    with pytest.raises(KeyError, match="lost"):
        calls(thing)
    begins, ends = ([mark for mark in recorder.marks if mark.kind == kind] for kind in ("begin", "end"))
    assert [mark.flags for mark in begins] == [0, recorder.GRAD_DISABLED, 0] and {mark.object for mark in begins} == {7}
    assert [mark.value for mark in ends] == [recorder.FETCHED_BATCH, recorder.FETCH_EXHAUSTED, recorder.FETCH_RAISED]


@pytest.mark.skipif(not FREE_THREADED, reason="a build with a GIL")
def test_without_a_gil_all_goes_the_slow_way(recorder: Recorder) -> None:
    thing, met, functions = object(), [], step_functions()
    calls = fetch_function(pytest.fail, met.append, is_grad_enabled, recorder.begin, recorder.end)
    functions.switch_on(lambda *args: met.append(args), recorder.begin, recorder.end)
    calls.know(thing, 1)
    functions.know(thing, 2)
    calls(thing)
    functions.before(thing, (), {})
    assert met == [thing, (thing, (), {})] and recorder.marks == []


def test_one_that_cannot_mark_goes_the_slow_way(recorder: Recorder) -> None:
    def broken(*_: int) -> None:
        raise LookupError

    thing = object()
    calls = fetch_function(abs, lambda _: "slow", is_grad_enabled, broken, recorder.end)
    calls.know(thing, 1)
    assert calls(thing) == "slow" and recorder.marks == []
    calls.switch_off()
    assert calls(-2) == 2


@pytest.mark.skipif(FREE_THREADED, reason=ALL_SLOW)
def test_a_ctrl_c_in_its_question_is_the_users(recorder: Recorder) -> None:
    def interrupted() -> bool:
        raise KeyboardInterrupt

    thing = object()
    calls = fetch_function(abs, pytest.fail, interrupted, recorder.begin, recorder.end)
    calls.know(thing, 1)
    with pytest.raises(KeyboardInterrupt):
        calls(thing)
    assert recorder.marks == []


def test_the_original_may_take_the_wrapper_away() -> None:
    """As a watch does that ends within the call."""
    recorder, held = Recorder(), []

    def original() -> str:
        held.pop().switch_off()
        gc.collect()
        return "done"

    held.append(backward_function(original, int, lambda: -1, pytest.fail, recorder.begin, recorder.end))
    assert held[0]() == "done"  # with no chores of a watch that has ended
    assert recorder.words() == ["begin BACKWARD", "end BACKWARD"]


@pytest.fixture
def without_gc() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.skipif(FREE_THREADED, reason=ALL_SLOW)
def test_nothing_leaks(recorder: Recorder, without_gc: None) -> None:
    class Thing:
        pass

    thing = Thing()
    recorder.begin = recorder.end = lambda *_: None  # type: ignore[method-assign]
    fetch = fetch_function(lambda it: it, int, is_grad_enabled, recorder.begin, recorder.end)
    backward = backward_function(lambda it: it, int, lambda: -1, int, recorder.begin, recorder.end)
    fetch.know(thing, 1)
    held = [thing, fetch, backward, recorder.begin, None, True, is_grad_enabled]
    for _ in range(2):  # the first fills caches
        before = [sys.getrefcount(one) for one in held]
        for _ in range(500):
            fetch(thing)
            backward(thing)
    grown = [sys.getrefcount(one) - count for one, count in zip(held, before, strict=True)]
    assert max(grown) < 50, grown
    told: list[object] = []
    dead = weakref.ref(backward, told.append)
    held.clear()
    del backward
    assert dead() is None and told == [dead]
    fetch.itself = fetch  # type: ignore[attr-defined]
    dead = weakref.ref(fetch)
    del fetch
    gc.collect()
    assert dead() is None
    before = [sys.getrefcount(BracketFunction)]
    for _ in range(500):
        fetch_function(abs, int, is_grad_enabled, recorder.begin, recorder.end)
    assert sys.getrefcount(BracketFunction) - before[0] < 50


@pytest.mark.skipif(FREE_THREADED, reason=ALL_SLOW)
def test_a_class_that_iterates_by_it(recorder: Recorder) -> None:
    class Iterates:
        def __init__(self) -> None:
            self.left = 3

        def __iter__(self) -> Iterates:
            return self

        def __next__(self) -> int:
            self.left -= 1
            if self.left < 0:
                raise StopIteration
            return self.left

    plain = Iterates.__next__
    slow: list[Iterates] = []

    def slowly(iterator: Iterates) -> int:
        slow.append(iterator)
        return plain(iterator)

    calls = fetch_function(plain, slowly, is_grad_enabled, recorder.begin, recorder.end)
    Iterates.__next__ = calls  # type: ignore[assignment]
    one, other = Iterates(), Iterates()
    calls.know(one, 5)
    for _ in range(200):  # until CPython has specialised it
        one.left = 3
        assert list(one) == [2, 1, 0]
    recorder.marks.clear()
    assert list(other) == [2, 1, 0] and len(slow) == 4 and recorder.marks == []
    one.left = 1
    assert [one.__next__(), next(one, "none")] == [0, "none"]
    assert recorder.words() == ["begin FETCH", "end FETCH"] * 2


@pytest.mark.skipif(FREE_THREADED, reason=ALL_SLOW)
def test_step_functions(recorder: Recorder) -> None:
    functions, met, optimizer = step_functions(), [], object()
    assert functions.before(optimizer, (), {}) is None and functions.after(optimizer, (), {}) is None
    functions.switch_on(lambda *args: met.append(args), recorder.begin, recorder.end)
    functions.before(optimizer, (), {})
    assert met == [(optimizer, (), {})] and recorder.marks == []
    functions.know(optimizer, 3)
    functions.before(optimizer, (), {})
    functions.after(optimizer, (), {})
    assert recorder.words() == ["begin OPTIMIZER", "end OPTIMIZER"] and recorder.marks[0].object == 3
    functions.forget()
    functions.before(optimizer, (), {})
    functions.switch_off()
    functions.before(optimizer, (), {})
    functions.after(optimizer, (), {})
    assert len(met) == 2 and len(recorder.marks) == 2
    for wrong in ((), (optimizer, -1), (optimizer, "1"), (optimizer, 2**80)):
        with pytest.raises((TypeError, OverflowError)):
            functions.know(*wrong)


def test_what_it_knew_of_the_last_watch_is_not_known_in_the_next(recorder: Recorder) -> None:
    functions, met, optimizer = step_functions(), [], object()

    def slow(*args: Any) -> None:
        met.append(args)

    functions.switch_on(slow, recorder.begin, recorder.end)
    functions.switch_off()
    functions.know(optimizer, 7)  # by a thread that was in the slow way while the watch ended
    functions.switch_on(slow, recorder.begin, recorder.end)
    functions.before(optimizer, (), {})
    assert len(met) == 1 and recorder.marks == []
    functions.know(optimizer, 8)
    functions.switch_on(slow, recorder.begin, recorder.end)
    functions.before(optimizer, (), {})
    assert len(met) == 2 and recorder.marks == []
    with pytest.raises(TypeError, match="step_functions"):
        backward_function(abs, int, lambda: -1, int, recorder.begin, recorder.end).switch_on(slow, int, int)


def test_a_name_that_is_no_string(recorder: Recorder) -> None:
    calls: Any = backward_function(abs, int, lambda: -1, int, recorder.begin, recorder.end)
    assert repr(calls).startswith("<bracket function at ")
    calls.__qualname__ = 5
    assert repr(calls).startswith("<function 5 at ")
    with pytest.raises(TypeError, match="must be a string, not 5"):
        copy.copy(calls)


def test_a_call_after_the_collection_of_garbage(recorder: Recorder) -> None:
    """As by what the same collection frees after it."""
    ctypes.pythonapi.PyType_GetSlot.restype = ctypes.c_void_p
    ctypes.pythonapi.PyType_GetSlot.argtypes = [ctypes.py_object, ctypes.c_int]
    tp_clear = 51
    clear = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object)(
        ctypes.pythonapi.PyType_GetSlot(BracketFunction, tp_clear)
    )
    fetch = fetch_function(abs, int, is_grad_enabled, recorder.begin, recorder.end)
    backward = backward_function(abs, int, lambda: -1, int, recorder.begin, recorder.end)
    logs = logging_function(abs, ApartState(), recorder.begin, recorder.end)
    steps = step_functions()
    before, after = steps.before, steps.after
    for function in (fetch, backward, logs, steps):
        assert clear(function) == 0
    for function in (fetch, backward, logs):
        with pytest.raises(RuntimeError, match="after it was collected"):
            function(-1)
    assert before(1, (), {}) is None and after(1, (), {}) is None and steps.before is None


@pytest.mark.skipif(FREE_THREADED, reason=ALL_SLOW)
def test_a_class_that_binds_it_by_an_instancemethod(recorder: Recorder) -> None:
    class Iterates:
        def __next__(self) -> str:
            return "next"

    calls = fetch_function(Iterates.__next__, pytest.fail, is_grad_enabled, recorder.begin, recorder.end)
    Iterates.__next__ = calls.as_method()  # type: ignore[method-assign]
    one = Iterates()
    calls.know(one, 5)
    assert type(vars(Iterates)["__next__"]).__name__ == "instancemethod" and Iterates.__next__ is calls
    assert [next(one), one.__next__(), Iterates.__next__(one)] == ["next"] * 3  # type: ignore[call-overload]
    assert recorder.words() == ["begin FETCH", "end FETCH"] * 3
