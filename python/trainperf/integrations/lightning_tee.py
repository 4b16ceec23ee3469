"""A Lightning profiler that hears what the trainer does, and passes everything on to the user's own.

Lightning brackets each of its actions with `trainer.profiler.profile("[Callback]Mine.on_train_batch_end")`: nothing
else tells where one callback ends and the next begins. Actions that mean nothing to us cost one look into a dictionary.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

_MAX_ACTIONS = 4096  # a name made in the loop, f"step {i}", must not be remembered for each step

# What an action is to us: called when it starts, and when it stops. None: nothing.
Action = tuple[Callable[[], None], Callable[[], None]]


class _Nothing:
    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


_NOTHING = _Nothing()


class _Bracket:
    __slots__ = ("_action", "_inner")

    def __init__(self, action: Action, inner: Any) -> None:
        self._action = action
        self._inner = inner

    def __enter__(self) -> Any:
        value = self._inner.__enter__()
        try:
            self._action[0]()
        except BaseException as error:  # Ctrl-C: there will be no __exit__
            self._inner.__exit__(type(error), error, error.__traceback__)
            raise
        return value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> Any:
        try:
            self._action[1]()
        finally:
            swallowed = self._inner.__exit__(kind, error, traceback)
        return swallowed


class TeeBase:
    """The behaviour; make_tee() adds the base class Profiler of the Lightning package in use."""

    def __init__(self, inner: Any, look_up: Callable[[str], Action | None]) -> None:
        self.inner = inner
        self._look_up = look_up
        self._actions: dict[str, Action | None] = {}
        self._thread = threading.get_ident()
        # Lightning's own that does nothing need not be asked.
        self._silent = type(inner).__name__ == "PassThroughProfiler"

    def _action(self, name: str) -> Action | None:
        try:
            action = self._actions[name]
        except KeyError:
            action = self._look_up(name)
            if len(self._actions) < _MAX_ACTIONS:
                self._actions[name] = action
        return action if action is not None and threading.get_ident() == self._thread else None

    def profile(self, action_name: str) -> Any:
        action = self._action(action_name)
        if action is None:
            return _NOTHING if self._silent else self.inner.profile(action_name)
        return _Bracket(action, _NOTHING if self._silent else self.inner.profile(action_name))

    def start(self, action_name: str) -> None:
        if not self._silent:
            self.inner.start(action_name)
        action = self._action(action_name)
        if action is not None:
            action[0]()

    def stop(self, action_name: str) -> None:
        action = self._action(action_name)
        try:
            if action is not None:
                action[1]()
        finally:
            if not self._silent:
                self.inner.stop(action_name)

    def summary(self) -> Any:
        return self.inner.summary()

    def describe(self) -> Any:
        return self.inner.describe()

    def setup(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner.setup(*args, **kwargs)

    def teardown(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner.teardown(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # half made
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __del__(self) -> None:
        """The base class' would end the profiling of the user's."""

    def __reduce__(self) -> Any:
        """A copy, or what another process gets, is the user's own."""
        return _itself, (self.inner,)


def _itself(inner: Any) -> Any:
    return inner


def make_tee(inner: Any, look_up: Callable[[str], Action | None]) -> Any:
    """A Profiler, as the Lightning package of `inner` knows it, around `inner`."""
    base = next((c for c in type(inner).__mro__ if c.__name__ == "Profiler"), object)
    return type("TrainPerfProfiler", (TeeBase, base), {})(inner, look_up)
