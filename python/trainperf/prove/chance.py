"""What a dataset does from batch to batch that workers do otherwise: each of them draws random numbers of its own, and
keeps things of its own."""

from __future__ import annotations

import collections
import functools
import random
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

# Of a dataset, that are looked at for generators: of each level, of each object in it, levels.
_OBJECTS, _INNER, _DEPTH = 2000, 64, 7
_HOLDS = (list, tuple, Mapping)
_GROW = (list, dict, set, collections.OrderedDict, collections.defaultdict)
_Cached = functools._lru_cache_wrapper


def state() -> int:
    """A checksum of the global generators: another where a number was drawn."""
    code = hash(random.getstate()) & 0xFFFFFFFF
    if (numpy := sys.modules.get("numpy")) is not None:
        _, keys, place, *_ = numpy.random.get_state()
        code = zlib.crc32(keys.tobytes() + bytes(str(place), "ascii"), code)
    if (torch := sys.modules.get("torch")) is not None:
        code = zlib.crc32(torch.get_rng_state().numpy().tobytes(), code)
    return code


def generators(dataset: Any) -> list[Any]:
    """Those of its own that it keeps, a few levels deep."""
    kinds: list[type] = [random.Random]
    if (numpy := sys.modules.get("numpy")) is not None:
        kinds += [numpy.random.Generator, numpy.random.RandomState]
    if (torch := sys.modules.get("torch")) is not None:
        kinds.append(torch.Generator)
    return [part for part in _parts(dataset) if isinstance(part, tuple(kinds))]


def state_of(generators: Sequence[Any]) -> int:
    """A checksum of theirs: another where one of them drew a number."""
    code = 0
    for generator in generators:
        if isinstance(generator, random.Random):
            kept: Any = generator.getstate()
        elif hasattr(generator, "bit_generator"):
            kept = generator.bit_generator.state
        else:  # torch's, and NumPy's older one
            kept = generator.get_state()
        code = zlib.crc32(repr(kept.tolist() if hasattr(kept, "tolist") else kept).encode(), code)
    return code


def kept(dataset: Any) -> int:
    """How many things its containers hold, and the caches of functions of its class and of that one's module."""
    sized = [part for part in _parts(dataset) if type(part) in _GROW]
    held = sum(len(part) - (part.count(None) if type(part) is list else 0) for part in sized)
    kind = type(dataset)
    functions = [*vars(kind).values(), *vars(sys.modules.get(kind.__module__, kind)).values()]
    return held + sum(f.cache_info().currsize for f in functions if isinstance(f, _Cached))


def _parts(of: Any) -> Iterator[Any]:
    """It and what it holds, the nearest first."""
    level: list[Any] = [of]
    for _ in range(_DEPTH):
        yield from level
        # Of their own kinds of containers nothing is read: that may load data.
        inner = [part if type(part) in (list, tuple, dict) else getattr(part, "__dict__", None) for part in level]
        rows = (part.values() if isinstance(part, Mapping) else part for part in inner if isinstance(part, _HOLDS))
        level = [x for row in rows for x in islice(row, _INNER)]
        level = level[:_OBJECTS]
