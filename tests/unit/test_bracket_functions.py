"""Wrappers in C: no Python of ours runs in a step, and nobody can tell them from what they stand for."""

from __future__ import annotations

import copy
import inspect
import pickle
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from recorder import Recorder, Session
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter
from trainperf.hooks.backward import BackwardHook, _graph_task_address
from trainperf.hooks.compiling import our_codes
from trainperf.hooks.dataloader import DataLoaderHook
from trainperf.hooks.denormals import _is_slow_cpu
from trainperf.hooks.optimizer import OptimizerHook

Install = Callable[..., Session]


def frames_of_ours(run: Callable[[], object]) -> list[str]:
    """Python functions of the hooks that ran in it."""
    seen: list[str] = []

    def profile(frame: Any, event: str, _: object) -> None:
        if event == "call" and "/trainperf/hooks/" in frame.f_code.co_filename:
            seen.append(frame.f_code.co_name)

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return seen


def test_a_step_runs_no_python_of_ours(hooked: Install, recorder: Recorder) -> None:
    hooked(DataLoaderHook(), BackwardHook(), OptimizerHook())
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    batches = iter(DataLoader([torch.ones(2)] * 9, batch_size=None))

    def step() -> None:
        optimizer.zero_grad()
        (next(batches) * weight).sum().backward()
        optimizer.step()

    assert {"__next__", "before"} <= set(frames_of_ours(step))  # so that it can be seen
    recorder.marks.clear()
    assert frames_of_ours(step) == []
    brackets = ["FETCH", "BACKWARD", "OPTIMIZER"]
    assert recorder.words() == [f"{kind} {bracket}" for bracket in brackets for kind in ("begin", "end")]
    assert [mark.object for mark in recorder.marks if mark.kind == "begin"] == [1, 0, 2]


def test_torch_tells_in_c_whether_a_backward_runs() -> None:
    graph_task = torch._C._current_graph_task_id  # type: ignore[attr-defined]
    assert _graph_task_address(graph_task) != 0
    assert _graph_task_address(lambda: 5) == 0  # which is not what that function says


def test_more_loaders_and_optimizers_than_it_can_keep_in_mind(hooked: Install, recorder: Recorder) -> None:
    hooked(DataLoaderHook(), OptimizerHook())
    loaders = [iter(DataLoader([torch.ones(1)] * 5, batch_size=None)) for _ in range(7)]
    optimizers = [torch.optim.SGD([torch.ones(1, requires_grad=True)]) for _ in range(7)]
    for _ in range(5):
        for loader, optimizer in zip(loaders, optimizers, strict=True):
            next(loader)
            optimizer.step()
    fetched = [mark.object for mark in recorder.of("FETCH") if mark.kind == "begin"]
    stepped = [mark.object for mark in recorder.of("OPTIMIZER") if mark.kind == "begin"]
    assert fetched == list(range(1, 8)) * 5 and stepped == list(range(8, 15)) * 5


def test_what_takes_the_place_of_a_dead_one_is_not_taken_for_it(hooked: Install, recorder: Recorder) -> None:
    session = hooked(DataLoaderHook(), OptimizerHook())
    for _ in range(20):  # each at the address of the one before it, as it happens
        loader = DataLoader([torch.ones(1)] * 2, batch_size=None)
        list(loader)
        optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)])
        optimizer.step()
        optimizer.step()
        del loader, optimizer
    for bracket, kind in (("FETCH", "loader"), ("OPTIMIZER", "optimizer")):
        met = list(dict.fromkeys(mark.object for mark in recorder.of(bracket) if mark.kind == "begin"))
        assert len(met) == 20 and {session.objects[number][0] for number in met} == {kind}


@pytest.mark.parametrize("attribute", ["__next__", "backward"])
def test_it_looks_like_what_it_stands_for(hooked: Install, attribute: str) -> None:
    owner: Any = _BaseDataLoaderIter if attribute == "__next__" else torch.autograd
    plain = getattr(owner, attribute)
    hooked(DataLoaderHook(), BackwardHook())
    patched = getattr(owner, attribute)
    assert patched is not plain and callable(patched) and inspect.isroutine(patched)
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        assert getattr(patched, name) == getattr(plain, name)
    assert patched.__wrapped__ is plain and inspect.signature(patched) == inspect.signature(plain)
    assert inspect.getsource(patched) == inspect.getsource(plain)
    assert repr(patched).startswith(f"<function {plain.__qualname__} at ")
    assert pickle.loads(pickle.dumps(patched)) is patched
    assert copy.copy(patched) is patched and copy.deepcopy(patched) is patched
    patched.mine = 1
    assert patched.mine == 1 and weakref.ref(patched)() is patched


def test_dynamo_is_told_of_the_python_behind_it(hooked: Install) -> None:
    hooked(DataLoaderHook())
    slow = _BaseDataLoaderIter.__next__.slow  # type: ignore[attr-defined]
    assert slow.__code__ in set(our_codes())
    assert _is_slow_cpu.__wrapped__.__code__ in set(our_codes())


def test_it_binds_as_a_method(hooked: Install) -> None:
    hooked(DataLoaderHook())
    iterator = iter(DataLoader([torch.ones(1) * i for i in range(4)], batch_size=None))
    bound = iterator.__next__
    assert inspect.ismethod(bound) and bound.__self__ is iterator
    assert [bound().item(), _BaseDataLoaderIter.__next__(iterator).item(), next(iterator).item()] == [0.0, 1.0, 2.0]
    for wrong in ((), (iterator, iterator)):
        with pytest.raises(TypeError):
            _BaseDataLoaderIter.__next__(*wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        _BaseDataLoaderIter.__next__(self=iterator, more=1)  # type: ignore[call-arg]
