"""torch.autograd.backward: what closes the forward, and what a step is known by."""

from __future__ import annotations

import time
from typing import Any

from trainperf.hooks.base import PatchHook
from trainperf.hooks.context import Context
from trainperf.hooks.patch import AnyFunction


class BackwardHook(PatchHook):
    name = "backward"
    needs = "torch"

    def install(self, context: Context) -> None:
        import torch

        self.patch(torch.autograd, "backward", lambda original: self._wrap(original, context))

    def _wrap(self, original: AnyFunction, context: Context) -> AnyFunction:
        import torch

        begin, end, bracket = context.native.begin, context.native.end, context.native.BACKWARD
        switch, ticker, clock = self.switch, context.ticker, time.monotonic
        is_compiling = torch.compiler.is_dynamo_compiling
        # -1 outside of backward. One inside of another (reentrant checkpointing) is no second one, and would make a
        # device's autograd thread look like a step thread. (A tensor subclass comes back to us too, through
        # __torch_function__: brackets nest, and the timeline counts the outermost.)
        graph_task = getattr(torch._C, "_current_graph_task_id", lambda: -1)

        def backward(*args: Any, **kwargs: Any) -> Any:
            if is_compiling() or not switch.on or graph_task() != -1:
                return original(*args, **kwargs)
            begin(bracket)
            try:
                return original(*args, **kwargs)
            finally:
                end(bracket)
                if clock() >= ticker.due:
                    ticker.tick()

        return backward
