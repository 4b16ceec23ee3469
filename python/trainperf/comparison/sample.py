"""The steps of a run that are compared: rows of the run file without warm-ups, in ms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainperf.comparison.bootstrap import Floats
from trainperf.run import Run
from trainperf.runfile import WARM_UP
from trainperf.runfile.schema import CAUSES, PHASES

MACHINE = ("descheduled", "throttled")  # what the machine does to a loop, not the loop

Ints = npt.NDArray[np.int64]
Rows = tuple[tuple[str, ...], ...]  # the causes of each row of a table, mostly one


@dataclass(frozen=True, slots=True)
class Sample:
    """Row i is the sum over `count[i]` neighbouring steps."""

    values: Floats  # (rows, columns), ms
    columns: tuple[str, ...]  # of causes: the names of their rows
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


def rows_of(runs: Iterable[Run]) -> Rows:
    """Causes that too few samples of any of the runs separate are one row (findings/split.py)."""
    together = {cause for run in runs if run.judged.unsplit is not None for cause in run.judged.unsplit.causes}
    # Python first, as findings.split names them.
    both = tuple(sorted((c for c in CAUSES if c in together), key=lambda c: c != "python"))
    alone = tuple((c,) for c in CAUSES if c not in together)
    return (both, *alone) if both else alone


def row_name(causes: Sequence[str]) -> str:
    return "+".join(causes)


def sample(run: Run, rows: Rows, *, devices: bool = False) -> Sample:
    """`devices`: what they did, summed, too; for runs that have some."""
    table = run.steps
    keep = (table.flags & WARM_UP) == 0
    causes = table.causes_ns[keep]
    machine = sum(causes[:, CAUSES.index(name)] for name in MACHINE)
    wall = table.wall_ns[keep]
    names = [row_name(row) for row in rows]
    columns = ["wall", "loop", *names, *(f"phase {phase}" for phase in PHASES)]
    parts = [wall, wall - machine, _by_row(causes, rows), table.phases_ns[keep]]
    if devices:
        steps = [device.steps for device in run.devices]
        busy, idle, idle_causes = (
            np.sum([getattr(table, name) for table in steps], axis=0)[keep]
            for name in ("busy_ns", "idle_ns", "idle_causes_ns")
        )
        columns += ["device busy", "device idle", *(f"idle {name}" for name in names)]
        parts += [busy, idle, _by_row(idle_causes, rows)]
    values = np.column_stack(parts) / 1e6
    count = table.count[keep]
    return Sample(
        values=values,
        columns=tuple(columns),
        count=count.astype(np.float64),
        steps=int(count.sum()),
        left_out=int(table.count[~keep].sum()),
        steps_per_row=int(table.count.max()) if len(table.count) else 1,
    )


def _by_row(causes: Ints, rows: Rows) -> Ints:
    """A column per row of the table, of one per cause."""
    return np.column_stack([causes[:, [CAUSES.index(c) for c in row]].sum(axis=1) for row in rows])
