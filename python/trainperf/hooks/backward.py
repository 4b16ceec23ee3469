"""torch.autograd.backward: what closes the forward, and a step is known by; or grad() where there is no backward."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from trainperf.hooks.base import PatchHook
from trainperf.hooks.context import Context
from trainperf.hooks.patch import AnyFunction, Patch


class BackwardHook(PatchHook):
    name = "backward"
    needs = "torch"

    def __init__(self) -> None:
        super().__init__()
        self._engine: Patch | None = None  # until the first backward()
        self._engine_on = True

    def install(self, context: Context) -> None:
        import torch

        self.patch(torch.autograd, "backward", lambda original: self._wrap(original, context))
        # What both backward() and grad() call, by whatever name the program knows grad().
        if callable(vars(torch.autograd).get("_engine_run_backward")):
            self.patch(torch.autograd, "_engine_run_backward", lambda original: self._wrap_engine(original, context))
            self._engine = self._patches[-1]

    def _no_engine(self) -> None:
        """The loop has backward(): what calls grad() besides is a penalty, a force, an inner loop, and no step."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.remove()
            self._engine_on = False

    def _wrap_engine(self, original: AnyFunction, context: Context) -> AnyFunction:
        """grad(loss, parameters), until the first backward(): where a program trains by it, it is its backward."""
        import torch

        begin, end, bracket, switch = context.native.begin, context.native.end, context.native.BACKWARD, self.switch
        parameter, is_compiling = torch.nn.Parameter, torch.compiler.is_dynamo_compiling
        graph_task = getattr(torch._C, "_current_graph_task_id", lambda: -1)
        ticker, clock = context.ticker, time.monotonic

        # (outputs, grad_outputs, retain_graph, create_graph, inputs, ..., accumulate_grad: whether it is backward()'s)
        def run(*args: Any, **kwargs: Any) -> Any:
            if (
                not self._engine_on
                or is_compiling()
                or not switch.on
                or kwargs.get("accumulate_grad", True)
                or len(args) < 5
                or args[3]  # create_graph: this gradient is a part of what is trained on
                or not any(isinstance(tensor, parameter) for tensor in args[4])
                or graph_task() != -1
                or _is_tracing()
            ):
                return original(*args, **kwargs)
            begin(bracket)
            try:
                return original(*args, **kwargs)
            finally:
                end(bracket)
                if clock() >= ticker.due:
                    ticker.tick()

        return run

    def _wrap(self, original: AnyFunction, context: Context) -> AnyFunction:
        import torch

        # -1 outside of backward. One inside of another (reentrant checkpointing) is no second one, and would make a
        # device's autograd thread look like a step thread. (A tensor subclass comes back to us too, through
        # __torch_function__: brackets nest, and the timeline counts the outermost.)
        graph_task = getattr(torch._C, "_current_graph_task_id", lambda: -1)
        native, tick = context.native, context.ticker.tick_if_due
        backward = native.backward_function(
            original, self._no_engine, graph_task, tick, native.begin, native.end, _graph_task_address(graph_task)
        )
        self.switch.turns_off(backward)
        return backward


def _graph_task_address(graph_task: Callable[[], int]) -> int:
    """Of the function in torch's library that `graph_task` calls; 0: none of that name, or one that says otherwise."""
    import ctypes

    import torch

    try:
        function = ctypes.CDLL(torch._C.__file__)._ZN5torch8autograd25get_current_graph_task_idEv
        if function() != graph_task():
            return 0
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    except (AttributeError, OSError, TypeError):
        return 0


def _is_tracing() -> bool:
    """torch.compile takes gradients of stand-ins for the parameters while it compiles."""
    context = getattr(sys.modules.get("torch._guards"), "TracingContext", None)
    return context is not None and context.try_get() is not None
