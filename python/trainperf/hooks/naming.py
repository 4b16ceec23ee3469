"""A hook that names what the core has seen and cannot name by itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trainperf.hooks.context import Context

if TYPE_CHECKING:
    from trainperf.hooks.core import Session


class NamingHook(ABC):
    """Asked as a chore: on a step's thread, where Python's own tables can be read without a lock."""

    name: str
    needs = ""

    def __init__(self) -> None:
        self._context: Context | None = None

    @abstractmethod
    def unnamed(self, session: Session) -> Sequence[int]: ...

    @abstractmethod
    def names(self, unnamed: Sequence[int]) -> Mapping[int, str]:
        """Of these as far as they are known, and maybe of others."""

    @abstractmethod
    def tell(self, session: Session, number: int, name: str) -> None: ...

    def install(self, context: Context) -> None:
        self._context = context
        context.ticker.add(self.name, self.look)

    def look(self) -> None:
        if self._context is None:
            return
        session = self._context.session
        unnamed = self.unnamed(session)
        names = self.names(unnamed) if unnamed else {}
        for number in unnamed:
            if name := names.get(number):
                self.tell(session, number, name)

    def remove(self) -> None:
        """The last look, for those that came after the last tick."""
        context = self._context
        if context is not None:
            try:
                self.look()
            except Exception as error:
                context.fail(self.name, error)
        self._context = None
