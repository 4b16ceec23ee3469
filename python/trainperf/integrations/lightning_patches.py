"""What Lightning's profiler is not told: validation as a whole, each logger, and what else the trainer does.

Methods of the trainer's own loops are replaced on the object, loggers' on their class; remove() takes out what is still
ours. Private names of Lightning are looked for, and where one is not there the run says what it lacks.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from trainperf.hooks.patch import Patch
from trainperf.integrations.on_objects import OnObjects

if TYPE_CHECKING:
    from types import FrameType

    from trainperf.hooks.context import Context
    from trainperf.integrations.costs import CostMeter

_LOGGER_METHODS = ("log_metrics", "log_hyperparams", "log_graph", "save", "after_save_checkpoint", "finalize")


class LightningPatches:
    """Everything of one fit: install(), remove()."""

    def __init__(self, context: Context, meter: CostMeter, phases: Mapping[str, int]) -> None:
        self._context = context
        self._meter = meter
        self._phases = phases
        self._on_objects = OnObjects()
        self._on_classes: list[Patch] = []

    def install(self, trainer: Any) -> None:
        epoch_loop = getattr(getattr(trainer, "fit_loop", None), "epoch_loop", None)
        validation = getattr(epoch_loop, "val_loop", None)
        self._replace(validation, "run", "validation", lambda original: self._in_phase(original, "validation"))
        self._replace(trainer, "save_checkpoint", "checkpoint", lambda original: self._in_phase(original, "checkpoint"))
        self._replace(
            getattr(trainer, "_logger_connector", None),
            "on_batch_end",
            "progress_bar_metrics",
            lambda original: self._measured(
                original, trainer, "lightning", "metrics after each batch", "_logger_connector.on_batch_end"
            ),
        )
        if getattr(trainer, "world_size", 1) > 1 and hasattr(epoch_loop, "_broadcast_sigterm_tensor"):
            self._replace(
                epoch_loop,
                "_broadcast_sigterm_tensor",
                "sigterm_broadcast",
                lambda original: self._measured(
                    original, epoch_loop, "lightning", "SIGTERM broadcast", "_broadcast_sigterm_tensor"
                ),
            )
        package = sys.modules[type(trainer).__module__.partition(".")[0]]
        self._lightning = os.path.join(os.path.dirname(str(package.__file__)), "")
        for kind in dict.fromkeys(type(logger) for logger in trainer.loggers):
            for name in _LOGGER_METHODS:
                self._patch_logger(kind, name)

    def remove(self) -> None:
        self._on_objects.remove()
        while self._on_classes:
            self._on_classes[-1].remove()
            self._on_classes.pop()

    def _replace(self, owner: Any, name: str, what: str, make: Callable[[Any], Any]) -> None:
        why = self._on_objects.replace(owner, name, make)
        self._context.session.set_tier(f"lightning_{what}", "off" if why else "exact", why)

    def _in_phase(self, original: Any, name: str) -> Any:
        meter, phase = self._meter, self._phases[name]

        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not meter.here():
                return original(self, *args, **kwargs)
            meter.enter(None, meter.PHASE, phase)
            try:
                return original(self, *args, **kwargs)
            finally:
                meter.leave()

        return run

    def _measured(self, original: Any, thing: Any, kind: str, name: str, hook: str) -> Any:
        meter = self._meter
        cost = meter.cost_of(thing, kind, lambda: {"name": name, "class": type(thing).__qualname__}, hook)

        def measured(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not meter.here():
                return original(self, *args, **kwargs)
            meter.enter(cost, meter.PLAIN)
            try:
                return original(self, *args, **kwargs)
            finally:
                meter.leave()

        return measured

    def _patch_logger(self, kind: type, name: str) -> None:
        found = inspect.getattr_static(kind, name, None)
        if not callable(found) or isinstance(found, staticmethod):
            return  # it has none, makes them up (DummyLogger), or a function that is not told which logger it is
        self._on_classes.append(Patch(kind, name, lambda original: self._wrap_logger(original, name)))

    def _wrap_logger(self, original: Any, name: str) -> Any:
        meter, at = self._meter, place_of(original)

        def caller(frame: FrameType) -> str:
            """Who calls the logger beside the trainer and what comes with it: " by Mine.on_x at train.py:12"."""
            code = frame.f_code
            if code.co_filename.startswith(self._lightning) or code.co_name == name:  # a logger calls its base class'
                return ""
            qualname = getattr(code, "co_qualname", code.co_name).rpartition("<locals>.")[2]
            return f" by {qualname} at {code.co_filename}:{frame.f_lineno}"

        def write(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not meter.here() or meter.ours:
                return original(self, *args, **kwargs)
            hook = name + caller(sys._getframe(1))
            cost = meter.cost_of(self, "logger", lambda: describe_class(type(self)), hook)
            if cost is None or meter.inside(cost):
                return original(self, *args, **kwargs)
            cost.at = at
            meter.enter(cost, meter.LOGGING)
            try:
                return original(self, *args, **kwargs)
            finally:
                meter.leave()

        return write


def describe_class(kind: type) -> dict[str, Any]:
    return {"class": kind.__qualname__, "module": kind.__module__, "at": where(kind)}


def where(kind: type, hook: str = "") -> str:
    """file:line of the class' hook, else of its first method; "" when it has no source."""
    functions = [inspect.getattr_static(kind, hook, None)] if hook else []
    functions += [value for value in vars(kind).values() if callable(value)]
    return next((place for function in functions if (place := place_of(function))), "")


def place_of(function: Any) -> str:
    """file:line of what it is a wrapper of; "" when it has no source."""
    code = getattr(inspect.unwrap(function) if callable(function) else None, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""
