"""One trainer.train() under watch: what is added to the trainer's logs, and what its other callbacks cost."""

from __future__ import annotations

import json
import operator
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainperf.hooks.patch import AnyFunction
from trainperf.integrations.fit_watch import FitWatch
from trainperf.integrations.lightning_patches import describe_class, where
from trainperf.integrations.on_objects import OnObjects
from trainperf.watch import Watch
from trainperf.watching.closed_steps import StepTotals
from trainperf.watching.phases import PHASES

if TYPE_CHECKING:
    from trainperf.integrations.costs import Cost, CostMeter

_FIGURES = ("data_wait", "gil_wait", "blocked_io")  # few: the Trainer prints them too
_FACTS = (
    *("per_device_train_batch_size", "gradient_accumulation_steps", "max_steps", "num_train_epochs", "logging_steps"),
    *(
        "eval_strategy",
        "eval_steps",
        "save_strategy",
        "save_steps",
        "dataloader_num_workers",
        "world_size",
        "report_to",
    ),
)
_EVENTS = (
    *("on_train_begin", "on_epoch_begin", "on_epoch_end", "on_step_begin", "on_substep_end", "on_pre_optimizer_step"),
    *("on_optimizer_step", "on_step_end", "on_evaluate", "on_predict", "on_save", "on_log", "on_prediction_step"),
)
_IN_VALIDATION = ("on_evaluate", "on_predict", "on_prediction_step")
_IDLE = ("DefaultFlowCallback",)  # compares numbers: timing it would cost more
_VALIDATION = PHASES.index("validation")


class TransformersFit:
    """Nothing of it raises into the training."""

    def __init__(self, callback: Any, watch: Watch, *, own: FitWatch | None, args: Any, state: Any) -> None:
        self.thread = threading.get_ident()
        self._callback = callback
        self._watch = watch
        self._own = own
        self._args = args
        self._state = state
        self._first_step = 0
        self._own_loader = ""
        self._meter: CostMeter | None = None
        self._wrapped = OnObjects()
        self._callbacks: list[Any] = []  # the Trainer's own list of them
        self._timed: list[Any] = []
        self._logged: StepTotals | None = None  # None: figures are not logged
        self._context = watch.context  # None: disabled, or no core
        self._figures_before: Callable[[Any, Any], None] | None = None

    def begin(self, trainer: Any, *, log_metrics: bool) -> None:
        """A Ctrl-C in it passes through: end() then takes out what is in by then."""
        if self._context is None:
            return
        # Of a training within another one's callback the outer one's come back at its end.
        self._figures_before = self._context.add_figures
        self._context.add_figures = self._add_figures
        try:
            self._first_step = _global_step(self._state)
            self._own_loader = _own_loader(type(trainer))
            self._logged = self._watch.step_totals if log_metrics else None
            self._describe()
            self._time_callbacks(trainer)
        except Exception as error:
            self._failed(error)

    def began_again(self, args: Any, state: Any) -> None:
        self._state = state
        if self._context is not None:
            size = getattr(args, "per_device_train_batch_size", "?")
            self._context.session.note(f"the Trainer began again, with a batch size of {size} (auto_find_batch_size)")

    # Figures

    def _add_figures(self, trainer: Any, logs: Any) -> None:
        """What the steps took that have closed since the last time: Python floats, which wait for no device."""
        before = self._logged
        if before is None or not isinstance(logs, dict) or "loss" not in logs:
            return
        try:
            now = self._watch.step_totals
            steps = now.since(before)
            if not steps.steps:
                return
            self._logged = now
            logs["trainperf/step_ms"] = round(steps.mean_ms(), 3)
            for cause in _FIGURES:
                logs[f"trainperf/{cause}_ms"] = round(steps.mean_ms(cause), 3)
        except Exception as error:
            self._logged = None
            self._failed(error)

    # Other callbacks

    def _time_callbacks(self, trainer: Any) -> None:
        """Replaces the events that they have of their own, on the objects."""
        assert self._context is not None
        session = self._context.session
        callbacks = getattr(getattr(trainer, "callback_handler", None), "callbacks", None)
        if callbacks is None:
            session.set_tier("callback_costs", "off", "the callback was not called by a Trainer")
            return
        from trainperf.integrations.costs import CostMeter  # here: it needs the core

        self._meter = CostMeter(self._context)
        self._callbacks = callbacks
        session.set_tier("callback_costs", "exact")
        self._time_new_ones()
        self._context.ticker.add("transformers_callback", self._look_for_new_ones)

    def _time_new_ones(self) -> None:
        """Those that came since the last time, and those of which there is another now."""
        meter = self._meter
        assert meter is not None and self._context is not None
        before, self._timed = self._timed, list(self._callbacks)
        for callback in self._timed:
            known = any(callback is one for one in before)
            if known or callback is self._callback or type(callback).__name__ in _IDLE:
                continue
            kind = "logger" if type(callback).__module__.startswith("transformers.integrations") else "callback"
            for event in _EVENTS:
                if _overrides(callback, event):
                    description = describe_class(type(callback))
                    cost = meter.cost_of(callback, kind, lambda: description, event)  # noqa: B023  # called at once
                    if cost is None:
                        self._context.session.set_tier("callback_costs", "partly", "there are too many callbacks")
                    else:
                        cost.at = where(type(callback), event)
                        self._replace(callback, event, cost, kind)

    def _replace(self, callback: Any, event: str, cost: Cost, kind: str) -> None:
        meter = self._meter
        assert meter is not None
        how = meter.CALLBACK
        if event in _IN_VALIDATION:
            how = meter.PHASE
        elif kind == "logger" or event == "on_log":
            how = meter.LOGGING

        def make(original: AnyFunction) -> AnyFunction:
            def timed(self: Any, *args: Any, **kwargs: Any) -> Any:
                if not meter.here():
                    return original(self, *args, **kwargs)
                meter.enter(cost, how, _VALIDATION)
                try:
                    return original(self, *args, **kwargs)
                finally:
                    meter.leave()

            return timed

        self._wrapped.replace(callback, event, make)

    def steps_begin(self) -> None:
        """What the callbacks did before the first step is none of the loop's."""
        if self._meter is not None:
            self._meter.counting = True
            try:
                self._look_for_new_ones()
            except Exception as error:
                self._failed(error)

    def _look_for_new_ones(self) -> None:
        """Some come while it trains. On the ticker, so some times a second."""
        timed, now = self._timed, self._callbacks
        if self._meter is None or not self._meter.here():
            return
        if len(timed) != len(now) or not all(map(operator.is_, timed, now)):
            self._time_new_ones()

    # The end

    def end(self, error: BaseException | None, *, ended: bool) -> None:
        """`ended`: False when the training ended without a word, and nobody knows why."""
        try:
            if self._context is not None:
                self._take_out()
                self._describe()
        except Exception as failure:
            self._failed(failure)
        finally:  # also after a Ctrl-C in it: a watch that nobody ends would take in the next training
            if self._own is not None:
                self._own.end(error, told=ended)
                self._own.tell()

    def _take_out(self) -> None:
        assert self._context is not None
        self._context.add_figures = self._figures_before
        self._context.ticker.discard("transformers_callback", self._look_for_new_ones)
        self._wrapped.remove()
        meter, self._meter = self._meter, None
        if meter is not None:
            meter.close()

    def _describe(self) -> None:
        assert self._context is not None
        version = str(getattr(sys.modules.get("transformers"), "__version__", ""))
        facts: dict[str, Any] = {"version": version, "first_step": self._first_step}
        facts |= {name: getattr(self._args, name, None) for name in _FACTS}
        facts["last_step"] = _global_step(self._state)
        facts["own_loader"] = self._own_loader
        self._context.session.set_meta("framework", f"transformers {version}".strip())
        self._context.session.set_meta("transformers", json.dumps(facts, default=str))

    def _failed(self, error: Exception) -> None:
        if self._context is not None:
            self._context.fail("transformers_callback", error)


def _global_step(state: Any) -> int:
    return int(getattr(state, "global_step", 0) or 0)


def _own_loader(kind: type) -> str:
    """ "Mine.get_train_dataloader", where a Trainer makes its loader itself: the arguments do not set how."""
    for base in kind.__mro__:
        found = vars(base).get("get_train_dataloader")
        if found is not None:
            names = getattr(getattr(found, "__code__", None), "co_names", ())
            is_its = base.__module__.startswith("transformers.") or "get_train_dataloader" in names
            return "" if is_its else f"{base.__qualname__}.get_train_dataloader"
    return ""


def _overrides(callback: Any, event: str) -> bool:
    """Whether it has the event of its own, and not only transformers' empty one."""
    for kind in type(callback).__mro__:
        if event in vars(kind):
            return kind.__name__ != "TrainerCallback"
    return False
