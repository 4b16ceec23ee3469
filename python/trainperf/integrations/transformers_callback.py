"""What TrainPerfCallback does at each of the Trainer's events."""

from __future__ import annotations

import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

from trainperf.hooks.patch import AnyFunction, Patch
from trainperf.integrations.fit_callback import FitCallback
from trainperf.integrations.transformers_fit import TransformersFit

try:
    from trainperf._native import nothing
except ImportError:  # the core

    def nothing(*args: Any, **kwargs: Any) -> None:
        return None


if TYPE_CHECKING:
    from trainperf.watch import Watch

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

    Its position in the list of callbacks does not matter. It never raises into training, but at its start
    when the run file cannot be made (with several ranks that rank logs the error, and trains unwatched).
    It adds no collective and no synchronisation, and keeps nothing in checkpoints.
    """

    _fit: TransformersFit | None = None  # the one that runs
    _trainer: weakref.ref[Any] | None = None  # its trainer
    _training = 0  # > 0: in trainer.train(), and told when it raises
    _stepping = False  # its first step has begun

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        trainer = _calling_trainer()
        if trainer is not None:
            raised.expect(trainer)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._fit is None:
            _wake(vars(self))  # who had patched it while it trained may have put it back after our end
        else:
            if self._training:  # auto_find_batch_size begins again
                self._fit.began_again(args, state)
                return
            self._end(None, ended=False)  # the one before was left without a word
        trainer = _calling_trainer()
        watch, own = self._begin_watch(
            str(getattr(args, "output_dir", "") or ""),
            rank=int(getattr(args, "process_index", 0)),
            world_size=int(getattr(args, "world_size", 1)),
        )
        self._fit = TransformersFit(self, watch, own=own, args=args, state=state)
        self._trainer = weakref.ref(trainer) if trainer is not None else None
        if own is not None:
            own.end_if_over = self._end_if_over
        self._fit.begin(trainer, log_metrics=self._log_metrics)  # what interrupts it finds us, by `raised`

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._fit is not None and not self._stepping:
            self._stepping = True
            self._fit.steps_begin()
            _quieten(self)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._end(None)

    def _end(self, error: BaseException | None, *, ended: bool = True) -> None:
        fit, self._fit, self._stepping = self._fit, None, False
        _wake(vars(self))
        if fit is not None:
            fit.end(error, ended=ended)

    def _end_if_over(self) -> None:
        """Where it raised, and nobody told us."""
        fit = self._fit
        if fit is None or self._training or fit.thread != threading.get_ident() or _trains_here(self._trainer):
            return
        self._end(None, ended=False)

    @property
    def watch(self) -> Watch:
        self._end_if_over()
        return super().watch

    def __getstate__(self) -> dict[str, Any]:
        state = {**super().__getstate__(), "_training": 0, "_trainer": None, "_stepping": False}
        _wake(state)
        return state


def _quieten(callback: TrainPerfHooks) -> None:
    """Until its training ends: where its class has nothing to do at an event, or no more, the object has a function in
    C for it. In Python the keywords of an event, which go into a dictionary, make it some microseconds, four times a
    step. What a subclass, a class beside ours or somebody else's patch does at an event stays."""
    base = next((kind for kind in type(callback).__mro__ if kind.__name__ == "TrainerCallback"), object)
    for event, empty in list(vars(base).items()):
        code = getattr(empty, "__code__", None)
        if not event.startswith("on_") or code is None or code.co_names or code.co_freevars or _has_defaults(empty):
            continue
        if getattr(type(callback), event) in (empty, TrainPerfHooks.on_step_begin):
            vars(callback).setdefault(event, nothing)


def _has_defaults(function: Any) -> bool:
    return bool(function.__defaults__ or function.__kwdefaults__)


def _wake(attributes: dict[str, Any]) -> None:
    for event in [name for name, value in attributes.items() if value is nothing]:
        del attributes[event]


class _Raised:
    """Hears when trainer.train() raises, which no event tells.

    `Trainer.train` is wrapped while there is a trainer that has our callback and has not trained yet: from its
    on_init_end on, as wrapping it in on_train_begin is too late for the call that is running. The trainer itself gets
    nothing, so it is freed, and can be pickled, as usual.
    """

    def __init__(self) -> None:
        self._expected: dict[int, weakref.ref[Any]] = {}
        self._patch: Patch | None = None

    def expect(self, trainer: Any) -> None:
        key = id(trainer)
        self._expected[key] = weakref.ref(trainer, lambda _: self._forget(key))
        if self._patch is None:
            self._patch = Patch(_trainer_class(), "train", self._wrap)

    def _forget(self, key: int) -> None:
        self._expected.pop(key, None)
        if not self._expected and self._patch is not None:
            patch, self._patch = self._patch, None
            patch.remove()

    def _wrap(self, original: AnyFunction) -> AnyFunction:
        def train(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            callbacks = getattr(getattr(trainer, "callback_handler", None), "callbacks", ())
            ours = [callback for callback in callbacks if isinstance(callback, TrainPerfHooks)]
            for callback in ours:
                callback._training += 1
            try:
                return original(trainer, *args, **kwargs)
            except BaseException as error:
                for callback in ours:
                    callback._end(error)
                raise
            finally:
                for callback in ours:
                    callback._training -= 1
                self._forget(id(trainer))

        return train


raised = _Raised()


def _trainer_class() -> Any:
    return getattr(sys.modules.get("transformers.trainer"), "Trainer", None)


def _trains_here(reference: weakref.ref[Any] | None) -> bool:
    """Whether this thread is in its train(). One that is no more does not train."""
    trainer = reference() if reference is not None else None
    frame = sys._getframe(1).f_back
    while trainer is not None and frame is not None:
        if frame.f_code.co_name == "train" and frame.f_locals.get("self") is trainer:
            return True
        frame = frame.f_back
    return False


def _calling_trainer() -> Any:
    """The Trainer whose event this is, which no event is given: the `self` of its frame. None when it is not found."""
    kind = _trainer_class()
    frame = sys._getframe(1)
    for _ in range(_MAX_FRAMES):
        if frame.f_back is None or kind is None:
            return None
        frame = frame.f_back
        trainer = frame.f_locals.get("self")
        if isinstance(trainer, kind):
            return trainer
    return None
