"""The table of steps that pandas, Parquet and CSV get: a row as in the run file, a column per fact, exact nanoseconds.

In long runs a row stands for `steps` neighbours, and its times are sums over them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from trainperf.report.json import FLAGS
from trainperf.runfile.schema import CAUSES, PHASES

if TYPE_CHECKING:
    from trainperf.run import Run

Column = npt.NDArray[np.int64] | npt.NDArray[np.bool_]

_OF_DEVICES: Final = (
    "busy_ns",
    "idle_ns",
    "kernels",
    "launches",
    "copies",
    "copy_ns",
    "exposed_copy_ns",
    "collective_ns",
)


def columns(run: Run) -> dict[str, Column]:
    """Name -> values, all of one length. With devices there are their columns too, summed over the process' devices:
    of the steps in which they were traced, which are all but `device_untraced`."""
    t = run.steps
    found: dict[str, Column] = {
        "step": t.index,
        "steps": t.count,
        "start_ns": t.start_ns,
        "wall_ns": t.wall_ns,
        "wall_min_ns": t.wall_min_ns,
        "wall_max_ns": t.wall_max_ns,
    }
    found |= {f"{name}_ns": t.causes_ns[:, i] for i, name in enumerate(CAUSES)}
    found |= {f"phase_{name}_ns": t.phases_ns[:, i] for i, name in enumerate(PHASES)}
    found |= {"fetches": t.fetches, "backwards": t.backwards, "optimizer_steps": t.optimizer_steps}
    found |= {"compile_ns": t.compile_ns}
    found |= {name: (t.flags >> bit & 1).astype(np.bool_) for bit, name in enumerate(FLAGS)}
    devices = [device.steps for device in run.devices]
    if devices:
        for name in _OF_DEVICES:
            found[f"device_{name}"] = np.sum([getattr(steps, name) for steps in devices], axis=0)
        found["device_untraced"] = np.max([steps.untraced for steps in devices], axis=0)
        idle = np.sum([steps.idle_causes_ns for steps in devices], axis=0)
        found |= {f"device_idle_{name}_ns": idle[:, i] for i, name in enumerate(CAUSES)}
    return found
