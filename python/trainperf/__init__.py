"""trainperf: why is my PyTorch training slow?

    import trainperf

    with trainperf.watch("runs/a.tpr") as run:
        for batch in loader: ...          # steps are found by themselves

Importing this costs a few milliseconds: torch, numpy and rich are imported when they are needed.
"""

from __future__ import annotations

import logging as _logging
import os as _os
from typing import TYPE_CHECKING
from typing import Any as _Any

from trainperf.errors import AlreadyWatchingError, RunFileError, TrainperfError, TrainperfWarning
from trainperf.watch import Watch, phase, start, step, stop, watch
from trainperf.watching.closed_steps import ClosedStep

if TYPE_CHECKING:
    from trainperf.opened import OpenedRun


def __getattr__(name: str) -> _Any:
    if name == "TrainPerf":  # importing it imports Lightning
        from trainperf.integrations.lightning import TrainPerf

        return TrainPerf
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__version__ = "0.1.0"
__all__ = [
    "AlreadyWatchingError",
    "ClosedStep",
    "RunFileError",
    "TrainperfError",
    "TrainperfWarning",
    "Watch",
    "open",
    "phase",
    "start",
    "step",
    "stop",
    "watch",
]

_logging.getLogger("trainperf").addHandler(_logging.NullHandler())


def open(path: str | _os.PathLike[str]) -> OpenedRun:
    """Opens a run file, read-only. Raises RunFileError when it cannot be read as one."""
    from trainperf.opened import OpenedRun

    return OpenedRun(path)


def load_ipython_extension(ipython: _Any) -> None:
    """`%load_ext trainperf`: adds %trainperf and %%trainperf."""
    from trainperf.notebook.magics import load

    load(ipython)


def unload_ipython_extension(ipython: _Any) -> None:
    from trainperf.notebook.magics import unload

    unload(ipython)
