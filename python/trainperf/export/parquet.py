"""The table of steps as Parquet: one file, or a folder partitioned by run and rank for a fleet's.

SELECT run, rank, sum(data_wait_ns) / sum(wall_ns) AS waiting
FROM read_parquet('steps/**/*.parquet', hive_partitioning = true) GROUP BY ALL ORDER BY waiting DESC
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING
from urllib.parse import quote

from trainperf.export.files import needs, rank, replaced, run_name
from trainperf.export.table import columns
from trainperf.report.sharing import sent_meta

if TYPE_CHECKING:
    from trainperf.run import Run


def write(run: Run, path: str) -> None:
    """One file. The run's meta is in the schema's metadata, as JSON under "trainperf"."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise needs("pyarrow", "parquet") from error
    table = pa.table(columns(run)).replace_schema_metadata({"trainperf": json.dumps(sent_meta(run.meta))})
    with replaced(path) as made:
        pq.write_table(table, made, compression="zstd")


def place(run: Run, folder: str) -> str:
    """Where the run's file goes in a folder that is partitioned as Hive, DuckDB and Spark read it."""
    return os.path.join(folder, f"run={quote(run_name(run), safe=' ')}", f"rank={rank(run)}", "steps.parquet")


def write_partition(run: Run, folder: str) -> None:
    path = place(run, folder)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write(run, path)
