"""Methods replaced on objects themselves, not on their class, until they are put back."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any


class OnObjects:
    """replace() as often as there are methods, then remove()."""

    def __init__(self) -> None:
        self._put: list[tuple[Any, str, types.MethodType]] = []

    def replace(self, owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> str:
        """Returns why it could not be; "": it is done.

        `make` is given the method as a function of the object and its arguments, and returns the like: what a deepcopy
        of the object gets is the copy's, and what a pickle of it gets is the class' own.
        """
        original = getattr(owner, name, None)
        if original is None:
            return f"there is no {name}()"
        if name in getattr(owner, "__dict__", {name: None}):
            return "it has been replaced"
        if not isinstance(original, types.MethodType) or original.__self__ is not owner:
            return f"{name} is not a plain method"
        function: Any = original.__func__
        wrapper = functools.wraps(function)(make(function))
        wrapper.__name__ = name  # by which a method is pickled: a decorated one may have another
        ours = types.MethodType(wrapper, owner)
        self._put.append((owner, name, ours))  # first: remove() looks whether it got there
        setattr(owner, name, ours)
        return ""

    def remove(self) -> None:
        """Takes out what is still ours."""
        while self._put:
            owner, name, ours = self._put[-1]
            if vars(owner).get(name) is ours:
                delattr(owner, name)
            self._put.pop()
