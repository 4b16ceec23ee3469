"""What TrainPerfCallback does at each of the Trainer's events."""

from __future__ import annotations

import functools
import sys
from typing import Any

from trainperf.integrations.fit_callback import FitCallback
from trainperf.integrations.transformers_fit import TransformersFit

_MAX_FRAMES = 12


class TrainPerfHooks(FitCallback):
    """Watches trainer.train(), writes a run file, and prints at the end why training was slow.

        Trainer(..., callbacks=[TrainPerfCallback()])

    Args:
        path: the run file. None: one in $TRAINPERF_DIR, else in `trainperf/` below args.output_dir.
            With several ranks each writes its own: a.tpr becomes a.rank3.tpr. A second train() writes a-2.tpr.
        log_metrics: add the mean of the steps since the last time to what the Trainer logs each logging_steps, and so
            to everything in report_to: trainperf/step_ms, trainperf/data_wait_ms, trainperf/gil_wait_ms ...
        on_flag: called with each flagged step (a ClosedStep), on the training thread between steps (docs/flags.md).
        name, overwrite, verbose, gil, cuda, sampler_hz, budget, flag_shares: as of trainperf.watch().

    Where it stands in the list of callbacks does not matter. It never raises into training, but at its start
    when the run file cannot be made (with several ranks that rank logs the error, and trains unwatched).
    It adds no collective and no synchronisation, and keeps nothing in checkpoints.
    """

    _fit: TransformersFit | None = None  # the one that runs
    _training = 0  # > 0: in trainer.train(), which tells us when it raises

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        trainer = _calling_trainer()
        if trainer is not None and not isinstance(vars(trainer).get("train"), _Train):
            trainer.train = _Train(trainer.train, self)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._fit is not None:
            if self._training:  # auto_find_batch_size begins again
                self._fit.began_again(args)
                return
            self._end(None, ended=False)  # the one before was left without a word
        watch, own = self._begin_watch(
            str(getattr(args, "output_dir", "") or ""),
            rank=int(getattr(args, "process_index", 0)),
            world_size=int(getattr(args, "world_size", 1)),
        )
        self._fit = TransformersFit(self, watch, own=own, args=args, state=state, log_metrics=self._log_metrics)
        self._fit.begin(_calling_trainer())  # what interrupts it finds us, by _Train

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._end(None)

    def _end(self, error: BaseException | None, *, ended: bool = True) -> None:
        fit, self._fit = self._fit, None
        if fit is not None:
            fit.end(error, ended=ended)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_training": 0}


class _Train:
    """trainer.train of a trainer that has our callback: no event tells that training raised."""

    def __init__(self, train: Any, callback: TrainPerfHooks) -> None:
        functools.update_wrapper(self, train)
        self._callback = callback

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        callback = self._callback
        callback._training += 1
        try:
            return self.__wrapped__(*args, **kwargs)  # type: ignore[attr-defined]
        except BaseException as error:
            callback._end(error)
            raise
        finally:
            callback._training -= 1


def _calling_trainer() -> Any:
    """The Trainer whose event this is, which no event is given: the `self` of its frame. None when it is not found."""
    kind = getattr(sys.modules.get("transformers.trainer"), "Trainer", None)
    frame = sys._getframe(1)
    for _ in range(_MAX_FRAMES):
        if frame.f_back is None or kind is None:
            return None
        frame = frame.f_back
        trainer = frame.f_locals.get("self")
        if isinstance(trainer, kind):
            return trainer
    return None
