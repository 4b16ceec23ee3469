"""What the TrainPerf callback does at each of Lightning's hooks."""

from __future__ import annotations

from typing import Any

from trainperf.integrations.fit_callback import FitCallback
from trainperf.integrations.lightning_fit import LightningFit
from trainperf.log import log

_TUNERS = frozenset({"LearningRateFinder", "BatchSizeFinder"})


class TrainPerfHooks(FitCallback):
    """Watches trainer.fit(), writes a run file, and prints at the end why training was slow.

        Trainer(callbacks=[TrainPerf()])

    Args:
        path: the run file. None: one in $TRAINPERF_DIR, else in `trainperf/` below the trainer's default_root_dir.
            With several ranks each writes its own: a.tpr becomes a.rank3.tpr. A second fit writes a-2.tpr.
        log_metrics: log the mean of the steps since the last time to every logger of the trainer, at
            log_every_n_steps: trainperf/step_ms, trainperf/data_wait_ms, trainperf/gil_wait_ms and the like.
        on_flag: called with each flagged step (a ClosedStep), on the training thread between steps (docs/flags.md).
        name, overwrite, verbose, gil, cuda, sampler_hz, budget, flag_shares: as of trainperf.watch().

    Its position in the list of callbacks does not matter. It never raises into training, but at its start
    when the run file cannot be made (with several ranks that rank logs the error, and trains unwatched).
    It adds no collective, and keeps nothing in checkpoints.
    """

    _fit: LightningFit | None = None  # the one that runs

    # Lightning's hooks, in the order of their calls.

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self._end_fit(None)  # the one before was left without a word
        if not self._watches(trainer):
            log.warning("there are two TrainPerf callbacks: only the first one watches")
            return
        # A tuner tries things out in its own on_fit_start, with other callbacks: that is no training.
        mine = trainer.callbacks.index(self) if self in trainer.callbacks else 0
        if not any(_TUNERS & {kind.__name__ for kind in type(c).__mro__} for c in trainer.callbacks[mine + 1 :]):
            self._start(trainer)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if self._fit is None and self._watches(trainer):
            self._start(trainer)
        if self._fit is not None:
            self._fit.on_train_start()

    def _watches(self, trainer: Any) -> bool:
        return next((c for c in trainer.callbacks if isinstance(c, TrainPerfHooks)), self) is self

    def _start(self, trainer: Any) -> None:
        watch, own = self._begin_watch(
            str(getattr(trainer, "default_root_dir", "") or ""),
            rank=int(getattr(trainer, "global_rank", 0)),
            world_size=int(getattr(trainer, "world_size", 1)),
        )
        self._fit = LightningFit(trainer, self, watch, own=own)
        # What interrupts it finds us, by on_exception.
        self._fit.begin(log_metrics=self._log_metrics, budget=self._settings.budget)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self._fit is not None:
            self._fit.on_batch_end()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self._fit is not None:
            self._fit.stop(None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._end_fit(exception)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage == "fit":
            self._end_fit(None)

    def _end_fit(self, exception: BaseException | None) -> None:
        fit, self._fit = self._fit, None
        if fit is not None and fit.end(exception):
            self._fits -= 1
            self._watch = None
