"""Earlier runs of the same name: what is known of them, and where they lie.

A watch with a name and a folder looks at its start for the last five such runs and keeps what it found in its own run
file (meta "history"), so that every view of the file, anywhere and later, can compare the run with them.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from trainperf.errors import RunFileError
from trainperf.log import log
from trainperf.runfile.schema import CAUSES, RunDatabase, columns_of
from trainperf.settings import file_stem

LAST: Final = 5  # runs that a run is compared with
_LOOKED_AT: Final = 64  # files: a start must not wait for a folder of thousands
_WARM_UP: Final = 16


@dataclass(frozen=True, slots=True)
class Past:
    """An earlier run, warm-up steps left out."""

    file: str
    started: str
    steps: int
    median_ms: float
    mean_ms: float
    batch_size: int  # 0: not known
    causes: Mapping[str, float] = field(default_factory=dict)  # ms per step; those of no time are not in it

    @staticmethod
    def parse(text: str) -> list[Past]:
        """What `dump` wrote; [] for anything else: a run file may come from anywhere."""
        try:
            return [_checked(Past(**entry)) for entry in json.loads(text)]
        except (ValueError, TypeError, AttributeError, RecursionError):
            return []

    @staticmethod
    def dump(runs: Sequence[Past]) -> str:
        return json.dumps([asdict(past) for past in runs])


def _checked(past: Past) -> Past:
    """Raises ValueError or TypeError when a value is not of its kind."""
    numbers = (past.steps, past.median_ms, past.mean_ms, past.batch_size, *past.causes.values())
    if not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise ValueError("not a number")
    if not isinstance(past.file, str) or not isinstance(past.started, str) or not set(past.causes) <= set(CAUSES):
        raise ValueError("not a name")
    return past


def describe_history(session: Any, meta: Mapping[str, str]) -> None:
    """Into the run that begins: what earlier runs of its name took, for the finding slower-than-before."""
    name, folder = meta["name"], os.path.dirname(session.path) or "."
    try:
        past = earlier(folder, name, host=meta["host"], rank=meta.get("rank", ""), but=session.path)
    except Exception as error:  # a folder that may be written but not read: nothing to stop a training for
        log.warning("earlier runs could not be read: %s: %s", type(error).__name__, error)
        session.note(f"earlier runs of the name {name} could not be read: {error}")
        return
    session.set_meta("history", Past.dump(past))


def run_files(folder: str | os.PathLike[str]) -> list[Path]:
    """The newest first. OSError when the folder cannot be read."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".tpr"):
                with contextlib.suppress(OSError):  # removed meanwhile
                    if entry.is_file():
                        found.append((entry.stat().st_mtime_ns, entry.path))
    return [Path(path) for _, path in sorted(found, reverse=True)]


def earlier(folder: str, name: str, *, host: str, rank: str, but: str = "") -> list[Past]:
    """The last LAST runs of that name, host and rank that have ended and have steps; the newest first.

    Only files whose name begins with the run's are read, and the newest 64 of them: that is what a watch on a
    folder calls them. `but`: the run itself.
    """
    found: list[Past] = []
    stem = file_stem(name)
    candidates = [path for path in run_files(folder) if path.name.startswith(stem) and str(path) != but]
    for path in candidates[:_LOOKED_AT]:
        with contextlib.suppress(RunFileError):  # not ours, or damaged: no reason to stop a training
            past = _read(path, {"name": name, "host": host, "rank": rank})
            if past is not None:
                found.append(past)
                if len(found) == LAST:
                    break
    return found


def _read(path: Path, wanted: Mapping[str, str]) -> Past | None:
    """None: it is another's, has not ended, or has no steps."""
    if path.with_name(path.name + "-wal").exists():
        return None  # still being written
    database = RunDatabase(path)
    try:
        meta = dict(database.rows("meta", "ss"))
        if any(meta.get(key, "") != value for key, value in wanted.items()) or "ended" not in meta:
            return None
        known = columns_of("step", database.schema_version)
        sums = ", ".join(f"SUM({cause}_ns)" if f"{cause}_ns" in known else "0" for cause in CAUSES)
        with database.cursor(
            f"SELECT SUM(steps), SUM(wall_ns), {sums} FROM step WHERE flags & {_WARM_UP} = 0"
        ) as cursor:
            steps, wall_ns, *causes = cursor.fetchone()
        median = _median_ns(database)
        if not steps or median is None:
            return None
        return Past(
            file=path.name,
            started=meta.get("started", ""),
            steps=int(steps),
            median_ms=median / 1e6,
            mean_ms=wall_ns / steps / 1e6,
            batch_size=_batch_size(database),
            causes={name: ns / steps / 1e6 for name, ns in zip(CAUSES, causes, strict=True) if ns},
        )
    finally:
        database.close()


def _median_ns(database: RunDatabase) -> float | None:
    """From the histogram (bins of 1.6 %), which a run of any length has."""
    bins = database.rows(
        "wall_histogram", "iii", columns=("lower_ns", "steps", "wall_ns"), order="WHERE warm_up = 0 ORDER BY lower_ns"
    )
    total, seen = sum(steps for _, steps, _ in bins), 0
    for _, steps, wall_ns in bins:
        seen += steps
        if steps and seen > 0.5 * (total - 1):
            return float(wall_ns / steps)
    return None


def _batch_size(database: RunDatabase) -> int:
    """Of the loader that was fetched from most."""
    with database.cursor(
        "SELECT description FROM object JOIN fetch ON fetch.loader = object.id ORDER BY fetch.count DESC LIMIT 1"
    ) as cursor:
        row = cursor.fetchone()
    try:
        value: Any = json.loads(row[0]).get("batch_size") if row else None
    except (ValueError, AttributeError, TypeError, RecursionError):
        value = None
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def scan(folder: str, name: str | None = None) -> Iterator[Path]:
    """Run files of a folder, or those of one name; the newest first. Files that are no runs are passed over."""
    for path in run_files(folder):
        if name is None:
            yield path
            continue
        with contextlib.suppress(RunFileError):
            database = RunDatabase(path)
            try:
                if dict(database.rows("meta", "ss")).get("name", "") == name:
                    yield path
            finally:
                database.close()
