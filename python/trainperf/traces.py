"""Runs out of torch.profiler traces: trainperf.traces.analyze("t.json.gz", "a.tpr")."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from trainperf import core
from trainperf.errors import TrainperfError
from trainperf.output import run_file_target

Progress = Callable[[float], object]

_SUFFIXES: Final = (".json", ".json.gz")
_RANK: Final = re.compile(r"rank[-_.]?(\d{1,6})(?!\d)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Analyzed:
    trace: str
    path: str  # of the run file
    private: bool  # a temporary file, which whoever asked for it removes
    events: int
    devices: int  # that did something
    rank: int | None


def find_traces(names: list[str]) -> list[str]:
    """The files among `names`, and the traces in the folders among them. Raises TrainperfError for a folder without."""
    found: list[str] = []
    for name in names:
        if not os.path.isdir(name):
            found.append(name)
            continue
        inside = sorted(n for n in os.listdir(name) if n.endswith(_SUFFIXES))
        if not inside:
            raise TrainperfError(f"{name} is a folder without traces (*.json, *.json.gz): name a trace")
        found += [os.path.join(name, n) for n in inside]
    return found


def stem(trace: str) -> str:
    """Of "a/b.pt.trace.json.gz": "b"."""
    name = os.path.basename(trace)
    for suffix in (".gz", ".json", ".trace", ".pt"):
        name = name.removesuffix(suffix)
    return name or "trace"


def rank_in_name(trace: str) -> int | None:
    found = _RANK.findall(os.path.basename(trace))
    return int(found[-1]) if found else None


def analyze(
    trace: str,
    output: str = "",
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
    inputs: Sequence[str] = (),
) -> Analyzed:
    """Writes the run file of a trace; without `output`, a private temporary one.

    `progress` is called now and then with the share that is done. `inputs`: other files that are read, and so are not
    replaced. Raises ValueError for what is no trace, and OSError
    when one of the files cannot be read or made; TrainperfError where there is no compiled core.
    """
    try:
        native = core.load()
    except ImportError as error:
        raise TrainperfError(str(error)) from error
    output = run_file_target(output, overwrite=overwrite, inputs=[trace, *inputs])
    meta = {"trainperf": native.VERSION, "trace": os.path.abspath(trace), "name": stem(trace)}
    named = rank_in_name(trace)
    if named is not None:
        meta["rank"] = str(named)  # what the trace itself says stands above it
    done = native.analyze_trace(trace, output, overwrite=overwrite, meta=meta, progress=progress)
    rank = done["rank"] if done["rank"] >= 0 else named
    return Analyzed(trace, done["path"], not output, done["events"], done["devices"], rank)
