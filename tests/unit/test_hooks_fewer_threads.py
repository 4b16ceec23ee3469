"""What is recorded of layers that run again on fewer threads, and that the training's own are as before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module
from trainperf import _native
from trainperf.hooks import fewer_threads
from trainperf.hooks.context import Ticker
from trainperf.hooks.fewer_threads import FewerThreadsHook


class Watch:
    """The hook, its ticker and a clock of its own, on so many CPUs."""

    def __init__(self, cpus: int, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(fewer_threads, "may_compile", lambda: False)
        patch.setattr(fewer_threads, "_cpus", lambda: cpus)
        self.now = 1000.0
        self.failed: list[str] = []
        self.meta: dict[str, str] = {}
        self.overhead: dict[str, int] = {}
        session = SimpleNamespace(set_meta=self.meta.__setitem__, set_overhead=self.overhead.__setitem__)
        context: Any = SimpleNamespace(native=_native, session=session, ends_of_looks=[])
        context.fail = lambda hook, error: self.failed.append(f"{hook}: {error!r}")
        context.ticker = self.ticker = Ticker(context, lambda: self.now)
        self.hook = FewerThreadsHook()
        self.hook.install(context)

    def look(self, model: nn.Module, x: torch.Tensor) -> dict[str, Any]:
        self.now += 10.0
        self.ticker.tick()
        for _ in range(3):
            model(x)
        self.now += 1.0
        self.ticker.tick()
        assert not torch_module._global_forward_hooks and not torch_module._global_forward_pre_hooks
        return dict(json.loads(self.meta.get("fewer_threads", "{}")))


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


MODEL = nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Dropout(), nn.Linear(256, 8))


def test_layers_run_again_on_as_many_threads_as_cpus(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(1, monkeypatch)
    used: list[int] = []
    call = fewer_threads._call
    monkeypatch.setattr(fewer_threads, "_call", lambda *of: (used.append(torch.get_num_threads()), call(*of))[1])
    told = watch.look(MODEL, torch.randn(64, 256))
    assert told["threads"] == 1 and told["many_ns"] > 0 and told["few_ns"] > 0
    assert set(used) == {1} and torch.get_num_threads() == 2  # of this thread, which trains
    assert watch.overhead["fewer_threads"] > 0 and not watch.failed
    first = told["few_ns"]
    assert watch.look(MODEL, torch.randn(64, 256))["few_ns"] > first  # both looks count
    watch.hook.remove()


def test_only_layers_that_can_run_unseen_do(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            calls.append(input)
            return super().forward(input)

    calls: list[torch.Tensor] = []
    watch = Watch(1, monkeypatch)
    model = nn.Sequential(Counting(8, 8), nn.BatchNorm1d(8))
    state = torch.get_rng_state()
    assert watch.look(model, torch.ones(4, 8)) == {} and len(calls) == 3
    assert torch.equal(torch.get_rng_state(), state) and not watch.failed
    watch.hook.remove()


def test_of_long_calls_a_part_of_the_samples_runs_again(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(1, monkeypatch)
    monkeypatch.setattr(fewer_threads, "_call", lambda layer, part, rows: (parts.append(part), part / 10)[1])
    parts: list[int] = []
    told = watch.look(nn.Sequential(nn.Linear(8, 8)), torch.ones(1000, 8))
    assert told["few_ns"] == 100_000_000_000 and parts[1:] == [1, 1, 1]  # a tenth of a second for each
    watch.hook.remove()


def test_what_is_not_made_of_samples_is_left_out(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(1, monkeypatch)
    monkeypatch.setattr(fewer_threads, "_TRY_S", 1e-12)
    assert watch.look(nn.Sequential(nn.Conv2d(3, 4, 3)), torch.ones(3, 16, 16)) == {} and not watch.failed
    watch.hook.remove()


def test_an_error_of_ours_ends_the_hook_and_is_told(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> float:
        raise TypeError("ours")

    watch = Watch(1, monkeypatch)
    monkeypatch.setattr(fewer_threads, "_call", failing)
    assert watch.look(MODEL, torch.randn(64, 256)) == {} and watch.failed == ["fewer_threads: TypeError('ours')"]


def test_nothing_is_tried_where_there_are_cpus_enough(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(2, monkeypatch)
    assert watch.look(MODEL, torch.randn(64, 256)) == {} and watch.ticker.due == float("inf")


def test_it_ends_after_some_looks(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(1, monkeypatch)
    told = [watch.look(MODEL, torch.randn(64, 256)) for _ in range(5)]
    assert told[1] == told[2] == told[4] != told[0] and watch.ticker.due == float("inf")


@pytest.mark.parametrize(("quota", "ranks", "cpus"), [(None, "", 4), (1.5, "", 2), (None, "2", 2), (None, "9", 1)])
def test_cpus_of_a_rank(monkeypatch: pytest.MonkeyPatch, quota: float | None, ranks: str, cpus: int) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr(fewer_threads, "cpu_quota", lambda: quota)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    assert fewer_threads._cpus() == cpus
