"""What a look at the calls of modules records, and that it ends."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module
from trainperf.hooks import module_calls
from trainperf.hooks.context import Ticker


class Watch:
    """The hook, and its ticker."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module_calls, "may_compile", lambda: False)
        self.meta: dict[str, str] = {}
        self.failed: list[str] = []
        context: Any = SimpleNamespace(session=SimpleNamespace(set_meta=self.meta.__setitem__))
        context.ends_of_looks = []
        context.fail = lambda hook, error: self.failed.append(f"{hook}: {error}")
        self.now = 1000.0
        monkeypatch.setattr(module_calls, "time", SimpleNamespace(**{**vars(time), "monotonic": lambda: self.now}))
        context.ticker = self.ticker = Ticker(context, lambda: self.now)
        self.hook = module_calls.ModuleCallsHook()
        self.hook.install(context)

    def backward(self, after_s: float = 0.1) -> None:
        self.now += after_s
        self.ticker.tick()

    def until_look(self) -> None:
        while not torch_module._global_forward_hooks:
            self.backward()

    def seen(self) -> list[dict[str, Any]]:
        while torch_module._global_forward_hooks:
            self.backward()
        return [dict(call) for call in json.loads(self.meta.get("module_calls", '{"calls": []}'))["calls"]]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    found = Watch(monkeypatch)
    yield found
    found.hook.remove()
    assert not torch_module._global_forward_hooks and not found.failed


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.head = nn.Sequential(nn.Linear(2, 2)).requires_grad_(False), nn.Linear(2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.backbone(x))


def test_only_outermost_calls_are_recorded_with_their_line_and_gradients(watch: Watch) -> None:
    net, crop = Net(), nn.MaxPool2d(2)
    watch.until_look()
    line = sys._getframe().f_lineno
    x = crop(torch.ones(1, 4, 4))
    y = net(x[0])
    with torch.no_grad():
        net(x[0])
    crop_call, trained, rolled = watch.seen()
    assert [c["callers"][0][1:] for c in (crop_call, trained, rolled)] == [
        ["test_only_outermost_calls_are_recorded_with_their_line_and_gradients", line + n] for n in (1, 2, 4)
    ]
    assert (crop_call["parameters"], crop_call["training"], crop_call["given"]) == (0, [1, 0], [1, 0])
    assert (trained["parameters"], trained["trained"], trained["frozen"]) == (4, 2, ["backbone"])
    assert (trained["training"], rolled["training"]) == ([1, 1], [1, 0])
    assert y.requires_grad and trained["forward"][1].endswith("forward")


def test_what_a_module_is_given_and_its_mode_are_recorded(watch: Watch) -> None:
    net = nn.Linear(2, 1).eval()
    watch.until_look()
    net({"x": torch.ones(2)}["x"].requires_grad_())
    (call,) = watch.seen()
    assert (call["evaluating"], call["training"], call["given"]) == ([1, 1], [0, 0], [1, 1])


class Told:
    def __init__(self, value: Any) -> None:
        self.value = value


class Teller(nn.Module):
    def forward(self, x: torch.Tensor, features: Any = None) -> Any:
        return Told({"y": (x * 2,)}) if features is None else Told(None)


def test_tensors_are_found_in_objects_and_keyword_arguments(watch: Watch) -> None:
    """What returns none that are found says nothing of its gradient."""
    teller = Teller()
    watch.until_look()
    teller(torch.ones(2, requires_grad=True))
    teller(torch.ones(2), features=torch.ones(2, requires_grad=True))
    one, other = watch.seen()
    assert (one["training"], one["given"]) == ([1, 1], [1, 1])
    assert (other["training"], other["given"]) == ([0, 0], [1, 1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.torch.jit.trace")
def test_a_scripted_module_is_looked_at(watch: Watch) -> None:
    scripted = torch.jit.trace(nn.Linear(2, 1), torch.ones(2))
    watch.until_look()
    scripted(torch.ones(2))
    (call,) = watch.seen()
    assert call["training"] == [1, 1] and call["forward"] == []


@pytest.mark.filterwarnings("ignore:.torch.cpu.amp.autocast")  # torch 2.4 warns of itself
def test_what_backward_runs_again_is_no_call(watch: Watch) -> None:
    net = nn.Linear(2, 1)
    watch.until_look()
    torch.utils.checkpoint.checkpoint(net, torch.ones(2), use_reentrant=False).backward()
    (call,) = watch.seen()
    assert call["training"] == [1, 1]


def test_a_look_of_short_steps_ends_with_what_it_may_cost(watch: Watch) -> None:
    net = nn.Linear(2, 1)
    steps: dict[float, int] = {}
    for own_s in (0.0, 0.001):
        watch.until_look()
        steps[own_s] = 0
        while torch_module._global_forward_hooks:
            net(torch.ones(2))
            watch.hook._own_s = own_s
            watch.backward(after_s=0.021)
            steps[own_s] += 1
    assert steps == {0.0: 10, 0.001: 2}
    watch.until_look()
    net(torch.ones(2))
    (call, _) = watch.seen()
    assert call["training"] == [12, 12]


def test_looks_are_few_and_end(watch: Watch) -> None:
    looks = 0
    for _ in range(200):
        was = bool(torch_module._global_forward_hooks)
        watch.backward()
        looks += bool(torch_module._global_forward_hooks) and not was
    assert looks == 3 and not torch_module._global_forward_hooks


# torch 2.15 warns of CPython 3.13.0.
@pytest.mark.filterwarnings("ignore:.*when there are global hooks", "ignore:Guards may run slower")
def test_what_is_compiled_in_a_look_is_compiled_without_it(watch: Watch) -> None:
    net = torch.compile(Net(), backend="eager", fullgraph=True)
    watch.until_look()
    assert net(torch.ones(2)).requires_grad
    watch.seen()
    assert net(torch.ones(2)).requires_grad


def test_nothing_is_looked_at_where_something_was_compiled(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_calls, "may_compile", lambda: True)
    for _ in range(200):
        watch.backward()
        assert not torch_module._global_forward_hooks
