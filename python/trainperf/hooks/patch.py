"""Replacing a function for a while, and leaving no trace of it."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainperf._native import BracketFunction

AnyFunction = Callable[..., Any]
_MISSING = object()

# Functions in C that Dynamo may meet in what it compiles, where they are to vanish (compiling.py).
vanishing: set[types.BuiltinFunctionType] = set()


class Switch:
    """Whether a hook's wrappers report, or only pass through (it was removed under someone else's patch, or failed)."""

    __slots__ = ("_functions", "on")

    def __init__(self) -> None:
        self.on = True
        self._functions: list[BracketFunction] = []  # wrappers in C, which do not look at us

    def turns_off(self, function: BracketFunction) -> None:
        self._functions.append(function)

    def off(self) -> None:
        self.on = False
        for function in self._functions:
            function.switch_off()


class Patch:
    """`owner.attribute` is replaced by `make(original)` until remove(), which takes out only what is still ours."""

    __slots__ = ("_attribute", "_inherited", "_owner", "_put", "original", "wrapper")

    def __init__(self, owner: Any, attribute: str, make: Callable[[AnyFunction], AnyFunction]) -> None:
        found = vars(owner).get(attribute, _MISSING)
        self._inherited = found is _MISSING
        self.original: Any = getattr(owner, attribute) if self._inherited else found
        if not callable(self.original) or isinstance(inspect.getattr_static(owner, attribute, None), staticmethod):
            raise TypeError(f"{owner!r}.{attribute} is not a plain function")
        self._owner = owner
        self._attribute = attribute
        made = make(self.original)
        self.wrapper = functools.wraps(self.original)(made)
        as_method = getattr(self.wrapper, "as_method", None) if isinstance(owner, type) else None  # a BracketFunction
        self._put = self.wrapper if as_method is None else as_method()
        setattr(owner, attribute, self._put)

    def remove(self) -> bool:
        """False when somebody has put their own over ours: theirs stays, and ours below it only passes through."""
        if vars(self._owner).get(self._attribute) is not self._put:
            return False
        if self._inherited:
            delattr(self._owner, self._attribute)
        else:
            setattr(self._owner, self._attribute, self.original)
        return True
