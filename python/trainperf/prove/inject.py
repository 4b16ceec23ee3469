"""Applies a change in the process of a trial, without an edit of the script, and proves that it took effect."""

from __future__ import annotations

import functools
import gc
import os
import sys
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainperf.hooks.patch import AnyFunction, Patch
from trainperf.prove.changes import COLLECTS_EACH, implied_by, setting
from trainperf.prove.recorder import Recorder, construction_chain

_LOADER_OPTIONS = (
    "num_workers", "batch_size", "pin_memory", "persistent_workers", "prefetch_factor", "drop_last", "in_order",
)  # fmt: skip
_FIND_MODELS = 2  # backwards in which outermost modules are found; less than the shortest warm-up
_NOT_COMPILED = "nothing was compiled: TORCH_LOGS=graph_breaks names the lines that prevent it"
# Samplers that draw no random order; the last is what a stream has.
_IN_ORDER = ("SequentialSampler", "_InfiniteConstantSampler", "NoneType")


class Injection:
    """`unproven` says at the end of the trial which settings did not take effect, and why."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        recorder: Recorder,
        *,
        chain: Sequence[Sequence[Any]] | None = None,
        nth: int | None = None,
        shift: int = 0,
    ) -> None:
        """`chain`: of calls that made the loader to change; `nth`: which of those that it made, None: all.

        `shift`: added to every seed, so that trials differ by chance alone.
        """
        self._settings = dict(settings)
        self._of_loader = {n: v for n, v in settings.items() if setting(n).of_loader}
        self._chain = None if chain is None else [tuple(place) for place in chain]
        self._nth = nth
        self._made = 0
        self._shift = shift
        self._recorder = recorder
        self._patches: list[Patch] = []
        self._changed: list[Any] = []  # loaders
        self._proofs: dict[str, Callable[[], str]] = {}  # by setting, "" where it took effect
        self._counts: dict[str, int] = {}
        self.script_seeds = False  # the script sets torch's seed itself

    def before_torch(self) -> None:
        """What does not need torch."""
        import random

        random.seed(self._shift)
        for name, value in self._settings.items():
            if setting(name).before_start:
                self._proofs[name] = functools.partial(_variable_unproven, name, str(value))
        if "gc_threshold" in self._settings:
            self._recorder.at_first_batch.append(self._gc_threshold)
        if "gc" in self._settings:
            self._recorder.at_first_batch.append(self._gc)
        if "switch_interval" in self._settings:
            self._recorder.at_first_batch.append(self._switch_interval)
        if "tracemalloc" in self._settings:
            self._never_on("tracemalloc", tracemalloc, "start", None)
            if tracemalloc.is_tracing():  # by PYTHONTRACEMALLOC
                tracemalloc.stop()
                self._count("tracemalloc")
        if "gc_debug" in self._settings:
            self._never_on("gc_debug", gc, "set_debug", 0)

    def at_torch(self) -> None:
        """As torch has been imported, before the script goes on."""
        import torch
        from torch.utils.data import DataLoader, dataloader

        self._seed_all(torch)
        self._patches.append(Patch(DataLoader, "__init__", self._loader_made))
        self._patches.append(Patch(dataloader._MultiProcessingDataLoaderIter, "_reset", _draw_as_anew))
        for name in self._settings:
            apply = getattr(self, f"_torch_{name}", None)
            if apply is not None:
                apply(torch, self._settings[name])

    def reaches(self, torchdata: Any) -> None:
        """Its StatefulDataLoader calls nothing of torch's own as it is made, or begins again."""
        self._patches.append(Patch(torchdata.StatefulDataLoader, "__init__", self._loader_made))
        self._patches.append(Patch(torchdata._StatefulMultiProcessingDataLoaderIter, "_reset", _draw_as_anew))

    def unproven(self) -> list[str]:
        found = []
        if self._of_loader:
            found += self._loader_unproven()
        for name, proof in self._proofs.items():
            why = proof()
            if why:
                found.append(f"{name}: {why}")
        return found

    # Seeds: a trial must be repeatable where the script's own are not set.

    def _seed_all(self, torch: Any) -> None:
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(self._shift)
        torch.manual_seed(self._shift)
        self._patches.append(Patch(torch, "manual_seed", self._seeded))
        torch.random.manual_seed = torch.manual_seed

    def _seeded(self, original: AnyFunction) -> AnyFunction:
        def manual_seed(seed: Any) -> Any:
            self.script_seeds = True
            return original(int(seed) + self._shift)

        return manual_seed

    # The loader

    def _loader_made(self, original: AnyFunction) -> AnyFunction:
        import inspect

        signature = inspect.signature(original)

        def __init__(loader: Any, *args: Any, **kwargs: Any) -> None:
            chain = construction_chain(loader)
            if self._of_loader and self._is_the_one(chain):
                bound = signature.bind(loader, *args, **kwargs)
                bound.arguments.update(implied_by(self._of_loader) | self._of_loader)
                original(*bound.args, **bound.kwargs)
                self._changed.append(loader)
            else:
                original(loader, *args, **kwargs)
            self._recorder.knows(
                loader,
                {
                    "chain": chain,
                    "class": type(loader).__qualname__,
                    "dataset": id(loader.dataset),
                    "shuffles": type(getattr(loader, "sampler", None)).__name__ not in _IN_ORDER,
                    "options": {name: getattr(loader, name, None) for name in _LOADER_OPTIONS},
                },
            )

        return __init__

    def _is_the_one(self, chain: list[tuple[str, int]]) -> bool:
        if self._chain is None or chain != self._chain:
            return False
        self._made += 1
        return self._nth is None or self._made - 1 == self._nth

    def _loader_unproven(self) -> list[str]:
        if not self._changed:
            return ["the loader was not made in this trial"]
        loader = self._changed[-1]
        wrong = [n for n, v in self._of_loader.items() if n != "multiprocessing_context" and getattr(loader, n) != v]
        if "multiprocessing_context" in self._of_loader:
            context = loader.multiprocessing_context
            if getattr(context, "_name", None) != self._of_loader["multiprocessing_context"]:
                wrong.append("multiprocessing_context")
        if self._recorder.trains is not None:  # a framework may have made that one from the one that was changed
            options = self._recorder.loaders[self._recorder.trains].get("options", {})
            wrong += [n for n, v in self._of_loader.items() if n in options and options[n] != v and n not in wrong]
        return [f"{name} was set anew, by the script or its framework" for name in wrong]

    # Settings of the interpreter

    def _gc_threshold(self) -> None:
        value = self._settings["gc_threshold"]
        gc.set_threshold(value, *gc.get_threshold()[1:])
        self._proofs["gc_threshold"] = lambda: "" if gc.get_threshold()[0] == value else "was set anew by the script"

    def _gc(self) -> None:
        gc.collect()
        gc.freeze()
        if self._settings["gc"] == "freeze":
            self._proofs["gc"] = lambda: "" if gc.get_freeze_count() else "was undone by the script"
            return
        gc.disable()
        self._recorder.at_backward.append(self._collect_seldom)
        self._proofs["gc"] = lambda: "was switched on again by the script" if gc.isenabled() else ""

    def _collect_seldom(self) -> None:
        self._count("backwards")
        if self._counts["backwards"] % COLLECTS_EACH == 0:
            gc.collect()

    def _switch_interval(self) -> None:
        value = self._settings["switch_interval"]
        sys.setswitchinterval(value)
        near = 1e-6
        self._proofs["switch_interval"] = lambda: (
            "" if abs(sys.getswitchinterval() - value) < near else "was set anew by the script"
        )

    # Settings of torch

    def _torch_threads(self, torch: Any, count: int) -> None:
        torch.set_num_threads(count)
        self._force(torch, "set_num_threads", lambda original: lambda _: original(count))
        self._proofs["threads"] = lambda: "" if torch.get_num_threads() == count else "torch took another number"

    def _torch_matmul_precision(self, torch: Any, value: str) -> None:
        torch.set_float32_matmul_precision(value)
        self._force(torch, "set_float32_matmul_precision", lambda original: lambda _: original(value))
        self._proofs["matmul_precision"] = lambda: (
            "" if torch.get_float32_matmul_precision() == value else "was set anew by the script"
        )

    def _torch_cudnn_benchmark(self, torch: Any, value: bool) -> None:
        self._recorder.at_first_batch.append(lambda: setattr(torch.backends.cudnn, "benchmark", value))
        self._proofs["cudnn_benchmark"] = lambda: (
            "" if torch.backends.cudnn.benchmark == value and torch.cuda.is_available() else "nothing runs on cuDNN"
        )

    def _torch_flush_denormal(self, torch: Any, _: str) -> None:
        torch.set_flush_denormal(True)  # threads that this one starts from now on do likewise
        self._force(torch, "set_flush_denormal", lambda original: lambda _: original(True))
        self._proofs["flush_denormal"] = lambda: "" if _flushes() else "this CPU does not flush denormals"

    def _torch_sharing_strategy(self, torch: Any, value: str) -> None:
        mp: Any = torch.multiprocessing
        mp.set_sharing_strategy(value)
        self._proofs["sharing_strategy"] = lambda: (
            "" if mp.get_sharing_strategy() == value else "was set anew by the script"
        )

    def _torch_forkserver_preload(self, torch: Any, value: str) -> None:
        import multiprocessing

        modules = value.split("+")
        multiprocessing.set_forkserver_preload(modules)
        self._proofs["forkserver_preload"] = lambda: (
            "" if self._settings.get("multiprocessing_context") == "forkserver" else "no worker is forked by a server"
        )

    def _torch_anomaly(self, torch: Any, _: str) -> None:
        def off(original: AnyFunction) -> AnyFunction:
            def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
                if enabled:
                    self._count("anomaly")
                original(False, check_nan)

            return set_anomaly_enabled

        self._patches.append(Patch(torch, "set_anomaly_enabled", off))
        self._proofs["anomaly"] = lambda: "" if self._counts.get("anomaly") else "nothing switches it on"

    def _torch_deterministic(self, torch: Any, _: str) -> None:
        self._never_on("deterministic", torch, "use_deterministic_algorithms", False)
        self._never_on("deterministic", torch, "set_deterministic_debug_mode", 0)

    def _torch_non_blocking(self, torch: Any, value: bool) -> None:
        def copied(original: AnyFunction) -> AnyFunction:
            def to(tensor: Any, *args: Any, **kwargs: Any) -> Any:
                if tensor.is_cpu and tensor.is_pinned():
                    self._count("non_blocking")
                    kwargs.setdefault("non_blocking", value)
                return original(tensor, *args, **kwargs)

            return to

        self._patches += [Patch(torch.Tensor, "to", copied), Patch(torch.Tensor, "cuda", copied)]
        self._proofs["non_blocking"] = lambda: "" if self._counts.get("non_blocking") else "no pinned tensor was copied"

    def _torch_zero_grad(self, torch: Any, _: str) -> None:
        def to_none(original: AnyFunction) -> AnyFunction:
            def zero_grad(owner: Any, set_to_none: bool = True) -> Any:
                if not set_to_none:
                    self._count("zero_grad")
                return original(owner, set_to_none=True)

            return zero_grad

        self._patches += [
            Patch(torch.optim.Optimizer, "zero_grad", to_none),
            Patch(torch.nn.Module, "zero_grad", to_none),
        ]
        self._proofs["zero_grad"] = lambda: "" if self._counts.get("zero_grad") else "gradients are set to none already"

    def _torch_foreach(self, torch: Any, value: bool) -> None:
        self._optimizer_option(torch, "foreach", value, {"fused": False} if value else {})

    def _torch_fused(self, torch: Any, value: bool) -> None:
        self._optimizer_option(torch, "fused", value, {"foreach": False} if value else {})

    def _optimizer_option(self, torch: Any, name: str, value: bool, others: Mapping[str, Any]) -> None:
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        changed: set[int] = set()

        def before(optimizer: Any, *_: Any) -> None:
            if id(optimizer) in changed or not all(name in group for group in optimizer.param_groups):
                return
            changed.add(id(optimizer))  # at its first step, when it has no state yet that would not fit
            for group in optimizer.param_groups:
                if group[name] is not value:
                    self._count(name)
                group.update({name: value, **{k: v for k, v in others.items() if k in group}})

        register_optimizer_step_pre_hook(before)
        self._proofs[name] = lambda: "" if self._counts.get(name) else f"no optimizer here has {name} to set"

    def _torch_autocast(self, torch: Any, dtype: str) -> None:
        """From a step's first forward to its backward."""
        from torch.nn.modules.module import register_module_forward_pre_hook

        active: list[Any] = []
        outermost: set[int] = set()
        backwards = [0]

        def at_forward(module: Any, _: Any) -> None:
            if active or not _trains(torch, module):
                return
            device = "cuda" if torch.cuda.is_available() and torch.cuda.is_initialized() else "cpu"
            mode = torch.autocast(device, getattr(torch, dtype))
            mode.__enter__()
            active.append(mode)
            if id(module) not in outermost:
                outermost.add(id(module))
                module.register_forward_pre_hook(at_forward)

        def leave() -> None:
            backwards[0] += 1
            if backwards[0] == _FIND_MODELS:
                of_all.remove()  # which costs each module's call some time
            if active:
                self._count("autocast")
                active.pop().__exit__(None, None, None)

        of_all = register_module_forward_pre_hook(at_forward)
        self._recorder.at_backward.append(leave)
        self._proofs["autocast"] = lambda: "" if self._counts.get("autocast") else "no forward ran under it"

    def _torch_compile(self, torch: Any, mode: str) -> None:
        from torch.nn.modules.module import register_module_forward_pre_hook

        found: list[Any] = []
        backwards = [0]

        def at_forward(module: Any, _: Any) -> None:
            if _trains(torch, module):  # the first outermost one
                of_all.remove()
                found.append(module)

        def compile_it() -> None:
            backwards[0] += 1
            if backwards[0] == _FIND_MODELS and found:  # no hook of all modules is left, which it would compile too
                found[0].forward = torch.compile(found[0].forward, mode=None if mode == "default" else mode)

        of_all = register_module_forward_pre_hook(at_forward)
        self._recorder.at_backward.append(compile_it)
        self._proofs["compile"] = lambda: "" if _compiled_graphs() else _NOT_COMPILED

    def _never_on(self, name: str, owner: Any, attribute: str, off: Any) -> None:
        """`off`: what that function is called with in place of another argument; None: it is not called."""

        def never(original: AnyFunction) -> AnyFunction:
            def switch(*args: Any, **kwargs: Any) -> None:
                mode = args[0] if args else kwargs.get("mode", kwargs.get("debug_mode"))
                if off is None or mode not in (off, "default"):
                    self._count(name)
                if off is not None:
                    original(off)

            return switch

        self._force(owner, attribute, never)
        self._proofs[name] = lambda: "" if self._counts.get(name) else "nothing switches it on"

    def _force(self, owner: Any, attribute: str, make: Callable[[AnyFunction], AnyFunction]) -> None:
        self._patches.append(Patch(owner, attribute, make))

    def _count(self, name: str) -> None:
        self._counts[name] = self._counts.get(name, 0) + 1


def _draw_as_anew(original: AnyFunction) -> AnyFunction:
    """A new iterator draws one number for its workers' seeds; one that is used again does not. Drawing it keeps the
    samples in the order they have without persistent workers, so that the two can be compared."""

    def _reset(iterator: Any, loader: Any, first_iter: bool = False, **more: Any) -> Any:
        if not first_iter:
            import torch

            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
        return original(iterator, loader, first_iter, **more)

    return _reset


def _variable_unproven(name: str, value: str) -> str:
    return "" if os.environ.get(name) == value else "was set anew by the script"


def _flushes() -> bool:
    """Whether this thread's arithmetic does: Python's floats are subject to it too."""
    least = sys.float_info.min
    return least / 2 == 0


def _trains(torch: Any, module: Any) -> bool:
    """A forward that a backward will follow, and not one that a backward calls: of a checkpointed block."""
    in_backward = torch._C._current_graph_task_id() != -1
    return bool(module.training and torch.is_grad_enabled()) and not in_backward


def _compiled_graphs() -> int:
    from torch._dynamo.utils import counters

    return int(counters["stats"].get("unique_graphs", 0))
