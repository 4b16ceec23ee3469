"""Run.to_pandas()."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.export.files import needs
from trainperf.export.table import columns

if TYPE_CHECKING:
    import pandas as pd

    from trainperf.run import Run


def to_pandas(run: Run) -> pd.DataFrame:
    try:
        import pandas as pd
    except ImportError as error:
        raise needs("pandas", "pandas") from error
    frame = pd.DataFrame(columns(run)).set_index("step")
    frame.attrs["trainperf"] = dict(run.meta)
    return frame
