"""What the parts of a framework's loop cost: each callback's hooks, each logger, and what the framework does itself.

    meter = CostMeter(context)
    cost = meter.cost_of(callback, "callback", describe, "on_train_batch_end")
    meter.enter(cost, meter.CALLBACK)
    try: ...
    finally: meter.leave()

Sums go into the run as the description of an object, about once a second and at the end: no table of their own, and
a run that is killed has them too. A cost's own time is without what is measured inside of it (a checkpoint that a
callback saves). `other_ns` is the part of it that lies in the loop itself: not in validation, logging or a checkpoint,
whoever marks these, and not in a fetch; `named_ns` is what keeps its name wherever it is: collections, waits for the
GIL or for a CPU. Trainings under one watch go on with the sums of the one before.
"""

from __future__ import annotations

import json
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from trainperf._native import StretchMeter, StretchSums
from trainperf.hooks.apart import Apart
from trainperf.hooks.context import Context

_now = time.perf_counter_ns
_PUBLISH_NS = 1_000_000_000
_MAX_COSTS = 1024
_PUBLISHED = ("count", "ns", "own_ns", "other_ns", "named_ns", "max_ns", "at")


class Cost(StretchSums):
    """One hook of one object: sums over the steps of the run."""

    __slots__ = ("at", "hook", "published")

    def __init__(self, number: int, hook: str) -> None:
        self.number = number
        self.hook = hook
        self.at = ""  # file:line
        self.published = 0  # of its count


class _Sums:
    """Of one watch."""

    def __init__(self) -> None:
        self.costs: dict[tuple[int, str], Cost] = {}
        self.objects: dict[int, tuple[str, Mapping[str, Any]]] = {}
        self.own_ns = 0


_sums: weakref.WeakKeyDictionary[Context, _Sums] = weakref.WeakKeyDictionary()


class CostMeter(StretchMeter):
    """Used on the thread that made it, until close(): elsewhere enter() and leave() must not be called (see here())."""

    def __init__(self, context: Context) -> None:
        # While a training on another thread measures, the hooks tell that one alone.
        native = context.native
        self._apart = context.apart if context.apart.thread in (0, threading.get_ident()) else Apart()
        super().__init__(self._apart, native.begin, native.end, native.begin_phase, native.end_phase)
        self._context = context
        self._sums = sums = _sums.setdefault(context, _Sums())
        self._costs, self._objects = sums.costs, sums.objects
        self._taken = self._apart.take()
        self._published_ns = _now()
        self.counting = False  # only what happens between the first and the last batch is summed
        self.ours = False  # we are writing to the user's loggers: that is no cost of theirs
        context.ticker.add("costs", self._tick)

    def cost_of(self, thing: Any, kind: str, describe: Callable[[], Mapping[str, Any]], hook: str) -> Cost | None:
        """`hook`: its name, and of a logger's that the program calls itself "log_metrics by Mine.on_x at train.py:12".
        None when there are too many already."""
        number = self._context.objects.id_of(thing, kind, describe)
        known = self._costs.get((number, hook))
        if known is not None:
            return known
        if number == 0 or len(self._costs) >= _MAX_COSTS:
            return None
        if number not in self._objects:
            self._objects[number] = (kind, describe())
        cost = self._costs[(number, hook)] = Cost(number, hook)
        return cost

    def add_own(self, ns: int) -> None:
        """What the user's loggers took for our figures: a cost of trainperf's."""
        self._sums.own_ns += ns
        self._context.session.set_overhead("figures", self._sums.own_ns)

    def _tick(self) -> None:
        if _now() - self._published_ns >= _PUBLISH_NS and self.here():
            self.publish()

    def publish(self) -> None:
        self._published_ns = _now()
        changed = [cost for cost in list(self._costs.values()) if cost.count != cost.published]
        for cost in changed:
            cost.published = cost.count
        for number in dict.fromkeys(cost.number for cost in changed):
            kind, description = self._objects[number]
            hooks = {
                cost.hook: {name: getattr(cost, name) for name in _PUBLISHED}
                for (owner, _), cost in list(self._costs.items())  # a meter on another thread may add some
                if owner == number and cost.count
            }
            text = json.dumps({**description, "hooks": hooks}, default=str)
            self._context.session.set_object(number, kind, text)

    def close(self) -> None:
        self._context.ticker.discard("costs", self._tick)
        self.unwind()
        self.thread = 0  # somebody may have put a wrapper over one of ours, which then stays where it is
        self._apart.give_back(self._taken)
        self.publish()
