"""What two looks find of what a loop keeps, and that nothing of ours keeps it."""

from __future__ import annotations

import functools
import gc
import sys
import time
import types
import weakref
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from trainperf import _native
from trainperf.keeping import contents, names
from trainperf.keeping.census import Census, Kept

Step = Callable[[], object]
HERE = Path(__file__).name


def kept_by(step: Step, *, rise: float = 1.0) -> list[Kept]:
    """Of a loop that calls `step`. `rise`: bytes that memory grew by."""
    for _ in range(8):
        step()
    census: Any = Census(_native)
    census.first()
    for _ in range(20):
        step()
    census.second()
    return list(census.named(rise, 20))


def only(kept: list[Kept]) -> Kept:
    assert len(kept) == 1, kept
    return kept[0]


def text(kept: Kept) -> str:
    assert kept.line is not None, kept
    assert Path(kept.line.file).name == HERE
    return kept.line.text


def loss_of(model: nn.Module) -> torch.Tensor:
    loss: torch.Tensor = model(torch.ones(4, 8)).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    return loss


def test_a_list_of_losses() -> None:
    model, losses = nn.Linear(8, 8), []

    def step() -> None:
        loss = loss_of(model)
        losses.append(loss)

    found = only(kept_by(step, rise=20_000))
    assert (found.kind, found.type, found.elements, found.held.holds) == ("container", "list", 20, "graphs")
    assert text(found) == "losses.append(loss)" and found.held.scalar
    assert {name.name for name in found.names} == {"losses"}


def test_a_sum_of_losses() -> None:
    model, total = nn.Linear(8, 8), torch.zeros(())

    def step() -> None:
        nonlocal total
        total = total + loss_of(model)

    found = only(kept_by(step, rise=20_000))
    assert (found.kind, found.held.holds, text(found)) == ("graph", "graphs", "total = total + loss_of(model)")


def test_a_sum_of_numbers_and_the_last_loss_are_kept_by_nobody() -> None:
    model, total, last = nn.Linear(8, 8), 0.0, torch.zeros(())

    def step() -> None:
        nonlocal total, last
        last = loss_of(model)
        total += last.item()

    assert kept_by(step, rise=20_000) == []


def test_tensors_of_a_gpu_are_weighed_and_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    output = torch.zeros(1000, device="meta")  # in place of a GPU
    assert contents.contents([output], torch) == contents.Contents("tensors", 300.0)
    monkeypatch.setattr(contents, "_GPUS", frozenset({"meta"}))
    assert contents.contents([output], torch) == contents.Contents("tensors", 4300.0, on_gpu=True)
    every = torch.zeros(1000, device="meta")

    def step() -> None:
        nonlocal every
        every = torch.cat([every, torch.zeros(1000, device="meta")])

    found = only(kept_by(step, rise=80_000))
    assert (found.kind, found.held.bytes, found.held.on_gpu) == ("array", 80_000, True)


class Log:
    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def write(self, value: float) -> None:
        self.rows.append({"value": value, "other": value + 1})


def test_rows_of_a_log() -> None:
    log = Log()
    found = only(kept_by(lambda: log.write(time.time()), rise=6_000))
    assert (found.held.holds, text(found)) == ("objects", "self.rows.append({...})")
    assert (found.names[0].of, found.names[0].name, found.names[0].owner) == ("attribute", "rows", "Log")


def test_arrays_in_a_dict_of_lists() -> None:
    kept: dict[str, list[Any]] = {"a": [], "b": []}

    def step() -> None:
        kept["a"].append(np.zeros(100))

    found = only(kept_by(step, rise=20 * 1000))
    assert found.held.holds == "arrays" and 800 <= found.held.bytes <= 1000
    assert text(found) == "kept[...].append(np.zeros(...))" and found.names[0].inside == 1


def test_an_array_that_is_made_longer() -> None:
    every = np.zeros(1)

    def step() -> None:
        nonlocal every
        every = np.concatenate([every, np.ones(50)])

    found = only(kept_by(step, rise=20 * 400))
    assert (found.kind, found.held.bytes) == ("array", 8000)
    assert text(found) == "every = np.concatenate([every, np.ones(...)])"


@functools.cache
def cached(n: int) -> torch.Tensor:
    return torch.zeros(256)


def test_a_cache_without_a_bound() -> None:
    numbers = iter(range(1000))
    try:
        found = only(kept_by(lambda: cached(next(numbers)), rise=20 * 1400))
    finally:
        cached.cache_clear()
    assert (found.kind, found.elements, found.bound, text(found)) == ("cache", 20, None, "@lru_cache on cached")
    assert 1000 <= found.held.bytes <= 2000


def test_hooks_that_are_registered_again_and_again() -> None:
    layer = nn.Linear(4, 4)

    def step() -> None:
        fresh = torch.zeros(256)
        layer.register_forward_hook(lambda module, given, got, seen=fresh: got + seen[0])

    found = only(kept_by(step, rise=20 * 1500))
    assert (found.kind, found.held.holds) == ("container", "hooks")
    assert found.line is not None and Path(found.line.file).name == HERE


def test_what_holds_a_small_part_of_what_grew_is_not_named() -> None:
    values: list[float] = []
    assert kept_by(lambda: values.append(time.time()), rise=1e6) == []


@pytest.mark.parametrize("bound", [deque(range(9), maxlen=9), [1, 2, 3, 4, 5]])
def test_what_does_not_get_longer_is_not_named(bound: Any) -> None:
    def step() -> None:
        bound.append(torch.zeros(1000))
        if not isinstance(bound, deque):
            del bound[0]

    assert kept_by(step, rise=1000) == []


class Unasked(list[int]):
    """What the program's classes do is not for us to ask."""

    def __len__(self) -> int:
        raise AssertionError("asked")

    __iter__ = __reversed__ = __eq__ = __getitem__ = __repr__ = __len__  # type: ignore[assignment]


def test_a_programs_classes_are_not_asked() -> None:
    kept = Unasked([1, 2, 3, 4])
    found = only(kept_by(lambda: kept.append(time.time_ns()), rise=500))
    assert (found.type, found.elements, text(found)) == ("Unasked", 20, "kept.append(time.time_ns())")


def test_an_object_that_answers_for_its_class_is_not_asked() -> None:
    """As torch 2.4's `torch.distributed.reduce_op`, which warns; others import what they stand for."""

    class Deprecated:
        def __getattribute__(self, name: str) -> Any:
            asked.append(name)
            return object.__getattribute__(self, name)

    class LazyModule(types.ModuleType):
        def __getattribute__(self, name: str) -> Any:
            asked.append(name)
            return types.ModuleType.__getattribute__(self, name)

    asked: list[str] = []
    of_the_loop = Deprecated()
    of_the_program: Any = sys.modules[__name__]
    of_the_program.deprecated, of_the_program.lazy = of_the_loop, LazyModule("lazy")
    sys.modules["lazy_module"] = of_the_program.lazy
    LazyModule.in_the_class = of_the_loop  # type: ignore[attr-defined]
    kept: list[Any] = [of_the_loop]

    def step() -> None:
        kept.append((of_the_loop, of_the_program.lazy))

    try:
        asked.clear()
        assert "kept" in {name.name for found in kept_by(step) for name in found.names}
        assert asked == []
    finally:
        del of_the_program.deprecated, of_the_program.lazy, sys.modules["lazy_module"]


def test_nothing_is_kept_alive() -> None:
    class Thing:
        pass

    things: list[Thing] = []
    kept_by(lambda: things.append(Thing()))
    alive = [weakref.ref(thing) for thing in things]
    things.clear()
    gc.collect()
    assert not any(ref() for ref in alive)


def frame_of_a_call() -> tuple[types.FrameType, dict[str, Any]]:
    def inner() -> tuple[types.FrameType, dict[str, Any]]:
        frame = sys._getframe(1)
        return frame, _native.frame_locals(frame)

    in_cell, plain = [1], {"a": 2}
    function: Callable[[], Any] = lambda: in_cell  # noqa: E731
    found = inner()
    assert function() is in_cell and plain
    return found


def test_locals_of_a_frame_are_read_without_a_dict_that_stays() -> None:
    _, found = frame_of_a_call()
    assert (found["in_cell"], found["plain"]) == ([1], {"a": 2}) and callable(found["function"])
    assert "found" not in found

    def caller() -> Any:
        thing = deque([1])
        read = reads()
        return weakref.ref(thing), read

    def reads() -> bool:
        return "thing" in _native.frame_locals(sys._getframe(1))

    ref, read = caller()
    assert read and ref() is None


def test_locals_of_a_module_are_none() -> None:
    found: list[Any] = []
    exec("found.append(read(get()))", {"found": found, "read": _native.frame_locals, "get": sys._getframe})
    assert found == [{}]
    with pytest.raises(TypeError, match="takes a frame"):
        _native.frame_locals(3)  # type: ignore[arg-type]


def test_files_of_libraries_are_no_programs() -> None:
    assert names.is_programs(__file__)
    for module in (torch, np, functools, names):
        assert not names.is_programs(str(module.__file__)), module
    assert not names.is_programs("<frozen runpy>") and not names.is_programs("")
