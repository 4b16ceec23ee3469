"""Optimizer.step, by torch's own global hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainperf.hooks.context import Context
from trainperf.hooks.describe import describe_optimizer
from trainperf.hooks.patch import AnyFunction, Switch, vanishing
from trainperf.watching.phases import PHASES

if TYPE_CHECKING:
    from trainperf._native import BracketFunction
    from trainperf.hooks.core import Native

_FORWARD = PHASES.index("forward")

# The hooks in C, made once and used again: Dynamo cannot be made to forget what it was told of them. Not given back
# while a watch has them.
_free: list[BracketFunction] = []
_made = False


class OptimizerHook:
    name = "optimizer"
    needs = "torch"

    def __init__(self) -> None:
        self._switch = Switch()
        self._handles: list[Any] = []
        self._fast: BracketFunction | None = None

    def install(self, context: Context) -> None:
        import torch
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        begin, end, bracket = context.native.begin, context.native.end, context.native.OPTIMIZER
        begin_phase, end_phase = context.native.begin_phase, context.native.end_phase
        known, id_of, name, switch = context.objects.known, context.objects.id_of, self.name, self._switch
        between = context.between
        is_compiling = torch.compiler.is_dynamo_compiling
        # Before 2.6 torch cannot be told what to compile in their place.
        fast = self._fast = (
            _take(context.native) if between is None and hasattr(torch.compiler, "substitute_in_graph") else None
        )

        def marked(closure: AnyFunction) -> AnyFunction:
            """What the optimizer did since the closure before was its own work, and not this one's forward."""

            def marked_closure() -> Any:
                if switch.on:
                    begin_phase(_FORWARD)
                    end_phase(_FORWARD)
                return closure()

            return marked_closure

        # torch calls no hook when a step raises: the bracket that was left open is the timeline's to close.
        def before(optimizer: Any, args: Any, kwargs: Any) -> Any:
            if is_compiling() or not switch.on:
                return None
            try:
                entry = known(id(optimizer))
                if entry is None:
                    number = id_of(optimizer, "optimizer", lambda: describe_optimizer(optimizer))
                else:
                    number = entry[1]
                begin(bracket, number)
                if isinstance(optimizer, torch.optim.LBFGS):
                    return _with_closure(args, kwargs, marked)
                # Its next step comes here no more. Asked again: the watch may have ended, and another have `fast`.
                if fast is not None and switch.on:
                    fast.know(optimizer, number)
            except Exception as error:
                switch.off()
                context.fail(name, error)
            return None

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            if not is_compiling() and switch.on:
                end(bracket)
                if between is not None:
                    between.at_optimizer_end()

        hooks: tuple[Any, Any] = (before, after)
        if fast is not None:
            context.objects.gone.append(fast.forget)
            fast.switch_on(before, begin, end)
            switch.turns_off(fast)
            hooks = (fast.before, fast.after)
        self._handles.append(register_optimizer_step_pre_hook(hooks[0]))
        self._handles.append(register_optimizer_step_post_hook(hooks[1]))

    def remove(self) -> None:
        self._switch.off()
        while self._handles:
            self._handles[-1].remove()
            self._handles.pop()
        fast, self._fast = self._fast, None
        if fast is not None:
            _free.append(fast)


def _with_closure(
    args: tuple[Any, ...], kwargs: dict[str, Any], wrap: Callable[[AnyFunction], AnyFunction]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments of step(closure), which LBFGS calls several times, with its closure wrapped. None: as they are."""
    if len(args) == 2 and callable(args[1]):
        return (args[0], wrap(args[1])), kwargs
    if callable(kwargs.get("closure")):
        return args, {**kwargs, "closure": wrap(kwargs["closure"])}
    return None


def _take(native: Native) -> BracketFunction | None:
    """None: another watch has it."""
    global _made
    if not _made:
        _made = True
        functions = native.step_functions()
        vanishing.update((functions.before, functions.after))
        _free.append(functions)
    return _free.pop() if _free else None
