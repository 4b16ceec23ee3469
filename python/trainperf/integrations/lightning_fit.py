"""One trainer.fit() under watch: what is put into the trainer for it, and taken out again."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from trainperf.hooks.describe import describe_other_loader
from trainperf.integrations.fit_watch import FitWatch
from trainperf.integrations.lightning_patches import LightningPatches, describe_class, place_of, where
from trainperf.integrations.lightning_tee import Action, make_tee
from trainperf.watch import Watch
from trainperf.watching.phases import PHASES

if TYPE_CHECKING:
    from trainperf.integrations.costs import Cost, CostMeter
    from trainperf.watching.closed_steps import StepTotals


# Of the budget: what the loggers may take for our figures, by whose calls trainperf is slow with a slow logger.
_FIGURES_SHARE = 0.5
_LOOK_AT_METRICS = (2, 20)  # batches after which the module's logged metrics are looked at
_FIGURES = (
    "data_wait",
    "h2d_copy",
    "gil_wait",
    "gc",
    "blocked_io",
    "checkpoint",
    "validation",
    "logging",
    "descheduled",
)
# Of a LightningModule, in the loop: what trains (training_step, optimizer_step) or moves a batch is a phase, and so is
# what is called while it validates or saves.
_MODULE_HOOKS = frozenset(
    f"on_{at}"
    for at in (
        *("train_epoch_start", "train_batch_start", "before_zero_grad", "before_backward"),
        *("after_backward", "before_optimizer_step", "train_batch_end", "train_epoch_end"),
    )
)
_FACTS = (
    *("accumulate_grad_batches", "val_check_interval", "check_val_every_n_epoch", "log_every_n_steps", "max_epochs"),
    *("max_steps", "world_size", "num_nodes", "precision", "limit_train_batches", "reload_dataloaders_every_n_epochs"),
)


class LightningFit:
    """Nothing of it raises into the training."""

    def __init__(self, trainer: Any, callback: Any, watch: Watch, *, own: FitWatch | None) -> None:
        self.batches_ended = 0
        self._trained = False
        self._trainer = trainer
        self._callback = callback
        self._watch = watch
        self._own = own
        self._tee: Any = None
        self._meter: CostMeter | None = None
        self._patches: LightningPatches | None = None
        self._progress_bar: list[str] | None = None  # not looked at yet
        self._logged: StepTotals | None = None  # None: figures are not logged
        self._figures_ns = 0  # that the loggers took for them
        self._figures_since_ns = 0
        self._figures_share = 0.0
        self._figures_wait = False

    def begin(self, *, log_metrics: bool, budget: float) -> None:
        """`budget`: the share of the training's time that all of trainperf may cost.

        A Ctrl-C in it passes through: end() then takes out what is in by then.
        """
        context = self._watch.context
        if context is None:  # disabled, or no core
            return
        self._context = context
        try:
            self._install()
            self._figures_share = _FIGURES_SHARE * budget
            self._logged = self._watch.step_totals if log_metrics and self._trainer.loggers else None
        except Exception as error:
            self._failed(error)

    def _install(self) -> None:
        from trainperf.integrations.costs import CostMeter  # here: it needs the core

        trainer, context = self._trainer, self._context
        phases = {name: number for number, name in enumerate(PHASES)}
        self._transfer = (
            partial(context.native.begin_phase, phases["transfer"]),
            partial(context.native.end_phase, phases["transfer"]),
        )
        meter = self._meter = CostMeter(context)
        self._other = (partial(meter.enter, None, meter.PHASE, phases["other"]), meter.leave)
        self._patches = LightningPatches(context, meter, phases)
        self._patches.install(trainer)
        self._tee = make_tee(trainer.profiler, self._look_up)
        trainer.profiler = self._tee
        context.session.set_tier("lightning_profiler", "exact")
        self._describe()

    # What the profiler's actions are.

    def _look_up(self, name: str) -> Action | None:
        try:
            return self._find(name)
        except Exception as error:
            self._context.fail("lightning", error)
            return None

    def _find(self, name: str) -> Action | None:
        meter = self._meter
        assert meter is not None
        if name.startswith("[Callback]"):
            key, _, hook = name.removeprefix("[Callback]").rpartition(".")
            cost = self._callback_cost(key, hook)
            return None if cost is None else (partial(meter.enter, cost, meter.CALLBACK), meter.leave)
        if name.endswith("].train_dataloader_next"):
            fetch = self._fetch_of_other_loaders()
            return fetch if fetch is not None else (partial(self._first_batch_begins, name), _nothing)
        if name.startswith("[Strategy]"):
            # From the host to the host nothing moves.
            moves = name.endswith(".batch_to_device") and self._trainer.strategy.root_device.type != "cpu"
            return self._transfer if moves else None
        if name.startswith("[LightningModule]"):
            return self._module_hook(name.rpartition(".")[2])
        return None

    def _module_hook(self, hook: str) -> Action | None:
        module, meter = self._trainer.lightning_module, self._meter
        assert meter is not None
        if hook == "on_after_batch_transfer":
            return self._other if _overrides(module, hook, "DataHooks") else None
        if hook not in _MODULE_HOOKS or not _overrides(module, hook, "ModelHooks"):
            return None
        cost = meter.cost_of(module, "lightning_module", lambda: describe_class(type(module)), hook)
        if cost is None:
            return None
        cost.at = place_of(getattr(module, hook)) or where(type(module), hook)
        # What is called between two phases is the loop's, as a callback's hook is; in one, its phase stays what it is.
        kind = meter.CALLBACK if hook.startswith("on_train_") else meter.PLAIN
        return partial(meter.enter, cost, kind), meter.leave

    def _callback_cost(self, key: str, hook: str) -> Cost | None:
        meter = self._meter
        assert meter is not None
        for callback in self._trainer.callbacks:
            if callback is not self._callback and callback.state_key == key and _overrides(callback, hook, "Callback"):
                description = {**describe_class(type(callback)), "key": key}
                cost = meter.cost_of(callback, "callback", lambda: description, hook)  # noqa: B023  # called at once
                if cost is not None:
                    cost.at = where(type(callback), hook)
                return cost
        return None

    def _first_batch_begins(self, name: str) -> None:
        if self._meter is not None:
            self._meter.counting = True
        if self._tee is not None:
            self._tee.forget(name)

    def _fetch_of_other_loaders(self) -> Action | None:
        """A fetch from what is no DataLoader, which marks its own fetches; None when that is all there is."""
        from torch.utils.data import DataLoader

        loaders = getattr(getattr(self._trainer.fit_loop, "_combined_loader", None), "flattened", None)
        if not loaders or any(isinstance(loader, DataLoader) for loader in loaders):
            return None
        native, meter, first = self._context.native, self._meter, loaders[0]
        assert meter is not None
        try:
            number = self._context.objects.id_of(first, "loader", lambda: describe_other_loader(first))
        except TypeError:  # a list has no weak references
            number = 0

        handled: list[BaseException | None] = []  # by fetches that have begun: what their callers were handling

        def begin() -> None:
            handled.append(sys.exc_info()[1])
            meter.counting = True
            native.begin(native.FETCH, number)

        def end() -> None:
            raised, before = sys.exc_info()[1], handled.pop() if handled else None
            if raised is None or raised is before:  # Lightning calls us in a finally, and does not say
                native.end(native.FETCH, native.FETCHED_BATCH)
            else:
                exhausted = isinstance(raised, StopIteration)
                native.end(native.FETCH, native.FETCH_EXHAUSTED if exhausted else native.FETCH_RAISED)

        return begin, end

    # The trainer's hooks.

    def on_train_start(self) -> None:
        self._trained = True
        self._figures_since_ns = time.perf_counter_ns()
        if self._meter is not None:
            try:
                self._mark_fetched_ahead()
            except Exception as error:
                self._context.fail("lightning", error)

    def _mark_fetched_ahead(self) -> None:
        """Batches that are there before the profiler is told of any: without them the last one has no step."""
        fetch = self._fetch_of_other_loaders()
        if fetch is not None:
            for _ in getattr(getattr(self._trainer.fit_loop, "_data_fetcher", None), "batches", ()):
                fetch[0]()
                fetch[1]()

    def on_batch_end(self) -> None:
        self.batches_ended += 1
        if self.batches_ended in _LOOK_AT_METRICS:
            try:
                self._look_at_metrics()
            except Exception as error:
                self._context.fail("lightning", error)
        if self._logged is not None:
            try:
                self._log_figures(self._logged)
            except Exception as error:
                self._logged = None
                self._context.fail("lightning_figures", error)

    def _log_figures(self, before: StepTotals) -> None:
        """What the steps took that have closed since the last time, to every logger; never by self.log(). Slow loggers
        get them less often."""
        trainer = self._trainer
        if not self._lightning_logs():
            return
        begun_ns = time.perf_counter_ns()
        if self._figures_ns > self._figures_share * (begun_ns - self._figures_since_ns):
            if not self._figures_wait:
                self._figures_wait = True
                self._context.session.set_tier(
                    "lightning_figures", "partly", "the loggers are too slow to have them each time"
                )
            return
        now = self._watch.step_totals
        steps = now.since(before)
        if not steps.steps:
            return
        self._logged = now
        figures = {"step_ms": steps.mean_ms()}
        figures |= {f"{cause}_ms": steps.mean_ms(cause) for cause in _FIGURES}
        figures |= {f"{flag}_steps": float(count) for flag, count in steps.flags.items()}
        step = getattr(trainer.fit_loop.epoch_loop, "_batches_that_stepped", trainer.global_step)
        meter, native = self._meter, self._context.native
        assert meter is not None
        native.begin(native.LOGGING)
        try:
            meter.ours = True
            for logger in trainer.loggers:
                separator = getattr(logger, "group_separator", "/")
                logger.log_metrics({f"trainperf{separator}{name}": value for name, value in figures.items()}, step=step)
        finally:
            native.end(native.LOGGING)
            meter.ours = False
            took_ns = time.perf_counter_ns() - begun_ns
            self._figures_ns += took_ns
            meter.add_own(took_ns)

    def _lightning_logs(self) -> bool:
        """Whether it logs metrics after this batch: of those that accumulate gradients, after the last."""
        trainer = self._trainer
        accumulates = getattr(trainer.fit_loop, "_should_accumulate", None)
        if accumulates is not None and trainer.lightning_module.automatic_optimization and accumulates():
            return False
        every = trainer.log_every_n_steps
        regular = bool(every) and self.batches_ended % every == 0
        return bool(getattr(getattr(trainer, "_logger_connector", None), "should_update_logs", regular))

    def _look_at_metrics(self) -> None:
        """Names of the metrics that the progress bar shows of every batch; without reading a value off a device."""
        results = getattr(self._trainer, "_results", None) or {}
        self._progress_bar = sorted(
            key for key, metric in results.items() if metric.meta.prog_bar and getattr(metric.meta, "on_step", False)
        )

    def _describe(self) -> None:
        trainer, session = self._trainer, self._context.session
        package = type(trainer).__module__.partition(".trainer")[0]
        version = str(getattr(sys.modules.get(package), "__version__", ""))
        facts: dict[str, Any] = {"package": package, "version": version, "strategy": type(trainer.strategy).__name__}
        for name in _FACTS:
            facts[name] = getattr(trainer, name, None)
        facts["progress_bar_metrics"] = self._progress_bar
        facts["batches"] = self.batches_ended
        facts["global_step"] = int(trainer.global_step)
        facts["epochs"] = int(trainer.current_epoch)
        session.set_meta("framework", f"{package} {version}".strip())
        session.set_meta("lightning", json.dumps(facts, default=str))

    # The end.

    def stop(self, exception: BaseException | None) -> None:
        """Ends the watch, when it is ours; what is in the trainer goes in any case. Idempotent."""
        try:
            self._take_out()
        finally:  # also after a Ctrl-C in it: a watch that nobody ends would take in the next training
            if self._own is not None:
                self._own.end(exception)

    def end(self, exception: BaseException | None) -> bool:
        """stop(), and the verdict. True: there was no training, and nothing is left of the watch."""
        own = self._own
        if own is not None and not self._trained:
            self._take_out()
            own.discard()
            return True
        self.stop(exception)
        if own is not None:
            own.tell()
        return False

    def _take_out(self) -> None:
        tee, self._tee = self._tee, None
        patches, self._patches = self._patches, None
        meter, self._meter = self._meter, None
        if tee is None and patches is None and meter is None:
            return
        try:
            if tee is not None and self._trainer.profiler is tee:
                self._trainer.profiler = tee.inner
        finally:
            if patches is not None:
                patches.remove()
        try:
            if meter is not None:
                meter.close()
            self._describe()
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self._context.fail("lightning", error)
        patches, self._patches = self._patches, None
        if patches is not None:
            patches.remove()


def _nothing() -> None:
    pass


def _overrides(thing: Any, hook: str, base: str) -> bool:
    """Whether the object has that hook of its own, or only Lightning's empty one."""
    if hook in getattr(thing, "__dict__", {}):
        return True  # LambdaCallback
    for kind in type(thing).__mro__:
        if hook in vars(kind):
            return kind.__name__ != base
    return False
