"""Steps as metrics of a new MLflow run; the place is a tracking URI (sqlite:///mlflow.db, http://host:5000)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from trainperf.errors import TrainperfError
from trainperf.export.files import needs, run_name
from trainperf.export.metrics import facts, per_step

if TYPE_CHECKING:
    from trainperf.run import Run

_EXPERIMENT = "trainperf"
_BATCH = 1000  # metrics that MLflow takes at once


def write(run: Run, uri: str) -> None:
    try:
        from mlflow.entities import Metric, Param
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
    except ImportError as error:
        raise needs("mlflow") from error
    try:
        client = MlflowClient(uri)
        known = client.get_experiment_by_name(_EXPERIMENT)
        experiment = known.experiment_id if known is not None else client.create_experiment(_EXPERIMENT)
    except (MlflowException, ImportError) as error:  # ImportError: mlflow-skinny has no database
        raise TrainperfError(f"mlflow cannot write to {uri}: {error}") from error
    made = client.create_run(experiment, run_name=run.meta.get("name") or run_name(run)).info.run_id
    status = "FAILED"
    try:
        client.log_batch(made, params=[Param(key, value) for key, value in facts(run).items()])
        now = int(time.time() * 1000)
        waiting: list[Metric] = []
        for step, values in per_step(run):
            if len(waiting) + len(values) > _BATCH:
                client.log_batch(made, metrics=waiting)
                waiting = []
            waiting += [Metric(name, value, now, step) for name, value in values.items()]
        client.log_batch(made, metrics=waiting)
        status = "FINISHED"
    finally:
        client.set_terminated(made, status)
