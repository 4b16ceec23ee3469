"""What `trainperf show --json --steps` prints, as a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from trainperf.export.files import replaced
from trainperf.report import json as as_json
from trainperf.report.model import build

if TYPE_CHECKING:
    from trainperf.run import Run


def write(run: Run, path: str) -> None:
    document = as_json.to_dict(build(run)) | {"per_step": as_json.per_step(run)}
    with replaced(path) as made, open(made, "w", encoding="utf-8") as file:
        json.dump(document, file, allow_nan=False)
        file.write("\n")
