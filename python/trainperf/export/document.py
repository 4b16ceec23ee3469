"""What `trainperf show --json --steps` prints, as a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from trainperf.export.files import replaced
from trainperf.report import json as as_json
from trainperf.report.model import build
from trainperf.report.sharing import homeless, hostless

if TYPE_CHECKING:
    from trainperf.run import Run


def write(run: Run, path: str) -> None:
    document = hostless(as_json.to_dict(build(run))) | {"per_step": as_json.per_step(run)}
    with replaced(path) as made, open(made, "w", encoding="utf-8") as file:
        file.write(homeless(json.dumps(document, allow_nan=False), [run.meta]))
        file.write("\n")
