"""What the run has of memory: of the process and what keeps it, of DataLoader workers, and of GPUs."""

from __future__ import annotations

import gc
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from trainperf import _native
from trainperf.hooks import device_memory, kept_memory, worker_memory
from trainperf.hooks.context import Ticker
from trainperf.hooks.device_memory import DeviceMemoryHook
from trainperf.hooks.kept_memory import KeptMemoryHook, rises
from trainperf.hooks.worker_memory import WorkerMemoryHook

MB = 10**6


class Watch:
    """A hook in a loop of ten steps a second, on a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, hook: Any, module: Any) -> None:
        self.now = 1000.0
        self.steps = 0
        self.meta: dict[str, Any] = {}
        self.tiers: dict[str, tuple[str, str]] = {}
        self.overhead: dict[str, int] = {}
        self.failed: list[str] = []
        context: Any = SimpleNamespace(native=_native, workers={}, device_bytes=0, session=SimpleNamespace())
        self.context = context
        session = context.session
        session.set_meta = lambda key, value: self.meta.update({key: json.loads(value)})
        session.set_tier = lambda probe, tier, why="": self.tiers.update({probe: (tier, why)})
        session.set_overhead = self.overhead.__setitem__
        session.step_totals = lambda: (self.steps, 0, (), (0, 0, 0))
        self.context.fail = lambda name, error: self.failed.append(f"{name}: {error!r}")
        context.ticker = self.ticker = Ticker(context, lambda: self.now)
        clocks = {"monotonic": lambda: self.now, "monotonic_ns": lambda: round(self.now * 1e9)}
        monkeypatch.setattr(module, "time", SimpleNamespace(**{**vars(time), **clocks}))
        self.hook = hook
        hook.install(self.context)

    def train(self, seconds: int, step: Callable[[], object] = int) -> None:
        for _ in range(10 * seconds):
            self.now += 0.1
            self.steps += 1
            step()
            self.ticker.tick()
        assert not self.failed


class Memory(Watch):
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.resident = 400.0 * MB
        monkeypatch.setattr(kept_memory, "own_memory", lambda: int(self.resident))
        # The pauses are real, and as long as they are here.
        monkeypatch.setattr(kept_memory, "_PAUSE_S", 60.0)
        monkeypatch.setattr(kept_memory, "_LONGEST_S", 60.0)
        monkeypatch.setattr(kept_memory, "_SHARE", 1e3)
        super().__init__(monkeypatch, KeptMemoryHook(), kept_memory)

    def grow(self, each: float) -> None:
        self.resident += each


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    watch = Memory(monkeypatch)
    yield watch
    watch.hook.remove()


def test_what_keeps_memory_is_in_the_run(memory: Memory) -> None:
    kept: list[bytes] = []
    others = [[i] for i in range(10_000)]  # what was imported is frozen, and not looked at
    memory.context.device_bytes = 60_000 * MB  # however much it is

    def step() -> None:
        kept.append(bytes(50_000))
        memory.grow(50_000 * 1.1)

    memory.train(40, step)
    told = memory.meta["kept_memory"]
    assert told["steps"] >= 5 and told["seconds"] >= 3 and told["objects"] > len(others)
    (row,) = told["kept"]
    assert (row["name"], row["owner"].rpartition(".")[2]) == ("kept", "test_what_keeps_memory_is_in_the_run")
    assert (row["text"], row["line"] > 0, row["elements"]) == ("kept.append(bytes(...))", True, told["steps"])
    assert 50_000 <= row["bytes"] <= 50_100
    pauses = memory.meta["kept_memory_pauses"]
    assert 2 <= len(pauses) <= 4  # one may be an import
    assert memory.overhead["kept_memory"] == pytest.approx(1e6 * sum(pauses), abs=1e6)
    assert gc.isenabled() and memory.tiers["kept_memory"] == ("on", "")
    before = len(pauses)
    memory.train(100, step)
    assert len(memory.meta["kept_memory_pauses"]) == before  # once in a run


def test_what_keeps_memory_of_a_gpu_is_looked_for_too(memory: Memory) -> None:
    kept: list[bytes] = []
    memory.context.device_bytes = 400 * MB

    def step() -> None:
        kept.append(bytes(50_000))
        memory.context.device_bytes += 50_000

    memory.train(40, step)
    told = memory.meta["kept_memory"]
    assert told["bytes"] == 50_000 * told["steps"]
    (row,) = told["kept"]
    assert (row["name"], row["on_gpu"]) == ("kept", False)


def test_memory_that_does_not_rise_is_not_looked_at(memory: Memory) -> None:
    memory.train(60)
    memory.grow(100 * MB)
    memory.train(60)
    assert memory.meta == {} and memory.overhead == {}


def test_no_look_in_the_first_seconds(memory: Memory) -> None:
    memory.train(4, lambda: memory.grow(5 * MB))
    assert memory.meta == {}


def test_memory_that_stops_rising_after_the_first_look(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_memory, "_PAUSE_S", 0.001)
    monkeypatch.setattr(KeptMemoryHook, "_pause", KeptMemoryHook._book)
    while "kept_memory_pauses" not in memory.meta or memory.hook._census is None:
        memory.train(1, lambda: memory.grow(2 * MB))
    memory.train(60)
    assert memory.tiers["kept_memory"] == ("off", "memory stopped growing between two looks")
    assert "kept_memory" not in memory.meta and memory.hook._census is None


def test_a_look_that_takes_too_long_is_the_last(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_memory, "_LONGEST_S", 0.0)
    memory.train(30, lambda: memory.grow(2 * MB))
    tier, why = memory.tiers["kept_memory"]
    assert tier == "off" and why.startswith("a look at ") and "kept_memory" not in memory.meta


def test_all_pauses_together_take_a_hundredth_of_the_time(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_memory, "_SHARE", 0.01)
    memory.train(60, lambda: memory.grow(2 * MB))  # a minute, of which one pause may be all that is allowed
    assert memory.meta == {}


@pytest.mark.parametrize(
    ("megabytes", "so"),
    [
        ([400, 404, 408, 412, 416, 420], True),
        ([400, 410, 408, 421, 419, 430], False),
        ([400, 400, 400, 440, 440, 440], False),
        ([400, 401, 402, 403, 404, 405], False),
        ([400, 430, 445, 447, 448, 449], False),
        ([440, 430, 420, 410, 400], False),
        ([400, 440], False),
    ],
)
def test_a_steady_rise(megabytes: list[int], so: bool) -> None:
    assert rises([(float(s), m * MB) for s, m in enumerate(megabytes)]) is so


class Dataset:
    def __init__(self) -> None:
        self.cache: dict[int, bytes] = {}

    def __getitem__(self, index: int) -> bytes:
        self.cache[index] = bytes(1)
        return self.cache[index]


def test_the_memory_of_workers_and_the_line_that_adds_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {11: 100 * MB, 12: 100 * MB}
    monkeypatch.setattr(worker_memory, "own_memory", held.get)
    watch = Watch(monkeypatch, WorkerMemoryHook(), worker_memory)
    watch.train(3)
    assert watch.meta == {}
    watch.context.workers.update({11: Dataset, 12: Dataset})
    watch.train(20, lambda: held.update({pid: size + MB for pid, size in held.items()}))
    told = watch.meta["worker_memory"]
    assert (told["workers"], told["dataset"], told["text"]) == (2, "Dataset", "self.cache[...] = bytes(...)")
    first, last = told["readings"][0], told["readings"][-1]
    assert last[1] - first[1] == pytest.approx(20 * MB * (last[0] - first[0]), rel=0.1)
    del held[12]
    watch.train(20)
    watch.hook.remove()
    told = watch.meta["worker_memory"]
    assert told["workers"] == 1 and "text" not in told and {size for _, size in told["readings"]} == {held[11]}


def test_memory_of_a_process() -> None:
    own = kept_memory.own_memory()
    assert own is not None and own > MB
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert kept_memory.own_memory(child.pid) is not None
        child.kill()
    assert kept_memory.own_memory(child.pid) is None and os.getpid()


class Allocator:
    """PyTorch's, of a GPU that is not there: what memory_stats_as_nested_dict() says of device 0."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.allocated, self.reserved, self.peak, self.ooms = 2_000 * MB, 5_000 * MB, 4_000 * MB, 0
        self.error: Exception | None = None
        self.initialized = False
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: self.initialized)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=80_000 * MB))
        monkeypatch.setattr(torch.cuda.memory, "memory_stats_as_nested_dict", self.stats)

    def stats(self, device: int) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        now = {"allocated_bytes": (self.allocated, self.peak), "reserved_bytes": (self.reserved, self.reserved)}
        now |= {"active_bytes": (self.allocated, self.peak), "inactive_split_bytes": (7 * MB, 0), "segment": (30, 30)}
        used = device == 0
        told = {kind: {"all": {"current": used * c, "peak": used * p}} for kind, (c, p) in now.items()}
        return {**told, "num_alloc_retries": 3, "num_ooms": self.ooms}


def test_the_memory_of_gpus_as_the_allocator_counts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = Allocator(monkeypatch)
    watch = Watch(monkeypatch, DeviceMemoryHook(), device_memory)
    watch.train(3)
    assert watch.meta == {} and watch.overhead == {}  # CUDA is not in use
    allocator.initialized = True
    watch.train(20, lambda: setattr(allocator, "allocated", allocator.allocated + MB))
    (told,) = watch.meta["device_memory"].values()  # the other GPU is not used
    assert (told["total"], told["peaks"]) == (80_000 * MB, [4_000 * MB, 5_000 * MB])
    (first,) = told["rises"]
    assert first[0] == 0 and first[2:] == told["peaks"]
    seconds, held = zip(*[row[:2] for row in told["readings"]], strict=True)
    assert [round((b - a) / 1e8) / 10 for a, b in itertools.pairwise(seconds)] == [1.0] * (len(seconds) - 1)
    assert held[-1] - held[0] == pytest.approx(10 * MB * (len(held) - 1), rel=0.1)
    assert told["readings"][-1][2:] == [5_000 * MB, held[-1], 7 * MB, 30, 3, 0]
    assert held[-1] <= watch.context.device_bytes <= allocator.allocated and watch.overhead["device_memory"] > 0
    allocator.peak, allocator.reserved = 6_000 * MB, 8_000 * MB
    before = watch.now
    watch.train(2)
    allocator.peak, allocator.ooms = 3_000 * MB, 1  # the program has reset it
    watch.hook.remove()
    told = watch.meta["device_memory"]["0"]
    assert told["peaks"] == [6_000 * MB, 8_000 * MB] and told["readings"][-1][-1] == 1
    after, by, *rose = told["rises"][-1]
    assert len(told["rises"]) == 2 and rose == [2_000 * MB, 3_000 * MB]
    assert after / 1e9 <= before < by / 1e9 < watch.now


def test_readings_of_gpus_stay_few(monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = Allocator(monkeypatch)
    allocator.initialized = True
    watch = Watch(monkeypatch, DeviceMemoryHook(), device_memory)
    watch.train(400, lambda: setattr(allocator, "peak", allocator.peak * 1.01))
    watch.hook.remove()
    told = watch.meta["device_memory"]["0"]
    at = [row[0] / 1e9 for row in told["readings"]]
    assert 32 <= len(at) <= 66 and len(told["rises"]) == 16
    assert at == sorted(at) and at[0] < 1002 and at[-1] == pytest.approx(watch.now)


def test_an_allocator_that_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = Allocator(monkeypatch)
    allocator.initialized, allocator.error = True, RuntimeError("CUDAPluggableAllocator does not yet support it")
    watch = Watch(monkeypatch, DeviceMemoryHook(), device_memory)
    watch.ticker.tick()
    assert watch.failed == [f"device_memory: {allocator.error!r}"] and watch.meta == {}
    watch.now += 10
    watch.ticker.tick()
    assert len(watch.failed) == 1  # it is not asked again
