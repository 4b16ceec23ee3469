"""Real steps on a GPU with an injected cause each; the truth is CUDA's own events."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from gpu_loop import needs_gpu, trainer, watched
from trainperf.run import Run

pytestmark = [pytest.mark.alone, needs_gpu]


def idle_shares(run: Run) -> dict[str, float]:
    totals = run.devices[0].totals
    return {cause: ns / max(1, totals.idle_ns) for cause, ns in totals.idle_causes_ns.items()}


# Of 60: what comes before the loop's first mark may be in no step.
FROM_THE_FIRST_MARK = (59, 60)


def count_calls(run: Run) -> Counter[str]:
    """Of all threads."""
    counts: Counter[str] = Counter()
    for call in run.calls():
        counts[call.call] += call.count
    return counts


def test_the_tracer_is_on_and_lost_nothing(tmp_path: Path) -> None:
    run = watched(tmp_path, trainer().step)
    assert run.tiers["cuda"].tier == "cupti-full", run.tiers["cuda"]
    assert {what: n for what, n in run.dropped.items() if what.startswith("cupti") and n} == {}
    assert run.devices[0].name == torch.cuda.get_device_name(0)
    assert run.devices[0].totals.incomplete == 0


def test_busy_time_is_that_of_cuda_events(tmp_path: Path) -> None:
    trainer().spans.clear()
    run = watched(tmp_path, trainer().step, 100)
    busy_ms = run.devices[0].totals.busy_ns / 1e6
    # Events span a step from its first kernel to its last: with a full queue that is its busy time and small gaps.
    assert 0.9 < busy_ms / trainer().gpu_ms() <= 1.02


def test_kernels_are_counted_and_joined_to_their_launches(tmp_path: Path) -> None:
    run = watched(tmp_path, trainer().step)
    totals = run.devices[0].totals
    assert totals.kernels > 60 * 20
    assert totals.kernels == totals.launches  # those of cuBLAS, by the driver and on autograd's thread, too
    assert count_calls(run)["launch_kernel"] > 0.98 * totals.launches
    assert run.dropped["cupti_unmatched"] == 0


@contextmanager
def gil_hog() -> Iterator[None]:
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            sum(range(2000))

    thread = threading.Thread(target=spin, name="hog")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_gil_hog(tmp_path: Path) -> None:
    with gil_hog():
        run = watched(tmp_path, trainer().step, 40)
    assert idle_shares(run)["gil_wait"] > 0.5
    assert any(detail.thread and detail.thread.name == "hog" for detail in run.details("idle_gil_wait"))


def test_item_each_layer(tmp_path: Path) -> None:
    def step() -> None:
        trainer().step()
        for parameter in list(trainer().model.parameters())[:6]:
            float(parameter.grad.norm().item())  # type: ignore[union-attr]

    run = watched(tmp_path, step)
    calls = count_calls(run)
    assert calls["stream_sync"] + calls["memcpy"] >= 60 * 6
    small = sum(copy.small for copy in run.copies(0) if copy.direction == "d2h")
    assert small >= 60 * 6
    assert any("step" in str(detail.stack) or detail.ns > 0 for detail in run.details("call"))


def test_pageable_copy(tmp_path: Path) -> None:
    host = torch.randn(4096, 2048)

    def step() -> None:
        host.cuda()
        trainer().step()

    run = watched(tmp_path, step)
    pageable = [copy for copy in run.copies(0) if copy.direction == "h2d" and copy.src == "pageable"]
    assert sum(copy.count for copy in pageable) in FROM_THE_FIRST_MARK
    assert sum(copy.bytes for copy in pageable) == sum(copy.count for copy in pageable) * host.nbytes
    assert run.devices[0].totals.copy_ns > 0


def device_calls() -> tuple[int, int]:
    """What torch's allocator counts: blocks that it took from CUDA, and gave back."""
    stats = torch.cuda.memory_stats()
    return stats["num_device_alloc"], stats["num_device_free"]


def test_allocation_each_step(tmp_path: Path) -> None:
    def step() -> None:
        trainer().step()
        torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        torch.cuda.empty_cache()

    step()
    taken, given = device_calls()
    run = watched(tmp_path, step, 30)
    taken, given = (after - before for after, before in zip(device_calls(), (taken, given), strict=True))
    calls = count_calls(run)
    assert taken >= 30 and given >= 30
    assert taken - taken // 30 <= calls["alloc"] <= taken  # but for what came before the first mark
    assert given - given // 30 <= calls["free"] <= given
    assert idle_shares(run)["cuda_alloc"] > 0.3


def test_tiny_kernels_are_launch_bound(tmp_path: Path) -> None:
    x = torch.ones(16, device="cuda")

    def step() -> None:
        y = x
        for _ in range(300):
            y = y * 1.0001 + 0.1

    run = watched(tmp_path, step)
    totals = run.devices[0].totals
    assert totals.tiny_kernels > 0.9 * totals.kernels
    shares = idle_shares(run)
    assert shares["launch"] + shares["python"] > 0.6


def test_slow_loader(tmp_path: Path) -> None:
    class Slow(torch.utils.data.Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 60

        def __getitem__(self, index: int) -> torch.Tensor:
            time.sleep(0.02)
            return torch.ones(1)

    batches = iter(torch.utils.data.DataLoader(Slow(), batch_size=None))

    def step() -> None:
        next(batches)
        trainer().step()

    run = watched(tmp_path, step, 50)
    assert idle_shares(run)["data_wait"] > 0.8


def test_cuda_graphs(tmp_path: Path) -> None:
    x = torch.ones(1024, 1024, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):  # type: ignore[no-untyped-call]
        for _ in range(3):
            x @ x
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x
        for _ in range(20):
            y = y @ x
    run = watched(tmp_path, graph.replay)
    launched = count_calls(run)["launch_graph"]
    assert launched in FROM_THE_FIRST_MARK
    # The first graph may be launched before the first mark, and end after it.
    assert launched * 20 <= run.devices[0].totals.kernels <= 60 * 20
    assert launched <= run.devices[0].totals.launches <= 60
