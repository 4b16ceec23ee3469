"""The table of steps as CSV."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from trainperf.export.files import replaced
from trainperf.export.table import columns

if TYPE_CHECKING:
    from trainperf.run import Run


def write(run: Run, path: str) -> None:
    table = columns(run)
    with replaced(path) as made, open(made, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*(values.astype("int64").tolist() for values in table.values()), strict=True))
