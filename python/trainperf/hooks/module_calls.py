"""Which calls of modules a backward can go through: in a few steps, once each."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from trainperf.hooks.compiling import may_compile
from trainperf.hooks.context import Context
from trainperf.hooks.describe import describe_ddp

_BEFORE_S = (0.1, 1.0, 5.0)  # each look, from the first backward or the end of the look before
_BACKWARDS = 2  # of a look, at least: two models may train in turn
_TICK_S, _LOOK_S = 0.02, 0.2  # of a look at short steps
_OWN_S = 0.0005  # then such a look ends as well
_MOST_CALLS = 3000  # of a look, of modules of any size
_MOST_CALLERS = 64
_MOST_FRAMES = 12
_MOST_NAMES = 8
_MOST_VALUES = 32  # of a collection of tensors
_CALLS = {"_call_impl", "_wrapped_call_impl", "_slow_forward", "inner"}

_Callers = tuple[tuple[str, str, int], ...]


class ModuleCallsHook:
    """PyTorch's global forward hook, for the time of a look. What it sees is written by the lines that call the
    outermost modules: whether what these return has a gradient, and how many of their parameters are trained.

    Not in a program that gave something to torch.compile: Dynamo would compile it anew for the hook.
    """

    name = "module_calls"
    needs = "torch"

    def __init__(self) -> None:
        self._context: Context | None = None
        self._handle: Any = None
        self._looks: Iterator[float] = iter(())
        self._own_s = 0.0  # in a look
        self._calls = 0
        self._thread = 0
        self._in_backward: Callable[[], bool] = bool
        self._seen: dict[tuple[_Callers, CodeType | None], dict[str, Any]] = {}

    def install(self, context: Context) -> None:
        self._context = context
        self._looks = self._look_now_and_then()
        context.ticker.add(self.name, self._tick)
        context.ends_of_looks.append(self._stop)

    def remove(self) -> None:
        if self._context is not None:
            self._context.ticker.discard(self.name)
        self._stop()

    def _stop(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.remove()

    def _tick(self) -> float | None:
        return next(self._looks, None)

    def _look_now_and_then(self) -> Iterator[float]:
        """Yields how long it waits for the next tick."""
        assert self._context is not None
        for before_s in _BEFORE_S:
            yield before_s
            if may_compile():
                continue
            self._look()
            ends = time.monotonic() + _LOOK_S
            for _ in range(_BACKWARDS):
                yield _TICK_S
            while self._own_s < _OWN_S and time.monotonic() < ends:
                yield _TICK_S
            self._stop()
            if self._seen:
                self._context.session.set_meta("module_calls", json.dumps({"calls": list(self._seen.values())}))
        self._context.ticker.discard(self.name)

    def _look(self) -> None:
        import torch
        from torch.nn.modules.module import register_module_forward_hook

        assert self._context is not None
        self._own_s, self._calls, self._thread = 0.0, 0, threading.get_ident()
        graph_task = getattr(torch._C, "_current_graph_task_id", lambda: -1)
        self._in_backward = lambda: graph_task() != -1  # a forward that is run again
        is_compiling = torch.compiler.is_dynamo_compiling

        def called(module: Any, args: Any, output: Any) -> None:
            if not is_compiling():  # a constant there, so that Dynamo leaves the rest out
                self._called(module, args, output)

        self._handle = register_module_forward_hook(called)

    def _called(self, module: Any, args: Any, output: Any) -> None:
        if threading.get_ident() != self._thread or self._calls >= _MOST_CALLS or self._in_backward():
            return
        self._calls += 1
        began = time.perf_counter()
        try:
            callers = _callers(sys._getframe(2))
            if callers is None or len(self._seen) >= _MOST_CALLERS:
                return
            # A global hook is not given keyword arguments.
            self._note(callers, module, (args, sys._getframe(2).f_locals.get("kwargs")), output)
        except Exception as error:
            self.remove()
            assert self._context is not None
            self._context.fail(self.name, error)
        finally:
            self._own_s += time.perf_counter() - began

    def _note(self, callers: _Callers, module: Any, args: Any, output: Any) -> None:
        forward = getattr(getattr(type(module), "forward", None), "__code__", None)
        key = (callers, forward)
        call = self._seen.get(key)
        if call is None:
            if type(module).__name__ == "DistributedDataParallel" and self._context is not None:
                self._context.session.set_meta("ddp", json.dumps(describe_ddp(module)))
            trained = [p.requires_grad for p in module.parameters()]
            call = self._seen[key] = {
                "callers": callers,
                "forward": [forward.co_filename, qualified(forward)] if forward is not None else [],
                "training": [0, 0],  # calls that return tensors, and those with one that has a gradient
                "evaluating": [0, 0],
                "given": [0, 0],  # calls with tensors, and those with one that has a gradient
                "parameters": len(trained),
                "trained": sum(trained),
                "frozen": [name for name, child in module.named_children() if _is_frozen(child)][:_MOST_NAMES],
            }
        for of, value in (("training" if module.training else "evaluating", output), ("given", args)):
            gradients = [t.requires_grad for t in tensors_in(value)]
            call[of][0] += bool(gradients)
            call[of][1] += any(gradients)


def qualified(code: CodeType) -> str:
    """The name that a sample of it has: before Python 3.11 without its class."""
    return getattr(code, "co_qualname", code.co_name)


def _is_frozen(module: Any) -> bool:
    parameters = list(module.parameters())
    return bool(parameters) and not any(p.requires_grad for p in parameters)


def _callers(frame: FrameType | None) -> _Callers | None:
    """Who called the module whose hook runs in `frame`; None: another module did, directly or not."""
    while frame is not None and _calls_module(frame.f_code):
        frame = frame.f_back
    found: list[tuple[str, str, int]] = []
    while frame is not None:
        code = frame.f_code
        if _calls_module(code):
            return None
        if len(found) < _MOST_FRAMES:
            found.append((code.co_filename, qualified(code), frame.f_lineno))
        frame = frame.f_back
    return tuple(found)


def _calls_module(code: CodeType) -> bool:
    return code.co_name in _CALLS and code.co_filename.endswith("module.py") and "torch" in code.co_filename


def tensors_in(value: Any, depth: int = 4) -> Iterator[Any]:
    """Those in a module's arguments or result, a few levels deep."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif depth and not isinstance(value, torch.nn.Module):
        if isinstance(value, dict):
            inner = list(value.values())
        elif isinstance(value, list | tuple):
            inner = list(value)
        else:
            inner = list(getattr(value, "__dict__", {}).values())
        for of in inner[:_MOST_VALUES]:
            yield from tensors_in(of, depth - 1)
