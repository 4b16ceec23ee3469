"""Optimizer.step, by torch's own global hooks."""

from __future__ import annotations

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
        known, id_of, name, switch = context.objects.known, context.objects.id_of, self.name, self._switch
        between = context.between
        is_compiling = torch.compiler.is_dynamo_compiling

        # torch calls no hook when a step raises: the bracket that was left open is the timeline's to close.
        def before(optimizer: Any, args: Any, kwargs: Any) -> None:
            if is_compiling() or not switch.on:
                return
            entry = known(id(optimizer))
            if entry is not None:
                begin(bracket, entry[1])
                return
            try:
                begin(bracket, id_of(optimizer, "optimizer", lambda: {"class": type(optimizer).__qualname__}))
            except Exception as error:
                switch.on = False
                context.fail(name, error)

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            if not is_compiling() and switch.on:
                end(bracket)
                if between is not None:
                    between.at_optimizer_end()

        remember(before)
        remember(after)
        self._handles.append(register_optimizer_step_pre_hook(before))
        self._handles.append(register_optimizer_step_post_hook(after))

    def remove(self) -> None:
        self._switch.on = False
        while self._handles:
            self._handles[-1].remove()
            self._handles.pop()
