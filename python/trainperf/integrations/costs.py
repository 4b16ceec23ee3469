"""What the parts of a framework's loop cost: each callback's hooks, each logger, and what the framework does itself.

    meter = CostMeter(context)
    cost = meter.cost_of(callback, "callback", describe, "on_train_batch_end")
    meter.enter(cost, meter.CALLBACK)
    try: ...
    finally: meter.leave()

Sums go into the run as the description of an object, about once a second and at the end: no table of their own, and
a run that is killed has them too. A cost's own time is without what is measured inside of it (a checkpoint that a
callback saves); `other_ns` is the part of it that lies in the loop itself, and not in validation or in a checkpoint.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from trainperf.hooks.context import Context

_now = time.perf_counter_ns
_PUBLISH_NS = 1_000_000_000
_MAX_COSTS = 1024


class Cost:
    """One hook of one object: sums over the steps of the run."""

    __slots__ = ("at", "count", "hook", "max_ns", "ns", "number", "other_ns", "own_ns")

    def __init__(self, number: int, hook: str) -> None:
        self.number = number
        self.hook = hook
        self.at = ""  # file:line
        self.count = self.ns = self.own_ns = self.other_ns = self.max_ns = 0


class CostMeter:
    """Used on the thread that made it; on others enter() and leave() must not be called (see here())."""

    PLAIN, CALLBACK, LOGGING, PHASE = range(4)  # how a stretch is marked in the timeline

    def __init__(self, context: Context) -> None:
        self._context = context
        self._native = context.native
        self._costs: dict[tuple[int, str], Cost] = {}
        self._objects: dict[int, tuple[str, Mapping[str, Any]]] = {}
        # [cost or None, how, start, time of what is inside, phase]
        self._stack: list[list[Any]] = []
        self._thread = threading.get_ident()
        self._published_ns = _now()
        self._dirty: set[int] = set()
        self.counting = False  # only what happens between the first and the last batch is summed
        self.ours = False  # we are writing to the user's loggers: that is no cost of theirs
        self.apart = 0  # > 0: in a phase of its own (validation, a checkpoint)
        context.ticker.add("costs", self._tick)

    def here(self) -> bool:
        """Not after close(): somebody may have put a wrapper over ours, which then stays where it is."""
        return threading.get_ident() == self._thread

    def cost_of(self, thing: Any, kind: str, describe: Callable[[], Mapping[str, Any]], hook: str) -> Cost | None:
        """None when there are too many already."""
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

    def enter(self, cost: Cost | None, how: int, phase: int = 0) -> None:
        stack = self._stack
        if how == self.CALLBACK:
            if stack and any(frame[1] == self.CALLBACK or frame[1] == self.PHASE for frame in stack):
                how = self.PLAIN  # inside of another callback, or of a checkpoint: its phase stays
            elif cost is not None:
                self._native.begin(self._native.CALLBACK, cost.number)
        elif how == self.LOGGING:
            self._native.begin(self._native.LOGGING, 0 if cost is None else cost.number)
        elif how == self.PHASE:
            self._native.begin_phase(phase)
            self.apart += 1
        stack.append([cost, how, _now(), 0, phase])

    def inside(self, cost: Cost) -> bool:
        """Whether this very cost is being measured: a method that calls its base class' is one call."""
        return any(frame[0] is cost for frame in self._stack)

    def leave(self) -> None:
        stack = self._stack
        if not stack:
            return
        cost, how, start, inner, phase = stack.pop()
        ns = _now() - start
        if how == self.CALLBACK:
            self._native.end(self._native.CALLBACK)
        elif how == self.LOGGING:
            self._native.end(self._native.LOGGING)
        elif how == self.PHASE:
            self._native.end_phase(phase)
            self.apart -= 1
        if stack:
            stack[-1][3] += ns
        if cost is not None and self.counting:
            cost.count += 1
            cost.ns += ns
            cost.own_ns += ns - inner
            if not self.apart:
                cost.other_ns += ns - inner
            cost.max_ns = max(cost.max_ns, ns)
            self._dirty.add(cost.number)

    def unwind(self) -> None:
        """After an exception that left brackets open."""
        while self._stack:
            self.leave()

    def _tick(self) -> None:
        if _now() - self._published_ns >= _PUBLISH_NS:
            self.publish()

    def publish(self) -> None:
        self._published_ns = _now()
        dirty, self._dirty = self._dirty, set()
        for number in dirty:
            kind, description = self._objects[number]
            hooks = {
                cost.hook: {name: getattr(cost, name) for name in ("count", "ns", "own_ns", "other_ns", "max_ns", "at")}
                for (owner, _), cost in self._costs.items()
                if owner == number and cost.count
            }
            text = json.dumps({**description, "hooks": hooks}, default=str)
            self._context.session.set_object(number, kind, text)

    def close(self) -> None:
        self._thread = 0
        self.unwind()
        self.publish()
        self._context.ticker.discard("costs")
