"""torch's own users of CUPTI: it has one owner at a time, and they take it without asking.

So the tracer lets go before they begin, and comes back when they have ended; in between the run says that the device
was not read. Patched are functions that start and stop a profiler; nothing that Dynamo traces.
"""

from __future__ import annotations

from typing import Any, ClassVar

from trainperf.hooks.base import PatchHook
from trainperf.hooks.context import Context
from trainperf.hooks.cuda import begin_tracing, monitor_runs, neighbour_runs, profiler_runs
from trainperf.hooks.patch import AnyFunction


class ProfilerHook(PatchHook):
    """torch.profiler, by the three functions of torch.autograd.profiler that every profiler of torch goes through."""

    name: ClassVar[str] = "torch_profiler"
    needs: ClassVar[str] = "torch"  # after CudaHook, in the order of all_hooks()

    def __init__(self) -> None:
        super().__init__()
        self._away = False  # we have let go

    def install(self, context: Context) -> None:
        if not _may_trace(context):
            return  # no driver, or another tool has CUPTI: nothing to let go of
        from torch.autograd import profiler

        self._context = context
        for function in ("_prepare_profiler", "_enable_profiler"):
            if callable(getattr(profiler, function, None)):
                self.patch(profiler, function, self._begins)
        self.patch(profiler, "_disable_profiler", self._ends)

    def _begins(self, original: AnyFunction) -> AnyFunction:
        def begin(*args: Any, **kwargs: Any) -> Any:
            if not self.switch.on or self._away or not _wants_device(args, kwargs):
                return original(*args, **kwargs)
            try:
                self._away = True
                self._context.session.pause_cuda()
                return original(*args, **kwargs)
            except BaseException:
                self._come_back()  # it did not begin
                raise

        return begin

    def _ends(self, original: AnyFunction) -> AnyFunction:
        def end(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            finally:
                if self.switch.on:
                    self._come_back()

        return end

    def _come_back(self) -> None:
        if self._away:
            self._away = False
            self._context.session.resume_cuda()
        elif not self._context.cuda_traced and not monitor_runs():  # the profiler that began before the watch
            begin_tracing(self._context)


def _may_trace(context: Context) -> bool:
    """It does, or will, once the neighbour that began before the watch has ended."""
    return context.cuda_traced or (context.cuda and neighbour_runs())


def _wants_device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether one of the activities, the second argument, goes through CUPTI; yes where that cannot be known."""
    activities = kwargs.get("activities", args[1] if len(args) > 1 else None)
    try:
        return any(getattr(activity, "name", "CUDA") == "CUDA" for activity in activities)  # type: ignore[union-attr]
    except TypeError:
        return True


class CuptiMonitorHook(PatchHook):
    """torch's own always-on monitor of CUPTI (torch >= 2.13), from its start to its stop."""

    name: ClassVar[str] = "torch_cupti_monitor"
    needs: ClassVar[str] = "torch.profiler._cupti_monitor"

    def install(self, context: Context) -> None:
        if not _may_trace(context):
            return
        from torch.profiler import _cupti_monitor

        session, switch, running = context.session, self.switch, set[int]()

        def leave(monitor: Any) -> None:
            if not switch.on:
                return
            if id(monitor) in running:
                running.discard(id(monitor))
                session.resume_cuda()
            elif not context.cuda_traced and not profiler_runs():  # the monitor that began before the watch
                begin_tracing(context)

        def starts(original: AnyFunction) -> AnyFunction:
            def start(monitor: Any, *args: Any, **kwargs: Any) -> Any:
                try:
                    if switch.on and id(monitor) not in running:
                        running.add(id(monitor))
                        session.pause_cuda()
                    return original(monitor, *args, **kwargs)
                except BaseException:
                    leave(monitor)
                    raise

            return start

        def stops(original: AnyFunction) -> AnyFunction:
            def stop(monitor: Any, *args: Any, **kwargs: Any) -> Any:
                try:
                    return original(monitor, *args, **kwargs)
                finally:
                    leave(monitor)

            return stop

        self.patch(_cupti_monitor.CuptiMonitor, "start", starts)
        self.patch(_cupti_monitor.CuptiMonitor, "stop", stops)
