"""Reads the tables of steps, and refuses rows that do not add up."""

from __future__ import annotations

import itertools
from typing import Final

import numpy as np

from trainperf.runfile.records import StepTable
from trainperf.runfile.schema import CAUSES, STEP_COLUMNS, RunDatabase, selected

MAX_NS: Final = 2**62  # 146 years: more is damage, and could overflow a sum
_FIELDS: Final = (
    *("index", "count", "start_ns", "wall_ns", "wall_min_ns", "wall_max_ns", "flags", "fetches", "backwards"),
    *("optimizer_steps", "compile_ns"),
)


def read_steps(database: RunDatabase, table: str) -> StepTable:
    columns = selected(table, STEP_COLUMNS, database.schema_version)
    with database.cursor(f"SELECT {columns} FROM {table} ORDER BY first_step") as cursor:
        try:
            flat = np.fromiter(itertools.chain.from_iterable(cursor), dtype=np.int64)
        except (TypeError, ValueError) as error:
            raise database.damaged(f"table {table} holds something that is no number: {error}") from error
    data = flat.reshape(-1, len(STEP_COLUMNS))
    first = 11
    causes, phases = data[:, first : first + len(CAUSES)], data[:, first + len(CAUSES) :]
    steps = StepTable(
        **{field: data[:, column] for column, field in enumerate(_FIELDS)}, causes_ns=causes, phases_ns=phases
    )
    if len(data):
        # Sums in floating point first: what is near 2**63 would wrap around.
        if np.abs(data.astype(np.float64)).sum(axis=0).max() > MAX_NS:
            raise database.damaged(f"table {table} holds times of more than a hundred years")
        if steps.count.min() < 1 or steps.wall_ns.min() < 0:
            raise database.damaged(f"table {table} has a row of no steps, or of negative time")
        if not (
            np.array_equal(causes.sum(axis=1), steps.wall_ns) and np.array_equal(phases.sum(axis=1), steps.wall_ns)
        ):
            raise database.damaged(f"table {table} has a row whose causes or phases do not sum to its time")
    return steps
