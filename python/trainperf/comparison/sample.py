"""The steps of a run that are compared: rows of the run file without warm-ups, in ms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainperf.comparison.bootstrap import Floats
from trainperf.findings.vocabulary import CAUSES, PHASES
from trainperf.run import Run
from trainperf.runfile import WARM_UP

MACHINE = ("descheduled", "throttled")  # what the machine does to a loop, not the loop
COLUMNS = ("wall", "loop", *CAUSES, *(f"phase {phase}" for phase in PHASES))
DEVICE_COLUMNS = ("device busy", "device idle", *(f"idle {cause}" for cause in CAUSES))  # summed over the devices


@dataclass(frozen=True, slots=True)
class Sample:
    """Row i is the sum over `count[i]` neighbouring steps."""

    values: Floats  # (rows, columns), ms
    columns: tuple[str, ...]
    count: Floats
    steps: int
    left_out: int
    steps_per_row: int

    @property
    def rows(self) -> int:
        return len(self.count)

    @property
    def means(self) -> Floats:
        """Per step, (columns,)."""
        found: Floats = self.values.sum(axis=0) / max(1, self.steps)
        return found

    @property
    def seconds(self) -> float:
        return float(self.values[:, self.columns.index("wall")].sum()) / 1e3

    def mean(self, column: str) -> float:
        return float(self.values[:, self.columns.index(column)].sum() / self.steps) if self.steps else 0.0


def sample(run: Run, *, devices: bool = False) -> Sample:
    """`devices`: what they did, too; for runs that have some."""
    table = run.steps
    keep = (table.flags & WARM_UP) == 0
    causes = table.causes_ns[keep]
    machine = sum(causes[:, CAUSES.index(name)] for name in MACHINE)
    wall = table.wall_ns[keep]
    parts = [wall, wall - machine, causes, table.phases_ns[keep]]
    if devices:
        steps = [device.steps for device in run.devices]
        for name in ("busy_ns", "idle_ns", "idle_causes_ns"):
            parts.append(np.sum([getattr(table, name) for table in steps], axis=0)[keep])
    values = np.column_stack(parts) / 1e6
    count = table.count[keep]
    return Sample(
        values=values,
        columns=COLUMNS + DEVICE_COLUMNS if devices else COLUMNS,
        count=count.astype(np.float64),
        steps=int(count.sum()),
        left_out=int(table.count[~keep].sum()),
        steps_per_row=int(table.count.max()) if len(table.count) else 1,
    )
