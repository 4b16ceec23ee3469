"""Who holds a container: its names, by a search from the program's variables on."""

from __future__ import annotations

import dataclasses
import functools
import gc
import sys
import time
import types
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from trainperf.keeping.names import (
    Name,
    Reader,
    attributes,
    frames,
    global_values,
    globals_of,
    is_class,
    is_module,
    is_programs,
    local_values,
    own_values,
    qualified,
    source_of,
    type_name,
)

_ATOMS = (str, bytes, bytearray, int, float, complex, type(None), types.CodeType, types.ModuleType, range, slice)
_CALLS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, property)
_ENDS = (*_ATOMS, *_CALLS)
_CACHE: Any = type(functools.lru_cache(maxsize=1)(int))
_LONG = 4096  # elements of a container that is not looked into
_DEEPEST = 8
_EACH = 128  # objects between two looks at the clock


class Held(NamedTuple):
    thing: Any
    names: tuple[Name, ...]  # none: it was not reached


class _Edge(NamedTuple):
    child: Any  # kept alive while its id is known
    parent: Any
    name: Name | None


def holders(reader: Reader, lengths: Mapping[int, int], until: float) -> dict[int, Held]:
    """By address, those of the containers that are reached by `until` (time.thread_time) and have such a length or
    more: else it is another at the same address."""
    search = _Search(reader, lengths)
    search.run(until)
    return {
        key: Held(edges[0].child, tuple(dict.fromkeys(filter(None, map(search.name, edges)))))
        for key, edges in search.found.items()
    }


class _Search:
    def __init__(self, reader: Reader, lengths: Mapping[int, int]) -> None:
        self._reader = reader
        self._lengths = lengths
        self._met: dict[int, _Edge] = {}
        self.found: dict[int, list[_Edge]] = {}

    def run(self, until: float) -> None:
        """Breadth first from each group of roots, all in turns: a program of many modules has so many globals that what
        the loop's own variables hold would not be reached after them."""
        met: Iterator[deque[Any]] = (
            deque(value for name, value in group if self._meet(_Edge(value, None, name))) for group in self._roots()
        )
        queues = list(met)
        looked = 0
        while any(queues):
            for queue in filter(None, queues):
                looked += 1
                if looked % _EACH == 0 and time.thread_time() > until:
                    return
                for edge in self._children(queue.popleft()):
                    if self._meet(edge):
                        queue.append(edge.child)

    def _roots(self) -> Iterator[Iterator[tuple[Name, Any]]]:
        """The locals of the program's running functions, its globals, the locals of others'."""
        running = frames()
        ours = [frame for frame in running if is_programs(frame.f_code.co_filename)]
        others = [frame for frame in running if frame not in ours]
        yield (at for frame in ours for at in local_values(self._reader, frame))
        yield global_values()
        yield (at for frame in others for at in local_values(self._reader, frame))

    def _meet(self, edge: _Edge) -> bool:
        """Whether it is met for the first time."""
        child = edge.child
        if issubclass(type(child), _ENDS):
            return False
        key = id(child)
        if key in self._lengths and self._reader.container_length(child) >= self._lengths[key]:
            self.found.setdefault(key, []).append(edge)
        if key in self._met:
            return False
        self._met[key] = edge
        return True

    def _children(self, thing: Any) -> Iterator[_Edge]:
        kind = type(thing)
        if kind is types.FunctionType:
            code = thing.__code__
            for variable, cell in zip(code.co_freevars, thing.__closure__ or (), strict=False):
                try:
                    value = cell.cell_contents
                except ValueError:
                    continue  # it is empty yet
                name = Name("local", variable, qualified(code), code.co_filename, code.co_firstlineno)
                yield _Edge(value, thing, name)
            for value in (*(thing.__defaults__ or ()), getattr(thing, "__wrapped__", None)):
                yield _Edge(value, thing, None)
        elif kind is _CACHE:
            yield _Edge(thing.__wrapped__, thing, None)  # what it keeps is told as its own
        elif is_class(thing):
            if is_programs(source_of(thing)):
                for name, value in attributes(thing):
                    yield _Edge(value, thing, name)
        elif self._reader.container_length(thing) <= _LONG and not self._is_of_module(thing):
            for value in gc.get_referents(thing):
                if value is not kind:
                    yield _Edge(value, thing, None)

    def _is_of_module(self, thing: Any) -> bool:
        """A module's globals: what is the program's is a root."""
        if type(thing) is not dict or "__name__" not in thing or "__spec__" not in thing:
            return False
        module = sys.modules.get(thing["__name__"]) if type(thing["__name__"]) is str else None
        return is_module(module) and globals_of(module) is thing

    def name(self, edge: _Edge, inside: int = 0) -> Name | None:
        child, parent, name = edge
        if name is not None:
            return dataclasses.replace(name, inside=inside)
        if parent is None or inside > _DEEPEST:
            return None
        above = self._met[id(parent)]
        if issubclass(type(parent), dict) and above.name is None and above.parent is not None:
            # The values of an object, or one of them.
            owner = above.parent
            if not issubclass(type(owner), (dict, list, tuple, set, frozenset, type, types.FunctionType)):
                own = own_values(owner)
                if not any(value is parent for value in own.values()):
                    return self._attribute(owner, own, child, inside)
        if issubclass(type(parent), (dict, list, tuple, set, frozenset, deque, types.CellType)):
            return self.name(above, inside + (type(parent) is not types.CellType))
        return self._attribute(parent, own_values(parent), child, inside) or self.name(above, inside + 1)

    def _attribute(self, owner: Any, own: Mapping[str, Any], child: Any, inside: int) -> Name | None:
        for attribute, value in own.items():
            if value is child:
                return Name("attribute", attribute, type_name(type(owner)), source_of(type(owner)), 0, inside)
        return None
