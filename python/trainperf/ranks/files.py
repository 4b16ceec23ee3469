"""Which run files are the ranks of one job: those of a folder, or those that a pattern matches."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trainperf.errors import RunFileError, TrainperfError
from trainperf.runfile.schema import not_one_run

if TYPE_CHECKING:
    from typing_extensions import Self

    from trainperf.run import Run

_TOGETHER: Final = 600.0  # seconds
_MOST_STRETCHES: Final = 12  # of ranks, in a sentence
_RANK: Final = re.compile(r"^(?P<stem>.*)\.rank(?P<rank>\d+)$")


@dataclass(frozen=True, slots=True)
class Job:
    """Its runs, open, by number of their rank; a context manager that closes them."""

    name: str  # as it was asked for
    runs: tuple[Run, ...]
    numbers: tuple[int, ...]
    unreadable: tuple[str, ...]  # a line for each file that could not be read

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for run in self.runs:
            run.close()


def open_job(name: str | os.PathLike[str]) -> Job:
    """The run of a file, or the ranks of a folder or pattern.

    Raises RunFileError when none can be read, TrainperfError when they are not of one job.
    """
    runs, unreadable = open_all(files_of(Path(name)))
    numbered = sorted(((number(i, run), run) for i, run in enumerate(runs)), key=lambda pair: pair[0])
    return Job(os.fspath(name), tuple(r for _, r in numbered), tuple(n for n, _ in numbered), tuple(unreadable))


def files_of(name: Path) -> list[Path]:
    """A run file, the run files in a folder, or those that a pattern matches.

    Raises TrainperfError when a folder or a pattern has none.
    """
    if name.is_dir():
        files = sorted(p for p in name.glob("*.tpr") if p.is_file())
        if not files:
            raise not_one_run(name)
        return files
    if not name.exists() and glob.has_magic(str(name)):
        files = sorted(p for p in map(Path, glob.glob(str(name))) if p.is_file())
        if not files:
            raise TrainperfError(f"{name} matches no file: give a run file, a folder of one run's ranks, or a pattern")
        return files
    return [name]


def open_all(files: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """The runs that can be read, and a line for each that cannot.

    Raises RunFileError when none can, TrainperfError when they are not of one job.
    """
    from trainperf.run import Run

    runs: list[Run] = []
    errors: list[str] = []
    for file in files:
        try:
            runs.append(Run(file))
        except RunFileError as error:
            errors.append(str(error))
    if not runs:
        raise RunFileError(errors[0])
    try:
        _one_job(runs)
    except TrainperfError:
        for run in runs:
            run.close()
        raise
    return runs, errors


def _one_job(runs: Sequence[Run]) -> None:
    """Raises TrainperfError unless the runs are the ranks of one job, each there once."""
    if len(runs) < 2:
        return
    paths = [Path(run.path) for run in runs]
    jobs = {found["stem"] if (found := _RANK.match(p.stem)) else "" for p in paths}
    numbers = [_known_number(run) for run in runs]
    worlds = {run.meta.get("world_size", "") for run in runs}
    launches = {run.meta.get("launch", "") for run in runs}
    one_launch = len(launches) == 1 and launches != {""}  # a rank whose file's name was taken has another
    several = (len(jobs) > 1 and not one_launch) or len(launches) > 1 or len(worlds) > 1
    if several or None in numbers or len(set(numbers)) < len(numbers):
        names = ", ".join(p.name for p in paths[:4]) + (" ..." if len(paths) > 4 else "")
        some = f", or all ranks of one by a pattern ('{stem}.rank*.tpr')" if (stem := max(jobs)) else ""
        raise TrainperfError(f"{paths[0].parent} has several runs ({names}): name one of them{some}")

    _started_together(runs)


def _started_together(runs: Sequence[Run]) -> None:
    """Raises TrainperfError when one began much later: ranks wait for one another, so it is of another job."""
    starts = sorted(((t, run) for run in runs if (t := _started(run)) is not None), key=lambda pair: pair[0])
    if starts and starts[-1][0] - starts[0][0] > _TOGETHER:
        (_, first), (_, last) = starts[0], starts[-1]
        raise TrainperfError(
            f"{Path(last.path).name} started at {last.meta['started']}, {Path(first.path).name} at "
            f"{first.meta['started']}: ranks of one job start together, so name the files of one job alone"
        )


def _started(run: Run) -> float | None:
    try:
        return datetime.fromisoformat(run.meta.get("started", "").replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return None


def same_ranks(before: Job, after: Job) -> None:
    """Raises TrainperfError unless both have the same ranks."""
    a, b = set(before.numbers), set(after.numbers)
    if a == b or (len(a) == 1 and len(b) == 1):  # of one file each, whatever their numbers: they were named so
        return
    raise TrainperfError(
        f"{before.name} has {ranks_in_words(a)}, {after.name} has {ranks_in_words(b)}: "
        "give two runs with the same ranks, or one rank's file of each"
    )


def ranks_in_words(numbers: Collection[int]) -> str:
    """ "rank 3", "ranks 0-2, 5"."""
    return f"rank {_numbers(numbers)}" if len(numbers) == 1 else f"ranks {_numbers(numbers)}"


def _numbers(numbers: Collection[int]) -> str:
    """ "0-3, 7"; of very many stretches the first."""
    parts: list[list[int]] = []
    for n in sorted(numbers):
        if parts and n == parts[-1][-1] + 1:
            parts[-1].append(n)
        else:
            parts.append([n])
    shown = ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts[:_MOST_STRETCHES])
    rest = sum(len(p) for p in parts[_MOST_STRETCHES:])
    return f"{shown} and {rest:,} more" if rest else shown


def rank_of(path: str | os.PathLike[str]) -> int | None:
    """3 for a.rank3.tpr."""
    found = _RANK.match(Path(path).stem)
    return int(found["rank"]) if found else None


def number(position: int, run: Run) -> int:
    """Of its rank; its place among the files when nothing tells."""
    found = _known_number(run)
    return position if found is None else found


def _known_number(run: Run) -> int | None:
    """Of the file's name; else as the job told (a trace that was analyzed is named after the trace)."""
    named = rank_of(run.path)
    return named if named is not None else told_number(run, "rank")


def told_number(run: Run, key: str) -> int | None:
    """As the file's `meta` has it; None when that is no number that a job has."""
    told = run.meta.get(key, "")
    return int(told) if told.isdecimal() and len(told) < 10 else None
