"""A Lightning profiler that hears what the trainer does, and passes everything on to the user's own.

Lightning brackets each of its actions with `trainer.profiler.profile("[Callback]Mine.on_train_batch_end")`: nothing
else tells where one callback ends and the next begins. There are some 30 of them a step, of which few mean anything to
us: where the user has no profiler, asking for one is a look into a dictionary, and using it no Python.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainperf._native import ActionBracket

_MAX_ACTIONS = 4096  # a name made in the loop, f"step {i}", must not be remembered for each step

# What an action is to us: called when it starts, and when it stops. None: nothing.
Action = tuple[Callable[[], object], Callable[[], object]]


class _HeardByBoth(ContextDecorator):
    """One use of an action that the user's profiler listens to as well."""

    def __init__(self, action: Action, inner: Any) -> None:
        self._start, self._stop = action
        self._inner = inner

    def __enter__(self) -> Any:
        value = self._inner.__enter__()
        try:
            self._start()
        except BaseException as error:  # Ctrl-C: there will be no __exit__
            self._inner.__exit__(type(error), error, error.__traceback__)
            raise
        return value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> Any:
        try:
            self._stop()
        finally:
            swallowed = self._inner.__exit__(kind, error, traceback)
        return swallowed


class _Brackets(dict[str, "ActionBracket"]):
    """What profile() returns, by name; what is not there yet is made when it is asked for."""

    def __init__(self, tee: TeeBase, make: Callable[..., ActionBracket]) -> None:
        self._tee = tee
        self._make = make

    def __missing__(self, name: str) -> ActionBracket:
        action = self._tee.action(name)
        bracket = self._make(name) if action is None else self._make(name, *action, self._tee.thread)
        if len(self) < _MAX_ACTIONS:
            self[name] = bracket
        return bracket


class TeeBase:
    """The behaviour; make_tee() adds the base class, a Profiler of the Lightning package in use."""

    def __init__(self, inner: Any, look_up: Callable[[str], Action | None]) -> None:
        self.inner = inner
        self.thread = get_ident()
        self._look_up = look_up
        self._actions: dict[str, Action | None] = {}

    def action(self, name: str) -> Action | None:
        try:
            return self._actions[name]
        except KeyError:
            action = self._look_up(name)
            if len(self._actions) < _MAX_ACTIONS:
                self._actions[name] = action
            return action

    def forget(self, name: str) -> None:
        """From now on the action means nothing to us."""
        self._actions[name] = None

    def profile(self, action_name: str) -> Any:
        action = self.action(action_name)
        inner = self.inner.profile(action_name)
        return inner if action is None or get_ident() != self.thread else _HeardByBoth(action, inner)

    def start(self, action_name: str) -> None:
        self.inner.start(action_name)
        action = self.action(action_name)
        if action is not None and get_ident() == self.thread:
            action[0]()

    def stop(self, action_name: str) -> None:
        action = self.action(action_name)
        try:
            if action is not None and get_ident() == self.thread:
                action[1]()
        finally:
            self.inner.stop(action_name)

    def summary(self) -> Any:
        return self.inner.summary()

    def describe(self) -> Any:
        return self.inner.describe()

    def setup(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner.setup(*args, **kwargs)

    def teardown(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner.teardown(*args, **kwargs)

    def __del__(self) -> None:
        """The base class' would end the profiling of the user's."""

    def __reduce__(self) -> Any:
        """A copy, or what another process gets, is the user's own."""
        return _itself, (self.inner,)


class _OverUsers(TeeBase):
    """Around a profiler of the user's, whose attributes it has."""

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # half made
            raise AttributeError(name)
        return getattr(self.inner, name)


class _OverNone(TeeBase):
    """In the place of Lightning's own that does nothing, which need not be asked. No __getattr__: a class that has one
    makes each look at an attribute three, and there are 30 a step."""

    def __init__(self, inner: Any, look_up: Callable[[str], Action | None]) -> None:
        from trainperf import _native as native

        super().__init__(inner, look_up)
        vars(self).update({**vars(inner), **vars(self)})
        self._brackets = _Brackets(self, native.action_bracket)
        # Of the instance: found before any class is asked.
        vars(self)["profile"] = native.action_lookup(self._brackets)

    def forget(self, name: str) -> None:
        super().forget(name)
        self._brackets.pop(name, None)


def _itself(inner: Any) -> Any:
    return inner


def make_tee(inner: Any, look_up: Callable[[str], Action | None]) -> Any:
    """A Profiler, as the Lightning package of `inner` knows it, around `inner`."""
    kind = type(inner)
    if kind.__name__ == "PassThroughProfiler":
        return type("TrainPerfProfiler", (_OverNone, kind), {})(inner, look_up)
    base = next((c for c in kind.__mro__ if c.__name__ == "Profiler"), object)
    return type("TrainPerfProfiler", (_OverUsers, base), {})(inner, look_up)
