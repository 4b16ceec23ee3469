"""Beside torch.profiler and fork on a real GPU; and the questions that only a GPU answers (docs/gpu.md)."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
import trainperf
from gpu_loop import needs_gpu, trainer, watched
from torch.profiler import ProfilerActivity, profile

pytestmark = [pytest.mark.alone, needs_gpu]
BOTH = [ProfilerActivity.CPU, ProfilerActivity.CUDA]


def kernels_of(profiler: profile) -> int:
    return sum(str(event.device_type).endswith("CUDA") for event in profiler.events())


def child(body: str, *arguments: object) -> str:
    """In a process of its own: what CUPTI was made to do lasts for the life of one."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(body), *map(str, arguments)],
        capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_profiler_inside_the_watch_sees_its_kernels_and_we_come_back(tmp_path: Path) -> None:
    with trainperf.watch(tmp_path / "a.tpr", verbose=False, cuda="full") as run:
        for n in range(90):
            if n == 30:
                profiler = profile(activities=BOTH)
                profiler.__enter__()
            if n == 60:
                torch.cuda.synchronize()
                profiler.__exit__(None, None, None)
            trainer().step()
            run.step()
        torch.cuda.synchronize()
    assert kernels_of(profiler) >= 30 * 20
    found = trainperf.open(tmp_path / "a.tpr")
    assert found.tiers["cuda"].tier == "cupti-full", found.tiers["cuda"]
    steps = found.devices[0].steps
    assert (steps.kernels[5:25] > 0).all()
    assert (steps.kernels[70:85] > 0).all()
    assert steps.incomplete[35:55].all()
    assert not steps.incomplete[70:85].any()


def test_profiler_before_the_watch(tmp_path: Path) -> None:
    said = child(
        """
        import sys, torch, trainperf
        from torch.profiler import profile, ProfilerActivity
        x = torch.ones(512, 512, device="cuda")
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
            x @ x
            torch.cuda.synchronize()
        with trainperf.watch(sys.argv[1], verbose=False, cuda="full") as run:
            for _ in range(20):
                x @ x
                run.step()
            torch.cuda.synchronize()
        found = trainperf.open(sys.argv[1])
        print("tier", found.tiers["cuda"].tier, found.tiers["cuda"].why)
        """,
        tmp_path / "a.tpr",
    )
    # Kineto may keep the one subscription of the process; then the run must say who has it.
    assert "tier cupti-full" in said or "another tool has CUPTI" in said


def test_profiler_after_the_watch_sees_its_kernels(tmp_path: Path) -> None:
    watched(tmp_path, trainer().step, 20)
    with profile(activities=BOTH) as profiler:
        for _ in range(10):
            trainer().step()
        torch.cuda.synchronize()
    assert kernels_of(profiler) >= 10 * 20


def test_watching_before_cuda_is_used_makes_no_context_and_lets_a_fork_use_cuda(tmp_path: Path) -> None:
    said = child(
        """
        import os, sys, torch, trainperf
        with trainperf.watch(sys.argv[1], verbose=False, cuda="full") as run:
            assert not torch.cuda.is_initialized()
            pid = os.fork()
            if pid == 0:
                torch.ones(8, device="cuda").sum().item()
                os._exit(0)
            status = os.waitpid(pid, 0)[1]
            torch.ones(8, device="cuda").sum().item()
        print("child", status, trainperf.open(sys.argv[1]).tiers["cuda"].tier)
        """,
        tmp_path / "a.tpr",
    )
    assert "child 0 cupti-full" in said


def test_exit_without_a_stop(tmp_path: Path) -> None:
    child(
        """
        import sys, torch, trainperf
        run = trainperf.start(sys.argv[1], verbose=False)
        x = torch.ones(512, 512, device="cuda")
        for _ in range(50):
            x @ x
            torch.cuda.synchronize()
            run.step()
        """,
        tmp_path / "a.tpr",
    )
    assert trainperf.open(tmp_path / "a.tpr").devices[0].totals.kernels >= 49


def test_launches_of_compiled_code_go_through_the_driver(tmp_path: Path) -> None:
    try:
        import triton  # noqa: F401
    except ImportError:
        pytest.skip("triton is not installed")
    compiled = torch.compile(lambda x: (x * 2).relu().sum())
    x = torch.randn(1 << 20, device="cuda")
    compiled(x)
    run = watched(tmp_path, lambda: compiled(x))
    assert run.dropped["cupti_unmatched"] == 0
    assert run.devices[0].totals.launches >= 60


def test_libtorch_links_cupti_dynamically() -> None:
    """If this fails, torch carries its own CUPTI, and the one that we load is a second."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        assert any("libcupti" in line for line in maps), os.path.dirname(torch.__file__)


def test_host_thread_ids_are_those_of_the_system(tmp_path: Path) -> None:
    run = watched(tmp_path, trainer().step)
    launched = {call.thread.role if call.thread else "?" for call in run.calls() if call.call == "launch_kernel"}
    assert "step" in launched
    assert run.dropped["cupti_without_thread"] == 0
