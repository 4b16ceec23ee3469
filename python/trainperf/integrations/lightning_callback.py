"""What the TrainPerf callback does at each of Lightning's hooks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from trainperf.errors import TrainperfError
from trainperf.integrations.fit_watch import FitWatch, placed
from trainperf.integrations.lightning_fit import LightningFit
from trainperf.settings import resolve

if TYPE_CHECKING:
    from trainperf.findings.model import Finding
    from trainperf.run import Run
    from trainperf.watch import Watch


class TrainPerfHooks:
    """Watches trainer.fit(), writes a run file, and prints at the end why training was slow.

        Trainer(callbacks=[TrainPerf()])

    Args:
        path: the run file. None: one in $TRAINPERF_DIR, else in `trainperf/` below the trainer's default_root_dir.
            With several ranks each writes its own: a.tpr becomes a.rank3.tpr. A second fit writes a-2.tpr.
        log_metrics: log the mean of the steps since the last time to every logger of the trainer, at
            log_every_n_steps: trainperf/step_ms, trainperf/data_wait_ms, trainperf/gil_wait_ms and the like.
        on_flag: called with each flagged step (a ClosedStep), on the training thread between steps (docs/flags.md).
        name, overwrite, verbose, gil, sampler_hz, budget, flag_shares: as of trainperf.watch().

    Where it stands in the list of callbacks does not matter. It never raises into training, adds no collective, and
    keeps nothing in checkpoints.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        name: str | None = None,
        overwrite: bool = False,
        verbose: bool | None = None,
        log_metrics: bool = True,
        on_flag: Callable[..., Any] | None = None,
        gil: str = "auto",
        sampler_hz: float = 60.0,
        budget: float = 0.01,
        flag_shares: Mapping[str, float] | None = None,
    ) -> None:
        self._settings = resolve(
            path,
            name=name,
            overwrite=overwrite,
            verbose=verbose,
            gil=gil,
            sampler_hz=sampler_hz,
            budget=budget,
            flag_shares=flag_shares,
            on_flag=on_flag,
        )
        self._log_metrics = bool(log_metrics)
        self._fits = 0
        self._fit: LightningFit | None = None  # the one that runs
        self._watch: Watch | None = None  # the last one's

    # What it found.

    @property
    def watch(self) -> Watch:
        """The watch of the last fit. TrainperfError before the first, and in a process that trained in others."""
        if self._watch is None:
            raise TrainperfError(
                "there is no run: trainer.fit() has not run in this process (spawned ranks write their own files)"
            )
        return self._watch

    @property
    def path(self) -> str:
        """The run file of the last fit; "" when there is none in this process."""
        return self._watch.path if self._watch is not None else ""

    @property
    def run(self) -> Run:
        return self.watch.run

    @property
    def findings(self) -> list[Finding]:
        return self.watch.findings

    def summary(self) -> str:
        return self.watch.summary()

    # Lightning's hooks, in the order of their calls.

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage != "fit":
            return
        self._end_fit(None)  # the one before was left without a word
        self._start(trainer)

    def _start(self, trainer: Any) -> None:
        from trainperf.watch import _current_here

        running = _current_here()
        if running is not None and not running.gives_way:
            watch: Watch = running  # the program's own: it ends and tells it
            own = False
        else:
            self._fits += 1
            settings = placed(
                self._settings,
                str(getattr(trainer, "default_root_dir", "") or ""),
                rank=int(getattr(trainer, "global_rank", 0)),
                world_size=int(getattr(trainer, "world_size", 1)),
                fit=self._fits,
            )
            watch, own = FitWatch(settings), True
            watch.__enter__()
        self._watch = watch
        self._fit = LightningFit(trainer, self, watch, own=own, log_metrics=self._log_metrics)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        fit = self._fit
        if fit is None:
            return
        if fit.own and fit.batches_begun:
            # A tuner's trials, which ran without this callback: the training begins here.
            fit.discard()
            self._fits -= 1
            self._fit = None
            self._start(trainer)
        if self._fit is not None:
            self._fit.on_train_start()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self._fit is not None:
            self._fit.on_batch_end(batch_idx)

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

    # What checkpoints and other processes get.

    def state_dict(self) -> dict[str, Any]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_fit": None, "_watch": None}
