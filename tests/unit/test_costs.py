"""CostMeter: what nested stretches of a loop took, each without what was measured inside of it."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from typing import Any

import pytest
from trainperf import _native as native
from trainperf._native import ApartState, StretchMeter, StretchSums
from trainperf.hooks.apart import Apart

MS = 1_000_000


class Marks:
    """In the place of the core's marks: writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.raises: BaseException | None = None

    def _tell(self, what: str, *numbers: int) -> None:
        self.told.append((what, *numbers))
        if self.raises is not None:
            raise self.raises

    def begin(self, *numbers: int) -> None:
        self._tell("begin", *numbers)

    def end(self, *numbers: int) -> None:
        self._tell("end", *numbers)

    def begin_phase(self, *numbers: int) -> None:
        self._tell("begin_phase", *numbers)

    def end_phase(self, *numbers: int) -> None:
        self._tell("end_phase", *numbers)


@pytest.fixture
def marks() -> Marks:
    return Marks()


@pytest.fixture
def apart() -> Apart:
    made = Apart()
    made.take()
    return made


@pytest.fixture
def meter(marks: Marks, apart: Apart) -> StretchMeter:
    made = StretchMeter(apart, marks.begin, marks.end, marks.begin_phase, marks.end_phase)
    made.counting = True
    return made


def sums(number: int = 7) -> StretchSums:
    made = StretchSums()
    made.number = number
    return made


def test_a_callback_is_marked_and_what_it_calls_is_its_own_only_once(meter: StretchMeter, marks: Marks) -> None:
    outer, inner = sums(), sums(8)
    for _ in range(2):
        meter.enter(outer, meter.CALLBACK)
        time.sleep(0.004)
        meter.enter(inner, meter.CALLBACK)  # its phase stays the outer one's
        time.sleep(0.008)
        meter.leave()
        meter.leave()
    assert marks.told == 2 * [("begin", native.CALLBACK, 7), ("end", native.CALLBACK)]
    assert (outer.count, inner.count) == (2, 2)
    assert inner.ns == inner.own_ns == inner.other_ns >= 16 * MS
    assert outer.ns == outer.own_ns + inner.ns and outer.own_ns == outer.other_ns >= 8 * MS
    assert outer.ns / 2 <= outer.max_ns < outer.ns


def test_a_collection_has_a_name_of_its_own_wherever_it_is(meter: StretchMeter) -> None:
    outer, inner = sums(), sums(8)
    walked = [[] for _ in range(300_000)]  # type: ignore[var-annotated]
    gc.callbacks.append(native.gc_callback)
    try:
        meter.enter(outer, meter.CALLBACK)
        time.sleep(0.008)
        meter.enter(inner, meter.CALLBACK)
        gc.collect()
        meter.leave()
        meter.leave()
    finally:
        gc.callbacks.remove(native.gc_callback)
    assert 0.9 * inner.own_ns <= inner.named_ns <= inner.own_ns and len(walked) == 300_000
    assert outer.own_ns >= 8 * MS > outer.named_ns
    assert inner.max_ns == inner.ns - inner.named_ns


@pytest.mark.parametrize("kind", ["LOGGING", "PHASE"])
def test_a_phase_of_its_own_is_no_part_of_the_loop(meter: StretchMeter, marks: Marks, apart: Apart, kind: str) -> None:
    callback, logger = sums(), sums()
    meter.enter(callback, meter.CALLBACK)
    time.sleep(0.004)
    meter.enter(logger, getattr(meter, kind), 5)
    time.sleep(0.008)
    assert apart.depth == 1 and apart.measured == 2
    meter.leave()
    meter.leave()
    assert apart.depth == apart.measured == 0 and apart.ns >= 8 * MS
    assert len(marks.told) == 4
    assert logger.own_ns >= 8 * MS > logger.other_ns
    assert callback.own_ns == callback.ns - logger.ns
    assert callback.other_ns == pytest.approx(callback.own_ns, abs=4 * MS)


def test_what_hooks_tell_apart_is_no_part_of_it_either(meter: StretchMeter, apart: Apart) -> None:
    callback = sums()
    meter.enter(callback, meter.CALLBACK)
    apart.begin()  # torch.save()
    time.sleep(0.008)
    apart.end()
    module = object()
    apart.validates(module)  # and a validation that is left open
    time.sleep(0.008)
    meter.leave()
    assert apart.depth == 0 and apart.evaluate == {}
    assert callback.own_ns >= 16 * MS and callback.other_ns < callback.own_ns / 2


def test_what_was_left_open_is_ended(meter: StretchMeter, apart: Apart) -> None:
    everything = [sums(number) for number in range(40)]
    for each in everything:
        meter.enter(each, meter.LOGGING)
    assert meter.inside(everything[3]) and not meter.inside(sums())
    meter.unwind()
    meter.leave()  # of nothing
    assert [each.count for each in everything] == 40 * [1] and apart.depth == apart.measured == 0


def test_a_ctrl_c_in_a_mark_leaves_what_unwind_knows(meter: StretchMeter, marks: Marks, apart: Apart) -> None:
    interrupted = sums()
    marks.raises = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        meter.enter(interrupted, meter.LOGGING)
    assert meter.inside(interrupted)
    with pytest.raises(KeyboardInterrupt):
        meter.unwind()
    assert not meter.inside(interrupted) and interrupted.count == 1 and apart.depth == 0


def test_before_the_first_batch_nothing_is_summed(meter: StretchMeter) -> None:
    early = sums()
    meter.counting = False
    meter.enter(early, meter.CALLBACK)
    meter.enter(None, meter.PLAIN)
    meter.unwind()
    assert early.count == early.ns == 0


def test_it_knows_its_thread(meter: StretchMeter) -> None:
    there: list[bool] = []
    thread = threading.Thread(target=lambda: there.append(meter.here()))
    thread.start()
    thread.join()
    assert meter.here() and there == [False]
    meter.thread = 0
    assert not meter.here()


def test_what_it_holds_goes_with_it(marks: Marks, apart: Apart) -> None:
    class Held(StretchSums):
        pass

    class Meter(StretchMeter):
        pass

    held = Held()
    made = Meter(apart, marks.begin, marks.end, marks.begin_phase, marks.end_phase)
    made.enter(held, made.PLAIN)
    made.itself = made  # type: ignore[attr-defined]
    gone = weakref.ref(made), weakref.ref(held)
    del made, held
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


def test_types_are_held_by_as_many_as_there_are(marks: Marks) -> None:
    """What a version of CPython wants of a type that is made on the heap, and subclassed in Python, differs."""

    class Sums(StretchSums):
        __slots__ = ("name",)

    class Meter(StretchMeter):
        pass

    def once() -> None:
        apart = Apart()
        meter = Meter(apart, marks.begin, marks.end, marks.begin_phase, marks.end_phase)
        meter.itself = meter  # type: ignore[attr-defined]
        meter.enter(Sums(), meter.PLAIN)
        native.action_bracket("a", meter.leave, meter.leave, 1)

    types = [Apart, ApartState, Sums, StretchSums, Meter, StretchMeter, native.ActionBracket]

    def held_by() -> list[int]:
        # Without a GIL a thread's own counts are added in a collection: those of what it frees, in the next one.
        for _ in range(2):
            gc.collect()
        return [sys.getrefcount(each) for each in types]

    once()
    before = held_by()
    for _ in range(100):
        once()
    assert held_by() == before


def test_a_mark_that_measures_too_is_none_of_what_it_marks(meter: StretchMeter, marks: Marks) -> None:
    outer = sums()

    def measures(*_: int) -> None:
        meter.enter(sums(8), meter.PLAIN)
        time.sleep(0.004)
        meter.leave()

    meter = StretchMeter(Apart(), measures, marks.end, marks.begin_phase, marks.end_phase)
    meter.counting = True
    meter.enter(outer, meter.CALLBACK)
    meter.leave()
    assert outer.own_ns == outer.ns >= 0


def test_what_it_cannot_be_given_is_a_type_error(meter: StretchMeter, marks: Marks) -> None:
    for wrong in ((), (None,), (1, 0), (sums(), "x"), (sums(), "x", 0), (sums(), 0, 0, 0)):
        with pytest.raises(TypeError):
            meter.enter(*wrong)  # type: ignore[arg-type]
    for wrong in ((None, 4), (None, -1), (None, 0, 99)):
        with pytest.raises(ValueError, match="no such stretch"):
            meter.enter(*wrong)
    with pytest.raises(TypeError):
        StretchMeter(marks, 1, 2, 3, 4)
    with pytest.raises(TypeError):
        Apart(1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Apart().evaluate = 1  # type: ignore[assignment]
    never_made = StretchMeter.__new__(StretchMeter)
    with pytest.raises(TypeError, match="never made"):
        never_made.enter(None, 0)
    never_made.leave()
    never_made.unwind()
