"""What layers take on as many threads as there are CPUs, where torch uses more."""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from trainperf.container import cpu_quota
from trainperf.hooks.compiling import may_compile
from trainperf.hooks.context import Context
from trainperf.hooks.denormals import PURE, may_run

_LOOKS_S: Final = (2.0, 4.0)  # from one to the next: when memory and caches are as they will be
_LOOK_S: Final = 0.1
_MOST_CALLS: Final = 1000  # of a look
_LAYERS: Final = 6  # the costliest are run again
_TRIES: Final = 3
_TRY_S: Final = 0.002  # about: of a longer call the first samples alone
_TRIES_S: Final = 0.015  # of a look: then no other layer is begun


@dataclass(slots=True)
class _Layer:
    module: Any
    inputs: Sequence[tuple[tuple[int, ...], Any]] | None = None  # shape and dtype, of the last call; None: not tensors
    seconds: list[float] = field(default_factory=list)  # of each call


class FewerThreadsHook:
    """Threads that are more than the CPUs spin for those that have none just then, or share the CPUs and lose nothing:
    what the kernel counts is the same. So the layers of a few forwards are timed, by PyTorch's global module hooks, and
    the costliest run again, on a thread of ours that uses as many as there are CPUs. OpenMP and MKL keep that number by
    thread, with a pool for each: none of the training's threads is changed."""

    name = "fewer_threads"
    needs = "torch"

    def __init__(self) -> None:
        self._context: Context | None = None
        self._few = 0
        self._looks = 0
        self._thread = 0
        self._looking = False
        self._layers: dict[int, _Layer] = {}
        self._began: list[tuple[Any, float]] = []
        self._calls = 0
        self._handles: list[Any] = []
        self._sums = [0.0, 0.0]  # of the same layers, seconds on torch's threads and on few
        self._cost_s = 0.0

    def install(self, context: Context) -> None:
        self._context = context
        self._few = _cpus()
        context.ticker.add(self.name, self._tick, after_s=_LOOKS_S[0])
        context.ends_of_looks.append(self._unhook)

    def remove(self) -> None:
        if self._context is not None:
            self._context.ticker.discard(self.name)
        self._looking = False
        self._unhook()

    def _unhook(self) -> None:
        while self._handles:
            self._handles.pop().remove()

    def _tick(self) -> float:
        import torch

        cuda: Any = torch.cuda
        if self._looking:
            self._end()
        elif self._looks == len(_LOOKS_S) or torch.get_num_threads() <= self._few or cuda.is_initialized():
            self.remove()
        elif not may_compile() and not torch.is_autocast_enabled("cpu"):
            self._looks += 1
            self._looking, self._thread = True, threading.get_ident()
            self._hook()
            return _LOOK_S
        return _LOOKS_S[min(self._looks, len(_LOOKS_S) - 1)]

    # -- layers

    def _hook(self) -> None:
        import torch
        from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

        is_compiling = torch.compiler.is_dynamo_compiling

        def before(module: Any, _: Any) -> None:
            if not is_compiling() and not module._modules and threading.get_ident() == self._thread:
                self._began.append((module, time.perf_counter()))

        def after(module: Any, args: Any, _: Any) -> None:
            if not is_compiling() and not module._modules and threading.get_ident() == self._thread:
                self._after(module, args)

        self._handles = [register_module_forward_pre_hook(before), register_module_forward_hook(after)]

    def _after(self, module: Any, args: Any) -> None:
        now = time.perf_counter()
        while self._began:
            began, at = self._began.pop()
            if began is module:
                layer = self._layers.setdefault(id(module), _Layer(module))
                layer.inputs = [(tuple(t.shape), t.dtype) for t in args] if all(map(_is_plain, args)) else None
                layer.seconds.append(now - at)
                break  # what is above it has raised
        self._calls += 1
        if self._calls >= _MOST_CALLS:
            self._unhook()

    # -- what they take on few threads

    def _end(self) -> None:
        assert self._context is not None
        native, session = self._context.native, self._context.session
        self._looking = False
        self._unhook()
        layers = [layer for layer in self._layers.values() if _is_pure(layer)]
        self._layers, self._began, self._calls = {}, [], 0
        layers.sort(key=lambda layer: -sum(layer.seconds))
        if not layers or not may_run():
            return
        began = time.monotonic()
        native.begin_phase(native.PHASES.index("other"))
        native.mute(1)
        try:
            found = _on_few(layers[:_LAYERS], self._few)
        finally:
            native.mute(0)
            native.end_phase(native.PHASES.index("other"))
            self._cost_s += time.monotonic() - began
            session.set_overhead(self.name, round(1e9 * self._cost_s))
        for layer, few_s in found:
            self._sums[0] += _median(layer.seconds)
            self._sums[1] += few_s
        if found:
            many_ns, few_ns = (round(1e9 * seconds) for seconds in self._sums)
            told = {"threads": self._few, "many_ns": many_ns, "few_ns": few_ns}
            session.set_meta("fewer_threads", json.dumps(told))


def _cpus() -> int:
    """That each rank of this machine has; a large number where that is not known."""
    try:
        cpus = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return 1 << 30
    quota = cpu_quota()
    if quota is not None:
        cpus = min(cpus, max(1, math.ceil(quota)))
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, cpus // max(1, int(ranks) if ranks.isdigit() else 1))


def _is_plain(tensor: Any) -> bool:
    import torch

    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and bool(tensor.device.type == "cpu" and tensor.dim())


def _is_pure(layer: _Layer) -> bool:
    """It can be run again unseen: it draws no random numbers, and keeps nothing."""
    module = layer.module
    known = type(module).__module__.startswith("torch.nn.modules.") and type(module).__name__ in PURE
    parameters = (p for p in module._parameters.values() if p is not None)
    return known and bool(layer.inputs) and all(map(_is_plain, parameters))


def _on_few(layers: Sequence[_Layer], few: int) -> list[tuple[_Layer, float]]:
    """The layers that were run on so many threads, and the seconds of a call."""
    found: list[tuple[_Layer, float]] = []
    failed: list[Exception] = []

    def run() -> None:
        try:
            if _use(few):
                found.extend(_tried(layers))
        except Exception as error:
            failed.append(error)  # raised on the thread whose errors the run records

    thread = threading.Thread(target=run, name="trainperf-threads", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found


def _tried(layers: Sequence[_Layer]) -> Iterator[tuple[_Layer, float]]:
    import torch

    end = time.perf_counter() + _TRIES_S
    with torch.no_grad():
        for layer in layers:
            if time.perf_counter() > end:
                break
            with contextlib.suppress(RuntimeError):  # not of samples one after the other: a part of it does not fit
                yield layer, _median_call(layer)


def _median_call(layer: _Layer) -> float:
    rows = min(shape[0] for shape, _ in layer.inputs or ())
    part = _part(rows, _median(layer.seconds))
    first_s = _call(layer, part, rows)  # meets cold caches, and starts the threads
    part = _part(rows, first_s * rows / max(1, part))
    return _median([_call(layer, part, rows) for _ in range(_TRIES)]) * rows / max(1, part)


def _part(rows: int, seconds: float) -> int:
    return min(rows, max(1, int(rows * _TRY_S / max(seconds, 1e-9))))


def _call(layer: _Layer, part: int, rows: int) -> float:
    """On numbers of our own: the training's may be gone, and are not to be kept for this."""
    import torch

    inputs = [
        torch.full(shape if part == rows else (part, *shape[1:]), 0.5, dtype=dtype)
        for shape, dtype in layer.inputs or ()
    ]
    began = time.perf_counter()
    layer.module.forward(*inputs)
    return time.perf_counter() - began


def _median(seconds: Sequence[float]) -> float:
    return sorted(seconds)[len(seconds) // 2]  # statistics' is a slow import


def _use(threads: int) -> bool:
    """From now on this thread uses so many for an operation; False: it cannot be told to."""
    import torch

    try:
        library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
        torch.get_num_threads()  # sets this thread's number, where it has none yet
        library.omp_set_num_threads(threads)
        mkl: Any = torch.backends.mkl
        if mkl.is_available():
            library.MKL_Set_Num_Threads_Local(threads)
    except (OSError, AttributeError):  # another build: no OpenMP, or MKL in a library of its own
        return False
    return torch.get_num_threads() == threads
