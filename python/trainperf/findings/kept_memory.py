"""What keeps memory, as the run has it (hooks/kept_memory.py), and its words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainperf.findings.frames import is_user_file
from trainperf.findings.model import Said

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts

_KINDS = {"container", "cache", "graph", "array"}
_HOLDS = {"graphs", "tensors", "arrays", "objects", "hooks"}
_MOST = 3
_LONGEST = 200  # characters
_NUMBERS = ("line", "elements", "bytes", "inside")
_PLAIN = {"of", "name", "owner", "file", "text", "argument", "type"}


@dataclass(frozen=True, slots=True)
class Keeper:
    """Something that grew between the two looks."""

    kind: str
    holds: str
    type: str
    of: str  # local, global, attribute; "": it has no name
    name: str
    owner: str  # function, module or class
    inside: int
    file: str
    line: int  # 0: not known
    text: str  # of the line: names alone
    argument: str
    elements: int
    bytes: int  # of an element
    scalar: bool
    bound: int | None

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.line and is_user_file(self.file) else ""

    @property
    def function(self) -> str:
        """Of a cache: whose results it keeps."""
        return self.text.rpartition(" ")[2] if self.kind == "cache" else ""

    @property
    def known_bytes(self) -> int:
        """Between the two looks; 0: not known, as of graphs."""
        return 0 if self.holds == "graphs" else self.bytes * self.elements

    @property
    def sure(self) -> bool:
        """Nothing is kept so on purpose."""
        return self.holds in ("graphs", "hooks")

    @property
    def said(self) -> Said:
        if self.holds == "hooks":
            return Said("keeps_hooks")
        if self.function:
            return Said("keeps_cache", {"function": self.function})
        if self.text:
            return Said("keeps_line", {"text": self.text})
        return self.thing if self.name else Said("keeps_unnamed", {"type": self.type})

    @property
    def thing(self) -> Said:
        """The container by its name."""
        of = {"local": "keeps_local", "global": "keeps_global", "attribute": "keeps_attribute"}
        if self.function:
            return Said("keeps_cache", {"function": self.function})
        if not self.name:
            return Said("keeps_unnamed", {"type": self.type})
        shown = self.name + "[...]" * min(self.inside, 2)
        return Said(of[self.of], {"name": shown, "owner": self.owner, "type": self.type})

    @property
    def held(self) -> Said:
        if self.kind == "graph":
            return Said("holds_chain")
        if self.kind == "array":
            return Said("holds_array", {"type": self.type})
        return Said("holds_results" if self.kind == "cache" else f"holds_{self.holds}", {"type": self.type})


@dataclass(frozen=True, slots=True)
class Looks:
    """The two looks of a run."""

    seconds: float
    steps: int
    objects: int
    pauses_ms: tuple[float, ...]
    keepers: tuple[Keeper, ...]  # the one that keeps the most first


def looks(facts: Facts) -> Looks | None:
    """None: nobody looked, or the file does not have it as it should."""
    read = _json(facts, "kept_memory")
    if not isinstance(read, dict) or not _is_number(read.get("seconds")) or not read["seconds"]:
        return None
    if not all(type(read.get(key)) is int and read[key] >= 0 for key in ("steps", "objects")):
        return None
    rows = read.get("kept")
    keepers = [k for row in (rows[:_MOST] if isinstance(rows, list) else ()) if (k := _keeper(row)) is not None]
    pauses = _json(facts, "kept_memory_pauses")
    ms = tuple(float(p) for p in (pauses[:8] if isinstance(pauses, list) else ()) if _is_number(p))
    return Looks(float(read["seconds"]), read["steps"], read["objects"], ms, tuple(keepers))


@dataclass(frozen=True, slots=True)
class WorkersMemory:
    """Of a run's DataLoader workers together, while the same ones ran."""

    workers: int
    seconds: tuple[float, ...]
    bytes: tuple[int, ...]
    dataset: str  # its class
    place: str  # of the only line of it that adds to what it has; "": not known
    text: str


def workers_memory(facts: Facts) -> WorkersMemory | None:
    read = _json(facts, "worker_memory")
    if not isinstance(read, dict) or type(read.get("workers")) is not int or read["workers"] < 1:
        return None
    readings = read.get("readings")
    rows: list[Any] = readings[:256] if isinstance(readings, list) else []
    if not all(isinstance(row, list) and len(row) == 2 and all(map(_is_number, row)) for row in rows):
        return None
    words = {key: str(read[key]) for key in ("dataset", "file", "text") if _is_plain(read.get(key))}
    line, file = read.get("line"), words.get("file", "")
    place = f"{file}:{line}" if type(line) is int and 0 < line < 1 << 30 and is_user_file(file) else ""
    seconds, held = tuple(float(row[0]) for row in rows), tuple(int(row[1]) for row in rows)
    dataset, text = words.get("dataset", "")[:_LONGEST], words.get("text", "")[:_LONGEST] if place else ""
    return WorkersMemory(read["workers"], seconds, held, dataset, place, text)


def _is_plain(value: object) -> bool:
    return isinstance(value, str) and value.isprintable()


def _json(facts: Facts, key: str) -> Any:
    try:
        return json.loads(facts.run.meta.get(key, "null"))
    except (ValueError, RecursionError):
        return None


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < 1e12  # type: ignore[operator]


def _keeper(row: object) -> Keeper | None:
    if not isinstance(row, Mapping) or row.get("kind") not in _KINDS or row.get("holds") not in _HOLDS:
        return None
    if not all(isinstance(row.get(key), str) and row[key].isprintable() for key in _PLAIN):
        return None
    if not all(
        type(row.get(key)) is int and 0 <= row[key] < 1 << 50 for key in ("line", "elements", "bytes", "inside")
    ):
        return None
    if row["of"] not in ("local", "global", "attribute", "") or bool(row["of"]) != bool(row["name"]):
        return None
    bound = row.get("bound")
    return Keeper(
        **{key: row[key][:_LONGEST] for key in _PLAIN - {"file"}},
        file=row["file"],
        **{key: row[key] for key in ("kind", "holds", *_NUMBERS)},
        scalar=row.get("scalar") is True,
        bound=bound if type(bound) is int else None,
    )
