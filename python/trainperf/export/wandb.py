"""Steps as the history of a new Weights & Biases run; the place is the project. WANDB_MODE=offline keeps it here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.errors import TrainperfError
from trainperf.export.files import needs, run_name
from trainperf.export.metrics import facts, per_step

if TYPE_CHECKING:
    from trainperf.run import Run


def write(run: Run, project: str) -> None:
    try:
        import wandb
    except ImportError as error:
        raise needs("wandb") from error
    try:
        made = wandb.init(project=project, name=run.meta.get("name") or run_name(run), config=facts(run))
    except wandb.errors.Error as error:
        raise TrainperfError(f"wandb cannot begin a run: {error} (WANDB_MODE=offline keeps it here)") from error
    code = 1
    try:
        for step, values in per_step(run):
            made.log(dict(values), step=step)
        code = 0
    finally:
        made.finish(exit_code=code)
