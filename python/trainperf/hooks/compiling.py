"""torch.compile: when Dynamo compiles, and that it leaves our wrappers alone."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

from trainperf.hooks.context import Context
from trainperf.hooks.patch import AnyFunction, Patch, Switch, vanishing

_OURS = ("trainperf.hooks", "trainperf.integrations", "trainperf.watch")  # trainperf.watching too
_vanished: set[Any] = set()  # those of `vanishing` that Dynamo knows of: once in a process, for good


class CompileHook:
    """COMPILE brackets by Dynamo's own callbacks (torch >= 2.4 has them; their arguments differ by version).

    A function of ours that is called between two compiled pieces of the user's code would be compiled as a frame of its
    own, and lose its marks or fail: Dynamo is told to run all of them as they are. A wrapper that Dynamo meets *inside*
    of what it compiles looks at torch.compiler.is_dynamo_compiling(), which is a constant there, and vanishes. For one
    in C it is told of a function that does nothing.
    """

    name = "compile"
    needs = "torch._dynamo"

    def __init__(self) -> None:
        self._switch = Switch()
        self._handler: Any = None
        self._start: Any = None
        self._stop: Any = None
        self._modules_told = 0
        self._asked: Patch | None = None

    def install(self, context: Context) -> None:
        from torch._dynamo import eval_frame
        from torch._dynamo.callback import callback_handler

        begin, end, bracket, switch = context.native.begin, context.native.end, context.native.COMPILE, self._switch
        this_thread = threading.get_ident
        compiling: list[
            int
        ] = []  # the thread that began: Dynamo calls us for the first and the last of nested compiles

        def started(*_: Any) -> None:
            if switch.on:
                compiling.append(this_thread())
                begin(bracket)

        def ended(*_: Any) -> None:
            # A bracket belongs to one thread; when another ends the last compile, the first one's stays open, which the
            # timeline closes at the next mark around it.
            if compiling and compiling.pop() == this_thread():
                end(bracket)

        self._handler, self._start, self._stop = callback_handler, started, ended
        self._register()
        context.ticker.add(self.name, self._register)
        ends, asks = context.ends_of_looks, getattr(eval_frame, "OptimizeContext", None)

        def asked(original: AnyFunction) -> AnyFunction:
            def __init__(optimizes: Any, *args: Any, **kwargs: Any) -> None:
                for end in ends:
                    end()
                original(optimizes, *args, **kwargs)

            return __init__

        if asks is not None:  # torch.compile()
            self._asked = Patch(asks, "__init__", asked)

    def _register(self) -> None:
        """Again and again, since torch._dynamo.reset() forgets the callbacks."""
        if len(sys.modules) != self._modules_told:  # some of them may be ours
            from torch._dynamo.eval_frame import skip_code

            for code in our_codes():
                skip_code(code)
            self._modules_told = len(sys.modules)
        if len(vanishing) != len(_vanished):
            from torch.compiler import substitute_in_graph

            for function in vanishing - _vanished:
                _vanished.add(function)
                substitute_in_graph(function, skip_signature_check=True)(_nothing)
        for callbacks, ours in (
            (self._handler.start_callbacks, self._start),
            (self._handler.end_callbacks, self._stop),
        ):
            if ours not in callbacks:
                callbacks.append(ours)

    def remove(self) -> None:
        self._switch.off()
        if self._asked is not None:
            self._asked.remove()
            self._asked = None
        for name, ours in (("start_callbacks", self._start), ("end_callbacks", self._stop)):
            callbacks: Any = getattr(self._handler, name, ())  # no handler, or a torch that has renamed its lists
            if ours in callbacks:
                callbacks.remove(ours)


def may_compile() -> bool:
    """Whether something was given to torch.compile, by this process: it is compiled, or will be at its first call."""
    backends = getattr(sys.modules.get("torch._dynamo.eval_frame"), "cached_backends", {})
    frames = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {}).get("frames")
    counter = getattr(sys.modules.get("torch._dynamo.convert_frame"), "FRAME_COUNTER", 0)
    return bool(counter or frames) or any(map(callable, tuple(backends.values())))  # of `disable` it is None


def our_codes() -> Iterator[types.CodeType]:
    """Of all our functions that can run within the user's loop, with the functions in them."""
    for name, module in tuple(sys.modules.items()):
        if name.startswith(_OURS):
            for thing in tuple(vars(module).values()):
                if getattr(thing, "__module__", None) == name:
                    for each in vars(thing).values() if isinstance(thing, type) else (thing,):
                        yield from _codes(getattr(each, "fget", getattr(each, "__func__", each)))


def _codes(function: Any) -> Iterator[types.CodeType]:
    within = getattr(function, "__wrapped__", None)  # of one with functools.cache
    left = [getattr(each, "__code__", None) for each in (function, within)]
    while left:
        code = left.pop()
        if isinstance(code, types.CodeType):
            yield code
            left += code.co_consts


def _nothing(optimizer: Any, args: Any, kwargs: Any) -> None:
    return None
