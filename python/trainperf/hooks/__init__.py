"""The hooks of a watch: all put in together, taken out together in reverse order.

hooks = Hooks(_native, session)
hooks.install()      # never raises: what cannot be hooked is noted in the run
hooks.remove()       # nothing of ours is left
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainperf.hooks.affinity import AffinityHook
from trainperf.hooks.backward import BackwardHook
from trainperf.hooks.base import Hook
from trainperf.hooks.between import Between
from trainperf.hooks.checkpoint import CheckpointHook, DistributedCheckpointHook
from trainperf.hooks.children import ChildNamesHook
from trainperf.hooks.compiling import CompileHook
from trainperf.hooks.context import Context
from trainperf.hooks.cuda import CudaHook
from trainperf.hooks.dataloader import DataLoaderHook, StatefulLoaderHook
from trainperf.hooks.denormals import DenormalsHook
from trainperf.hooks.device import DeviceHook
from trainperf.hooks.device_memory import DeviceMemoryHook
from trainperf.hooks.eval_mode import EvalModeHook
from trainperf.hooks.fewer_threads import FewerThreadsHook
from trainperf.hooks.gc_pauses import GcHook
from trainperf.hooks.huggingface import (
    AccelerateLoaderHook,
    AcceleratorHook,
    PretrainedModelHook,
    SafetensorsHook,
    TransformersHook,
)
from trainperf.hooks.kept_memory import KeptMemoryHook
from trainperf.hooks.late import LateImports
from trainperf.hooks.loggers import LoggerHook, MlflowHook, TensorBoardHook, TensorBoardXHook, WandbHook
from trainperf.hooks.module_calls import ModuleCallsHook
from trainperf.hooks.optimizer import OptimizerHook
from trainperf.hooks.profiler import CuptiMonitorHook, ProfilerHook
from trainperf.hooks.slow_modes import SlowModesHook
from trainperf.hooks.thread_cpu import ThreadCpuHook
from trainperf.hooks.threads import ThreadNamesHook
from trainperf.hooks.worker_memory import WorkerMemoryHook

if TYPE_CHECKING:
    from trainperf.hooks.core import Native, Session

__all__ = ["Context", "Hook", "Hooks", "all_hooks"]


def all_hooks() -> list[Hook]:
    loaders = DataLoaderHook()
    return [
        ThreadCpuHook(),
        ThreadNamesHook(),
        ChildNamesHook(),
        AffinityHook(),
        DeviceHook(),
        CudaHook(),
        ProfilerHook(),  # after CudaHook
        CuptiMonitorHook(),
        GcHook(),
        LoggerHook(),
        TensorBoardHook(),
        TensorBoardXHook(),
        WandbHook(),
        MlflowHook(),
        loaders,
        StatefulLoaderHook(loaders),
        CheckpointHook(),
        DistributedCheckpointHook(),
        SafetensorsHook(),
        PretrainedModelHook(),
        TransformersHook(),
        AcceleratorHook(),
        AccelerateLoaderHook(),
        EvalModeHook(),
        OptimizerHook(),
        BackwardHook(),
        SlowModesHook(),
        DeviceMemoryHook(),
        KeptMemoryHook(),  # after DeviceMemoryHook
        WorkerMemoryHook(),
        ModuleCallsHook(),
        DenormalsHook(),
        FewerThreadsHook(),
        CompileHook(),
    ]


class Hooks:
    """Thread-safe: a module may be imported on any thread."""

    def __init__(
        self,
        native: Native,
        session: Session,
        hooks: Sequence[Hook] | None = None,
        *,
        between: Between | None = None,
        cuda: bool = False,
        cupti_path: str = "",
    ) -> None:
        self.context = Context(native, session, between, cuda=cuda, cupti_path=cupti_path)
        if between is not None:
            self.context.ticker.add("on_flag", between.at_tick)
        self._waiting = list(all_hooks() if hooks is None else hooks)
        self._installed: list[Hook] = []
        self._late: LateImports | None = None
        self._lock = threading.RLock()
        self._removed = False

    def install(self) -> None:
        for module in ["", *dict.fromkeys(hook.needs for hook in self._waiting if hook.needs in sys.modules)]:
            self._install_for(module)
        self._late = LateImports(list({hook.needs for hook in self._waiting}), self._install_for)
        self._late.install()

    def _install_for(self, module: str) -> None:
        # Not under the lock: install() imports, and the thread that holds that import's lock may be waiting for ours.
        with self._lock:
            ready = [hook for hook in self._waiting if hook.needs == module]
            self._waiting = [hook for hook in self._waiting if hook.needs != module]
        for hook in ready:
            try:
                hook.install(self.context)
            except Exception as error:
                self._remove_failed(hook, error)
                continue
            except BaseException:  # Ctrl-C: remove() takes it out, in whole or in part
                with self._lock:
                    self._installed.append(hook)
                raise
            with self._lock:
                if not self._removed:
                    self._installed.append(hook)
                    continue
            hook.remove()

    def _remove_failed(self, hook: Hook, why: Exception) -> None:
        try:
            hook.remove()
        except Exception as error:
            self.context.session.note(f"the {hook.name} hook may be left in part: {type(error).__name__}: {error}")
        self.context.fail(hook.name, why)

    def remove(self) -> None:
        """Takes out every hook whatever one of them raises (Ctrl-C too), then raises the first of these errors.

        Interrupted outside of a hook it may be called again, and goes on.
        """
        first: BaseException | None = None
        with self._lock:
            self._removed = True
            self._waiting = []
            late: list[LateImports] = [] if self._late is None else [self._late]
            for things in (late, self._installed):
                while things:
                    error = _remove(things[-1])
                    things.pop()
                    first = error if first is None else first
        if first is not None:
            raise first

    def remove_in_child(self) -> None:
        """In a forked child, where a thread that is no more may have held a lock."""
        self._lock = threading.RLock()
        self.context.objects.after_fork_in_child()
        self.remove()


def _remove(thing: Hook | LateImports) -> BaseException | None:
    """Twice where the first was interrupted in the middle: a hook's remove() goes on where it was left."""
    first: BaseException | None = None
    for _ in range(2):
        try:
            thing.remove()
            break
        except BaseException as error:
            first = error if first is None else first
    return first
