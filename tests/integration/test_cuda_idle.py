"""Why a device idles, end to end: causes injected into a real loop, its device played by the scripted libcupti."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trainperf
from cuda_child import play
from trainperf.cli.main import main
from trainperf.runfile.schema import MECHANISMS

CASES = """
import contextlib
calm = contextlib.nullcontext()

class Slow(list):
    def __getitem__(self, index):
        time.sleep(0.006)
        return torch.ones(1)

class Hog:
    # Holds the GIL nearly all the time: whoever lets go of it waits for a switch interval.
    def __enter__(self):
        self.stop = False
        self.thread = threading.Thread(target=self.spin, name="hog")
        self.thread.start()
    def spin(self):
        while not self.stop:
            sum(range(2000))
    def __exit__(self, *_):
        self.stop = True
        self.thread.join()

def case(name, between=lambda: None, data=None, hog=calm, steps=25, **options):
    gpu.start()
    with trainperf.watch(f"{path}.{name}", verbose=False, cuda="full"), hog:
        for batch in DataLoader([torch.ones(1)] * steps if data is None else data, batch_size=None):
            step(batch, kernels=4, ms=0.4, between=between, **options)
"""


@pytest.mark.alone
def test_each_idle_gap_has_the_cause_that_was_injected(tmp_path: Path) -> None:
    play(
        CASES
        + """
case("data_wait", data=Slow([1] * 25))
case("gil_wait", hog=Hog())
case("cuda_alloc", lambda: (gpu.synchronize(), gpu.call(20, ms=6), gpu.launch("late", ms=0.1)))
case("module_load", lambda: (gpu.synchronize(), gpu.module_load(ms=6)))
case("blocked_io", lambda: (gpu.synchronize(), time.sleep(0.006), gpu.launch("late", ms=0.1)))
""",
        tmp_path,
    )
    for cause in ("data_wait", "gil_wait", "cuda_alloc", "module_load", "blocked_io"):
        run = trainperf.open(tmp_path / f"a.tpr.{cause}")
        (device,) = run.devices
        causes = device.totals.idle_causes_ns
        # Work of the machine's others is told as descheduled, and is no fault of the attribution.
        idle = device.totals.idle_ns - causes["descheduled"]
        assert causes[cause] > 0.6 * idle, (cause, {k: v / 1e6 for k, v in causes.items() if v})
        assert device.totals.kernels >= 25 * 4
        assert device.steps.incomplete.sum() == 0
        assert (device.steps.busy_ns + device.steps.idle_ns == run.steps.wall_ns).all()
        assert {kernel.name for kernel in run.kernels(device.id)} <= {
            "ampere_sgemm_0", "ampere_sgemm_1", "ampere_sgemm_2", "late", "loaded_late",
        }  # fmt: skip
    holders = {detail.thread.name for detail in trainperf.open(tmp_path / "a.tpr.gil_wait").details("idle_gil_wait")}
    assert "hog" in holders


@pytest.mark.alone
def test_another_thread_that_launches_is_blamed_for_what_it_did(tmp_path: Path) -> None:
    """The loop sleeps until a thread of its own has allocated and launched: only that one knows why the GPU idles."""
    play(
        CASES
        + """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(1) as pool:
    ahead = lambda: pool.submit(lambda: (gpu.call(20, ms=6), gpu.launch("ahead", ms=0.1))).result()
    case("ahead", lambda: (gpu.synchronize(), ahead()))
""",
        tmp_path,
    )
    (device,) = trainperf.open(tmp_path / "a.tpr.ahead").devices
    causes = device.totals.idle_causes_ns
    idle = device.totals.idle_ns - causes["descheduled"]
    assert causes["cuda_alloc"] > 0.6 * idle, {k: v / 1e6 for k, v in causes.items() if v}
    assert causes["blocked_io"] < 0.1 * idle


@pytest.mark.alone
def test_autograds_thread_waits_for_the_gil_in_backward(tmp_path: Path) -> None:
    """As on a GPU: the training thread sleeps in backward, another one launches, and runs no Python that we mark."""
    told = play(
        CASES
        + """
import queue
work, done = queue.SimpleQueue(), queue.SimpleQueue()
waited = 0.0

def autograd():
    global waited
    while work.get():
        for _ in range(16):
            begin = time.perf_counter()
            gpu.launch("backward", ms=0.05)  # to come back from C takes the GIL
            waited += time.perf_counter() - begin
        done.put(True)

class Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        work.put(True)
        done.get()
        return grad

def batches():  # on a machine that others use the hog may hold the GIL less
    for _ in range(2000):
        yield torch.ones(1)
        if waited > 0.3:
            return

thread = threading.Thread(target=autograd, name="autograd")
thread.start()
gpu.start()
with trainperf.watch(path, verbose=False, cuda="full"), Hog():
    for batch in batches():
        Backward.apply(weight * batch).sum().backward()
        optimizer.step()
        gpu.synchronize()
work.put(False)
thread.join()
tell(waited=waited)
""",
        tmp_path,
    )
    run = told["run"]
    step, autograd = (next(t for t in run.threads.values() if t.name == name) for name in ("MainThread", "autograd"))
    assert autograd.gil_wait_ns > 0.8e9 * told["waited"]
    waits_ns = run.matrix_ns[:, MECHANISMS.index("gil_wait")].sum()
    assert waits_ns > step.gil_wait_ns + 0.6 * autograd.gil_wait_ns, (waits_ns, run.threads)
    assert any(d.thread and d.thread.name == "hog" for d in run.details("gil_wait") if d.phase == "backward")


@pytest.mark.alone
def test_the_user_sees_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play(CASES + "case('hog', hog=Hog(), steps=40)", tmp_path)
    path = str(tmp_path / "a.tpr.hog")
    assert main(["show", path, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    (device,) = shown["devices"]
    assert device["id"] == 0 and 0 < device["busy_share"] < 1
    gil = device["idle_causes"]["gil_wait"]
    assert gil["share_of_idle"] > 0.5 and gil["ms_per_step"] > 1
    assert shown["tiers"]["cuda"].startswith("cupti-full")
    assert main(["show", path]) == 0
    assert "GPU" in capsys.readouterr().out


def test_pageable_copies_calls_and_their_lines_are_in_the_run(tmp_path: Path) -> None:
    play(
        CASES
        + "case('copies', lambda: (gpu.copy(1 << 20, pageable=True, ms=3), gpu.copy(4, to_device=False, ms=0.01)))",
        tmp_path,
    )
    run = trainperf.open(tmp_path / "a.tpr.copies")
    seen = {(copy.direction, copy.src, copy.dst): copy for copy in run.copies(0)}
    assert seen["h2d", "pageable", "device"].count == 25
    assert seen["h2d", "pageable", "device"].bytes == 25 << 20
    assert seen["d2h", "device", "pinned"].small == 25
    calls = {call.call: call for call in run.calls()}
    assert calls["launch_kernel"].count == 100
    assert calls["memcpy"].count == 50
    assert calls["stream_sync"].count == 25
    thread = calls["stream_sync"].thread
    assert thread is not None and thread.role == "step"


def test_a_pause_for_the_profiler_is_no_idle_device(tmp_path: Path) -> None:
    facts = play(
        CASES
        + """
import torch.autograd.profiler as profiler
from torch.profiler import ProfilerActivity
gpu.start()
config = profiler.profile(use_device=None).config(create_trace_id=True)
with trainperf.watch(path, verbose=False, cuda="full"):
    for n, batch in enumerate(DataLoader([torch.ones(1)] * 90, batch_size=None)):
        if n == 30:
            profiler._prepare_profiler(config, {ProfilerActivity.CPU, ProfilerActivity.CUDA})
        if n == 60:
            profiler._enable_profiler(config, {ProfilerActivity.CPU, ProfilerActivity.CUDA})
            profiler._disable_profiler()
        step(batch)
""",
        tmp_path,
    )
    (device,) = facts["run"].devices
    incomplete = device.steps.incomplete.astype(bool)
    assert incomplete[31:59].all()
    assert not incomplete[:25].any() and not incomplete[66:].any()
    assert (device.steps.kernels[~incomplete] > 0).all()


@pytest.mark.alone
def test_a_device_that_always_has_work_in_flight(tmp_path: Path) -> None:
    """CUPTI withholds a buffer with a record in flight; here there is one all the time, and launches are few."""
    facts = play(
        """
        gpu.start()
        with trainperf.watch(path, verbose=False, cuda="full"):
            end = time.monotonic() + 2.5
            for n, batch in enumerate(DataLoader([torch.ones(1)] * 10_000, batch_size=None)):
                gpu.launch("long", ms=8)
                if n % 100 == 99:
                    gpu.synchronize()  # the queue is at most 0.8 s long
                (weight * batch).sum().backward()
                optimizer.step()
                if time.monotonic() > end:
                    break
            gpu.synchronize()
        tell(produced=gpu.count("produced"), delivered=gpu.count("delivered"))
        """,
        tmp_path,
    )
    run = facts["run"]
    assert facts["produced"] == facts["delivered"]
    assert run.dropped["cupti_late"] == 0 and run.dropped["late_events"] == 0
    (device,) = run.devices
    assert device.steps.incomplete.sum() == 0
    assert device.totals.busy_ns > 0.9 * (device.totals.busy_ns + device.totals.idle_ns)
    assert device.totals.queue_depth > 5
