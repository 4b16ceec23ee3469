"""Two looks at what is there, some steps apart, and what they tell of what grew between them.

census = Census(native)
census.first()
...                       # steps
census.second(steps)
kept = census.named(until)
"""

from __future__ import annotations

import functools
import gc
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from trainperf.keeping import graphs, lines
from trainperf.keeping.contents import Contents, contents, large_bytes, latest, on_gpu
from trainperf.keeping.holders import holders
from trainperf.keeping.names import Name, Reader, attributes, frames, is_class, is_programs, named_values, source_of

_MOST_KEPT = 3
_MATERIAL = 0.3  # of the memory that grew: what holds less of it did not make it grow
_LEAST_ELEMENTS = 3
_MOST_ENTRIES = 50_000  # of a cache whose results are looked at
_PARTS = 4  # of a tuple of tensors, as an LSTM's state is
_GRAPHS_S, _SEARCH_S, _CONTENTS_S = 0.01, 0.012, 0.01  # of CPU time, at most
_FAR = 100  # steps that a graph reaches back over, to be one that is kept
_CACHE: Any = type(functools.lru_cache(maxsize=1)(int))


class _Containers(Protocol):
    def take(self) -> int: ...
    def grown(self, least: int) -> list[tuple[int, int, int]]: ...


class Native(Reader, Protocol):
    @property
    def Census(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Kept:
    """Something that grew, and what of it is known."""

    kind: str  # container, cache (lru_cache), graph, array
    type: str
    elements: int  # more than at the first look
    held: Contents
    names: tuple[Name, ...] = ()
    line: lines.Line | None = None
    bound: int | None = None  # of a cache


class _Named(NamedTuple):
    name: Name
    thing: Any


class _Seen(NamedTuple):
    """Of the first look, by name: sizes alone."""

    arrays: dict[Name, int]
    caches: dict[Name, int]
    newest: int


class Census:
    def __init__(self, native: Native) -> None:
        self._native = native
        self._torch = sys.modules.get("torch")
        self._containers: _Containers = native.Census()
        self._seen = _Seen({}, {}, -1)
        self._grown: Mapping[int, tuple[int, int]] = {}
        self.objects = 0

    def first(self) -> None:
        self.objects = self._containers.take()
        values = list(self._values())
        arrays = {name: size for name, thing in values if (size := large_bytes(thing, self._torch))}
        caches = {name: thing.cache_info().currsize for name, thing in values if type(thing) is _CACHE}
        self._seen = _Seen(arrays, caches, graphs.newest(self._with_graph(values)))

    def second(self) -> None:
        """Addresses and lengths alone are kept of what it finds."""
        grown = self._containers.grown(_LEAST_ELEMENTS)
        self._grown = {address: (before, now) for address, before, now in grown}

    def named(self, rise: float, steps: int) -> list[Kept]:
        """What explains the memory that grew by `rise` bytes in so many steps, the largest part first. Is called once,
        soon after the second look; takes 50 ms at most."""
        running = [(f.f_code.co_filename, f.f_lineno) for f in frames() if is_programs(f.f_code.co_filename)]
        sources, values = lines.Sources(), list(self._values())
        found = [*self._carried(values, sources, running, steps), *self._arrays(values, sources, running)]
        found += self._caches(values)
        found += self._held(sources, running)
        return _material(found, rise)

    def _values(self) -> Iterator[_Named]:
        for name, thing in named_values(self._native):
            yield _Named(name, thing)
            if type(thing) in (tuple, list) and len(thing) <= _PARTS:
                yield from (_Named(name, part) for part in thing)
            elif is_class(thing) and is_programs(source_of(thing)):
                yield from (_Named(*at) for at in attributes(thing) if type(at[1]) is _CACHE)

    def _with_graph(self, values: Sequence[_Named]) -> Iterator[Any]:
        torch = self._torch
        if torch is not None:
            yield from (at.thing for at in values if type(at.thing) is torch.Tensor and at.thing.grad_fn is not None)

    def _carried(
        self, values: Sequence[_Named], sources: lines.Sources, running: Sequence[tuple[str, int]], steps: int
    ) -> Iterator[Kept]:
        """Tensors whose graphs reach back over steps, if the source says that each is made from the one before."""
        torch = self._torch
        if torch is None or self._seen.newest < 0:
            return
        newest, until = graphs.newest(self._with_graph(values)), time.thread_time() + _GRAPHS_S
        before = max(self._seen.newest, newest - (newest - self._seen.newest) * _FAR // max(_FAR, steps))
        for name, thing in values:
            if type(thing) is not torch.Tensor or not graphs.reaches_back(thing, before, newest, until):
                continue
            if lines.is_carried(sources, name):
                line = lines.replacing_line(sources, name, running)
                held = Contents("graphs", 0.0, thing.numel() == 1, on_gpu=on_gpu(thing))
                yield Kept("graph", "Tensor", 0, held, (name,), line)

    def _arrays(
        self, values: Sequence[_Named], sources: lines.Sources, running: Sequence[tuple[str, int]]
    ) -> Iterator[Kept]:
        for name, thing in values:
            more = large_bytes(thing, self._torch) - self._seen.arrays.get(name, sys.maxsize)
            if more > 0:
                of_torch = type(thing).__module__.startswith("torch")
                gpu = of_torch and on_gpu(thing)
                held = Contents("tensors" if of_torch else "arrays", float(more), on_gpu=gpu)
                yield Kept(
                    "array", type(thing).__name__, 1, held, (name,), lines.replacing_line(sources, name, running)
                )

    def _caches(self, values: Sequence[_Named]) -> Iterator[Kept]:
        met: set[int] = set()
        for name, thing in values:
            if type(thing) is not _CACHE or id(thing) in met:
                continue
            met.add(id(thing))
            size, _, bound = (info := thing.cache_info()).currsize, info.hits, info.maxsize
            more = size - self._seen.caches.get(name, size)
            if more < _LEAST_ELEMENTS:
                continue
            code = getattr(thing.__wrapped__, "__code__", None)
            held = self._results(thing, size)
            line = lines.Line(code.co_filename, code.co_firstlineno, f"@lru_cache on {code.co_name}") if code else None
            yield Kept("cache", "lru_cache", more, held, (name,), line, bound)

    def _results(self, cache: Any, size: int) -> Contents:
        """What an entry holds: keys and results of the last ones."""
        if size > _MOST_ENTRIES:
            return Contents("objects", 0.0)
        inside = gc.get_referents(cache)
        entries = next((v for v in inside if type(v) is dict and len(v) == size), {})
        if cache.cache_info().maxsize is None:
            return contents(latest(entries), self._torch)
        last = [v for v in inside if v is not entries and not is_class(v)][: 2 * size][-16:]
        told = contents(last[1::2], self._torch)
        return told

    def _held(self, sources: lines.Sources, running: Sequence[tuple[str, int]]) -> Iterator[Kept]:
        lengths = {address: now for address, (_, now) in self._grown.items()}
        reached = holders(self._native, lengths, time.thread_time() + _SEARCH_S)
        until = time.thread_time() + _CONTENTS_S
        for address, (thing, names) in reached.items():
            if time.thread_time() > until:
                return
            before, now = self._grown[address]
            held = contents(latest(thing), self._torch)
            line = lines.adding_line(sources, names, running) if names else None
            if line is None and held.holds == "hooks":
                line = lines.Line(*held.place, "")
            yield Kept("container", type(thing).__name__, now - before, held, names, line)


def _material(found: Sequence[Kept], rise: float) -> list[Kept]:
    """Those that hold a notable part of what grew. Graphs hold more than is known of them: what else explains the most
    of it goes before them."""
    by_bytes = {id(kept): kept.held.bytes * kept.elements for kept in found}
    told = [k for k in found if by_bytes[id(k)] >= _MATERIAL * rise]
    told.sort(key=lambda k: -by_bytes[id(k)])
    if sum(by_bytes[id(k)] for k in told) < 0.5 * rise:
        of_graphs = [k for k in found if k.held.holds == "graphs" and k not in told]
        # A chain from step to step before a list of losses, which may be a part of it.
        of_graphs.sort(key=lambda k: (k.kind != "graph", -by_bytes[id(k)]))
        told = [*told, *of_graphs]
    return told[:_MOST_KEPT]
