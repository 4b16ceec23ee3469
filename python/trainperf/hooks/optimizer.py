"""Optimizer.step, by torch's own global hooks."""

from __future__ import annotations

import threading
import time
from typing import Any

from trainperf.hooks.context import Context
from trainperf.hooks.patch import Switch, remember


class OptimizerHook:
    name = "optimizer"
    needs = "torch"

    def __init__(self) -> None:
        self._switch = Switch()
        self._handles: list[Any] = []

    def install(self, context: Context) -> None:
        import torch
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        begin, end, bracket = context.native.begin, context.native.end, context.native.OPTIMIZER
        id_of, name, switch = context.objects.id_of, self.name, self._switch
        ticker, clock, this_thread = context.ticker, time.monotonic, threading.get_ident
        is_compiling = torch.compiler.is_dynamo_compiling
        # The optimizer whose step has begun, by thread. torch calls no hook when a step raises, so the bracket that was
        # left open is closed when the same step begins again.
        open_steps: dict[int, int] = {}

        def before(optimizer: Any, args: Any, kwargs: Any) -> None:
            if is_compiling() or not switch.on:
                return
            try:
                number = id_of(optimizer, "optimizer", lambda: {"class": type(optimizer).__qualname__})
                thread = this_thread()
                if open_steps.get(thread) == number:
                    end(bracket)
                open_steps[thread] = number
                begin(bracket, number)
            except Exception as error:
                switch.on = False
                context.fail(name, error)

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            if is_compiling() or not switch.on:
                return
            end(bracket)
            open_steps.pop(this_thread(), None)
            if clock() >= ticker.due:
                ticker.tick()

        remember(before)
        remember(after)
        self._handles.append(register_optimizer_step_pre_hook(before))
        self._handles.append(register_optimizer_step_post_hook(after))

    def remove(self) -> None:
        self._switch.on = False
        while self._handles:
            self._handles.pop().remove()
