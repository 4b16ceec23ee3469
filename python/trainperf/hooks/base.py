"""What a hook is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from trainperf.hooks.context import Context
from trainperf.hooks.patch import AnyFunction, Patch, Switch


class Hook(Protocol):
    """Something that reports to the marks what the user's loop does.

    install() is called once the module `needs` is imported ("" for none), maybe in the middle of the watch. It may
    raise: the hook is then off, and the run says so. remove() undoes what install() did, also half of it; it can be
    called again, and goes on where an interrupt left it.
    """

    @property
    def name(self) -> str: ...
    @property
    def needs(self) -> str: ...

    def install(self, context: Context) -> None: ...
    def remove(self) -> None: ...


class PatchHook:
    """The base of hooks that replace functions."""

    def __init__(self) -> None:
        self.switch = Switch()
        self._patches: list[Patch] = []

    def patch(self, owner: Any, attribute: str, make: Callable[[AnyFunction], AnyFunction]) -> None:
        self._patches.append(Patch(owner, attribute, make))

    def patch_alias(self, owner: Any, attribute: str) -> None:
        """What was patched last, by another name of the same function: one wrapper, as the function is pickled by its
        own name, and must be found there."""
        last = self._patches[-1]
        if vars(owner).get(attribute) is last.original:
            self.patch(owner, attribute, lambda original: last.wrapper)

    def remove(self) -> None:
        self.switch.off()
        while self._patches:
            self._patches[-1].remove()
            self._patches.pop()  # after: an interrupt between the two must not lose it
