"""Whether random numbers are drawn to make a batch: then workers, which draw others, give other values."""

from __future__ import annotations

import random
import sys
import zlib
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

# Of a dataset, that are looked at for generators: of each level, of each object in it, levels.
_OBJECTS, _INNER, _DEPTH = 2000, 64, 7
_HOLDS = (list, tuple, Mapping)


def state() -> int:
    """A checksum of the global generators: another where a number was drawn."""
    code = hash(random.getstate()) & 0xFFFFFFFF
    if (numpy := sys.modules.get("numpy")) is not None:
        _, keys, place, *_ = numpy.random.get_state()
        code = zlib.crc32(keys.tobytes() + bytes(str(place), "ascii"), code)
    if (torch := sys.modules.get("torch")) is not None:
        code = zlib.crc32(torch.get_rng_state().numpy().tobytes(), code)
    return code


def has_generator(dataset: Any) -> bool:
    """Whether it keeps a generator of its own, a few levels deep."""
    kinds: list[type] = [random.Random]
    if (numpy := sys.modules.get("numpy")) is not None:
        kinds += [numpy.random.Generator, numpy.random.RandomState]
    if (torch := sys.modules.get("torch")) is not None:
        kinds.append(torch.Generator)
    try:
        return any(isinstance(part, tuple(kinds)) for part in _parts(dataset))
    except RuntimeError:  # another thread adds to it meanwhile: it may
        return True


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
