"""What the parts of a framework's loop cost: each callback's hooks, each logger, and what the framework does itself.

    meter = CostMeter(context)
    cost = meter.cost_of(callback, "callback", describe, "on_train_batch_end")
    meter.enter(cost, meter.CALLBACK)
    try: ...
    finally: meter.leave()

Sums go into the run as the description of an object, about once a second and at the end: no table of their own, and
a run that is killed has them too. A cost's own time is without what is measured inside of it (a checkpoint that a
callback saves); `other_ns` is the part of it that lies in the loop itself, and not in validation, logging or a
checkpoint, whoever marks these. Trainings under one watch go on with the sums of the one before.
"""

from __future__ import annotations

import json
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from trainperf.hooks.apart import Apart
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


class _Sums:
    """Of one watch."""

    def __init__(self) -> None:
        self.costs: dict[tuple[int, str], Cost] = {}
        self.objects: dict[int, tuple[str, Mapping[str, Any]]] = {}


class _Frame:
    """A stretch that is being measured."""

    __slots__ = ("apart_before", "apart_depth", "cost", "how", "inner", "inner_apart", "phase", "start")

    def __init__(self, cost: Cost | None, how: int, phase: int, apart: Apart) -> None:
        self.cost = cost
        self.how = how
        self.phase = phase
        self.apart_before = -1 if apart.depth else apart.ns  # -1: it lies in one
        self.apart_depth = apart.depth
        self.inner = self.inner_apart = 0  # time of what is inside, and of that what was apart
        self.start = _now()


_sums: weakref.WeakKeyDictionary[Context, _Sums] = weakref.WeakKeyDictionary()


class CostMeter:
    """Used on the thread that made it; on others enter() and leave() must not be called (see here())."""

    PLAIN, CALLBACK, LOGGING, PHASE = range(4)  # how a stretch is marked in the timeline

    def __init__(self, context: Context) -> None:
        self._context = context
        self._native = context.native
        sums = _sums.setdefault(context, _Sums())
        self._costs, self._objects = sums.costs, sums.objects
        self._stack: list[_Frame] = []
        self._thread = threading.get_ident()
        # While a training on another thread measures, the hooks tell that one alone.
        self._apart = context.apart if context.apart.thread in (0, self._thread) else Apart()
        self._taken = self._apart.take()
        self._published_ns = _now()
        self._dirty: set[int] = set()
        self.counting = False  # only what happens between the first and the last batch is summed
        self.ours = False  # we are writing to the user's loggers: that is no cost of theirs
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
        stack, apart = self._stack, self._apart
        if how == self.CALLBACK and stack and any(frame.how in (self.CALLBACK, self.PHASE) for frame in stack):
            how = self.PLAIN  # inside of another callback, or of a checkpoint: its phase stays
        # Before it is marked: of what a Ctrl-C leaves open unwind() is to know.
        frame = _Frame(cost, how, phase, apart)
        stack.append(frame)
        if how == self.CALLBACK:
            if cost is not None:
                self._native.begin(self._native.CALLBACK, cost.number)
        elif how == self.LOGGING:
            apart.begin()
            self._native.begin(self._native.LOGGING, 0 if cost is None else cost.number)
        elif how == self.PHASE:
            apart.begin()
            self._native.begin_phase(phase)
        apart.measured = len(stack)
        frame.apart_depth, frame.start = apart.depth, _now()

    def inside(self, cost: Cost) -> bool:
        """Whether this very cost is being measured: a method that calls its base class' is one call."""
        return any(frame.cost is cost for frame in self._stack)

    def leave(self) -> None:
        stack = self._stack
        if not stack:
            return
        frame = stack.pop()
        ns = _now() - frame.start
        self._apart.measured = len(stack)
        self._apart.leave(frame.apart_depth)
        if frame.how == self.CALLBACK:
            self._native.end(self._native.CALLBACK)
        elif frame.how == self.LOGGING:
            self._native.end(self._native.LOGGING)
            self._apart.end()
        elif frame.how == self.PHASE:
            self._native.end_phase(frame.phase)
            self._apart.end()
        apart = ns if frame.apart_before < 0 else self._apart.ns - frame.apart_before
        if stack:
            stack[-1].inner += ns
            stack[-1].inner_apart += apart
        cost = frame.cost
        if cost is not None and self.counting:
            own = ns - frame.inner
            cost.count += 1
            cost.ns += ns
            cost.own_ns += own
            cost.other_ns += max(0, own - (apart - frame.inner_apart))
            cost.max_ns = max(cost.max_ns, ns)
            self._dirty.add(cost.number)

    def unwind(self) -> None:
        """After an exception that left brackets open."""
        while self._stack:
            self.leave()

    def _tick(self) -> None:
        if _now() - self._published_ns >= _PUBLISH_NS and self.here():
            self.publish()

    def publish(self) -> None:
        self._published_ns = _now()
        dirty, self._dirty = self._dirty, set()
        for number in dirty:
            kind, description = self._objects[number]
            hooks = {
                cost.hook: {name: getattr(cost, name) for name in ("count", "ns", "own_ns", "other_ns", "max_ns", "at")}
                for (owner, _), cost in list(self._costs.items())  # a meter on another thread may add some
                if owner == number and cost.count
            }
            text = json.dumps({**description, "hooks": hooks}, default=str)
            self._context.session.set_object(number, kind, text)

    def close(self) -> None:
        self._context.ticker.discard("costs", self._tick)
        self.unwind()
        self._thread = 0
        self._apart.give_back(self._taken)
        self.publish()
