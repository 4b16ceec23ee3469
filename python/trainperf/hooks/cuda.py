"""Begins the tracing of the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

from trainperf.hooks.context import Context

# Where NVIDIA's wheels put libcupti: for CUDA 13, and before.
_WHEEL_FOLDERS = (("nvidia", "cu13", "lib"), ("nvidia", "cuda_cupti", "lib"))


class CudaHook:
    """Once torch is there: its libcupti is loaded then, and no CUDA context yet, which is the moment to attach."""

    name = "cuda"
    needs = "torch"

    def install(self, context: Context) -> None:
        if not neighbour_runs():  # else when it has ended: hooks/profiler.py
            begin_tracing(context)

    def remove(self) -> None:
        """The session ends its tracing itself, and the ticker ends with the watch."""


def begin_tracing(context: Context) -> None:
    """The tier `cuda` of the run says how it went; without a driver it costs nothing."""
    if context.cuda:
        context.cuda_traced = context.session.trace_cuda(cupti_folders(), context.cupti_path)
    if context.cuda_traced:
        context.ticker.add(CudaHook.name, context.session.change_cuda_tier, at_changes=True)


def neighbour_runs() -> bool:
    """Whether torch's profiler or its monitor of CUPTI runs, whoever began it."""
    return profiler_runs() or monitor_runs()


def profiler_runs() -> bool:
    return bool(getattr(sys.modules.get("torch.autograd.profiler"), "_is_profiler_enabled", False))


def monitor_runs() -> bool:
    """The one that start_collection() began: of others torch keeps no note."""
    running = getattr(sys.modules.get("torch.profiler._cupti_monitor"), "get_monitor", lambda: None)
    return running() is not None


def cupti_folders() -> list[str]:
    """Where wheels of this environment may have put a libcupti, those for torch's CUDA first."""
    torch = sys.modules.get("torch")
    cuda = str(getattr(getattr(torch, "version", None), "cuda", None) or "")
    wheels = reversed(_WHEEL_FOLDERS) if cuda.startswith("12") else _WHEEL_FOLDERS
    found = (Path(entry, *folder) for folder in wheels for entry in sys.path if entry)
    return [str(folder) for folder in found if folder.is_dir()]
