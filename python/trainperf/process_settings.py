"""Settings of this process that can make a training slow, or end it: read, never changed."""

from __future__ import annotations

import contextlib
import dis
import gc
import os
import re
import sys
import types
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from trainperf.numa import placement

# Variables by which a library uses fewer of the CPU's instructions than it could, and those that make torch print.
_INSTRUCTIONS: Final = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")
_LOGS: Final = ("TORCH_LOGS", "TORCH_TRACE", "TORCH_COMPILE_DEBUG")
_ZEROING: Final = ("zero_", "_foreach_zero_", "requires_grad_", "detach_")
_CPUFREQ: Final = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_"
_MOST_CHARACTERS: Final = 32


def process_settings() -> Mapping[str, Any]:
    """By name, those that are known here and now. Takes about a millisecond, imports nothing that the program has not
    imported, and does not initialise CUDA."""
    return {**_of_python(), **_of_environment(), **_of_system(), **_of_torch()}


def _of_python() -> Mapping[str, Any]:
    malloc = "" if sys.flags.ignore_environment else os.environ.get("PYTHONMALLOC", "")
    return {
        "malloc_debug": malloc.endswith("debug") or (sys.flags.dev_mode and not malloc),
        "dev_mode": sys.flags.dev_mode,
        "debug_build": hasattr(sys, "gettotalrefcount"),
        "gc_debug": gc.get_debug(),
    }


def _of_environment() -> Mapping[str, Any]:
    """Names that are set; values only where they are words of a library's own."""
    found: dict[str, Any] = {
        "instructions": {name: os.environ[name][:_MOST_CHARACTERS] for name in _INSTRUCTIONS if os.environ.get(name)},
        "logs": [name for name in _LOGS if os.environ.get(name, "0") not in ("", "0")],
        "distributed_debug": os.environ.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL",
    }
    if "tokenizers" in sys.modules:
        found["tokenizers_parallelism"] = "TOKENIZERS_PARALLELISM" in os.environ
    return found


def _of_system() -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    with contextlib.suppress(OSError, AttributeError):  # no Linux
        shm = os.statvfs("/dev/shm")
        found["shared_memory"] = [shm.f_bavail * shm.f_frsize, shm.f_blocks * shm.f_frsize]
    with contextlib.suppress(OSError, ImportError):
        import resource

        found["descriptors"] = [len(os.listdir("/proc/self/fd")), resource.getrlimit(resource.RLIMIT_NOFILE)[0]]
    with contextlib.suppress(OSError):
        found["numa"] = placement()
    with contextlib.suppress(OSError):  # a virtual machine has none
        found["governor"] = [_line(f"{_CPUFREQ}governor"), _line(f"{_CPUFREQ}driver")]
    return found


def _line(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read(_MOST_CHARACTERS).strip()


def _of_torch() -> Mapping[str, Any]:
    torch: Any = sys.modules.get("torch")
    multiprocessing: Any = sys.modules.get("torch.multiprocessing")
    ask: Mapping[str, Callable[[], Any]] = {
        "torch_debug": lambda: bool(torch.version.debug),
        "blas": lambda: found[1] if (found := re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())) else "",
        "sharing": lambda: str(multiprocessing.get_sharing_strategy()),
    }
    known = {}
    for name, of in ask.items():
        with contextlib.suppress(Exception):  # not imported, half imported, or of a version that has it elsewhere
            known[name] = of()
    return known


def zeroing_lines() -> Mapping[str, Mapping[str, list[int]]]:
    """{file: {function: lines}}: where zero_grad(set_to_none=False) works. {} without torch."""
    found: dict[str, dict[str, list[int]]] = {}
    for module, owner in (("torch.optim.optimizer", "Optimizer"), ("torch.nn.modules.module", "Module")):
        function = getattr(getattr(sys.modules.get(module), owner, None), "zero_grad", None)
        code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
        if isinstance(code, types.CodeType):
            name = getattr(code, "co_qualname", code.co_name)
            found.setdefault(code.co_filename, {})[name] = _lines_of(code, _ZEROING)
    return found


@lru_cache(maxsize=4)  # a watch asks at its begin and at its end, and it takes a millisecond
def _lines_of(code: types.CodeType, names: tuple[str, ...]) -> list[int]:
    """Lines of a function on which it loads one of these attributes."""
    lines, line = set(), 0
    for instruction in dis.get_instructions(code):
        position = getattr(instruction, "positions", None)
        line = (position.lineno if position is not None else instruction.starts_line) or line
        loaded = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
        if any(name in names for name in loaded):
            lines.add(line)
    return sorted(lines)
