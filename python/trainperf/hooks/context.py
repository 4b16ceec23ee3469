"""What every hook is given: the marks, the session, and the ids of the user's objects."""

from __future__ import annotations

import json
import math
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainperf.hooks.saves import Saves
from trainperf.log import log

if TYPE_CHECKING:
    from trainperf.hooks.between import Between
    from trainperf.hooks.core import Native, Session


# Objects of one kind that get an id of their own. A program that makes a new one each epoch goes on under the id of an
# earlier, dead one of the same description, so that a run stays bounded.
_MAX_OWN_IDS = 256

# Of chores. Most take 10 to 50 us, nearly all of it for cold caches.
_SHARE = 0.0001  # of the time, each
_LEAST_S, _MOST_S = 0.2, 5.0  # from one time to the next: of one that waits for the GIL, little of it is its own
_ALONG_S = 0.1  # so much sooner, where others are due


class Context:
    """Shared by the hooks of one watch."""

    def __init__(
        self,
        native: Native,
        session: Session,
        between: Between | None = None,
        *,
        cuda: bool = False,
        cupti_path: str = "",
    ) -> None:
        from trainperf.hooks.apart import Apart  # here: it needs the core

        self.native = native
        self.session = session
        self.cuda = cuda  # the GPU may be traced
        self.cupti_path = cupti_path
        self.cuda_traced = False  # and is
        self.between = between  # None: no one waits for flags
        self.objects = Objects(session)
        self.ticker = Ticker(self)
        self.apart = Apart()
        self.workers: dict[int, type] = {}  # DataLoader workers by pid: the class of the dataset, below its wrappers
        self.device_bytes = 0  # that tensors have on GPUs, as it was last read
        self.saves = Saves(native, self.apart)
        # Of hooks of all modules, which must be gone before something is compiled: Dynamo guards on them.
        self.ends_of_looks: list[Callable[[], None]] = []
        # What a framework's log call is about to write: (trainer, logs). Set by integrations; never raises.
        self.add_figures: Callable[[Any, Any], None] | None = None
        self._failed: dict[str, BaseException] = {}

    def fail(self, hook: str, error: BaseException) -> None:
        """Told once to the user, and kept in the run. The hook that failed has switched itself off."""
        if self._failed.setdefault(hook, error) is not error:
            return
        text = f"the {hook} hook is off: {type(error).__name__}: {error}"
        self.session.note(text)
        self.session.set_tier(f"hook_{hook}", "off", f"{type(error).__name__}: {error}")
        log.warning("%s; training continues; data from this hook will be missing", text)


# Returns in how many seconds it is to be done again, and no sooner; None: as the ticker paces it.
Work = Callable[[], float | None]


@dataclass(slots=True)
class _Chore:
    hook: str
    work: Work
    at_changes: bool
    soonest: float
    due: float
    took_s: float = 0.0  # the last time


class Ticker:
    """Small chores, done on the user's thread at the end of a backward or step. Here is decided how often: each takes a
    ten-thousandth of the time, and is done five times a second at most, unless it says itself when it is due next.

    The caller looks at `due` itself, since a call that does nothing would cost more than the rest of its hook:
    `if clock() >= ticker.due: ticker.tick()`. On one thread at a time: another does without.
    """

    __slots__ = ("_busy", "_chores", "_clock", "_context", "due")

    def __init__(self, context: Context, clock: Callable[[], float] = time.monotonic) -> None:
        self.due = 0.0
        self._busy = threading.Lock()
        self._context = context
        self._clock = clock
        self._chores: list[_Chore] = []

    def add(self, hook: str, work: Work, *, after_s: float = 0.0, at_changes: bool = False) -> None:
        """`at_changes`: also where what is traced of the GPU is to change."""
        due = self._clock() + after_s if after_s else 0.0
        self._chores.append(_Chore(hook, work, at_changes, due, due))
        self.due = min(self.due, due)

    def discard(self, hook: str, work: Work | None = None) -> None:
        """`work`: that alone, of what was added under this name."""
        self._chores = [kept for kept in self._chores if kept.hook != hook or work not in (None, kept.work)]

    def tick_if_due(self) -> float:
        """Returns in how many seconds it is due again."""
        change_due = self._context.native.change_due()
        if change_due or self._clock() >= self.due:
            self.tick(change_due)
        return self.due - self._clock()

    def tick(self, change_due: bool = False) -> None:
        if not self._busy.acquire(blocking=False):
            return
        try:
            now = self._clock()
            for chore in self._chores:
                if chore.soonest <= now or (change_due and chore.at_changes):
                    now = self._do(chore, now)
            self.due = min((chore.due for chore in self._chores), default=math.inf)
        finally:
            self._busy.release()

    def _do(self, chore: _Chore, now: float) -> float:
        """Returns the time after it."""
        try:
            again_s = chore.work()
        except Exception as error:
            self.discard(chore.hook, chore.work)
            self._context.fail(chore.hook, error)
            return now
        after = self._clock()
        before_s, chore.took_s = chore.took_s, after - now
        if again_s is None:  # of the last two the shorter: in one it may have been preempted
            again_s = min(max(min(before_s, chore.took_s) / _SHARE, _LEAST_S), _MOST_S)
            chore.due, chore.soonest = now + again_s, now + again_s - _ALONG_S
        else:
            chore.due = chore.soonest = now + again_s
        return after


class Objects:
    """Ids of the user's loaders, optimizers and modules: by identity, without keeping them alive. Thread-safe."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.RLock()  # held while a thing gets an id; a finalizer may come in between
        self._ids: dict[int, tuple[weakref.ref[Any], int]] = {}
        self.known = self._ids.get  # of id(thing), for hot paths: (its reference, its id) or None
        self.gone: list[Callable[[], None]] = []  # called when one of the things is no more
        self._last = 0
        self._counts: dict[str, int] = {}
        self._free: dict[tuple[str, str], list[int]] = {}  # ids of dead objects, by kind and description

    def id_of(self, thing: Any, kind: str, describe: Callable[[], Mapping[str, Any]]) -> int:
        """The id of `thing`, which gets one, and is described to the run, when it has none."""
        entry = self._ids.get(id(thing))
        if entry is not None:
            return entry[1]
        text = json.dumps(describe(), default=str)
        with self._lock:
            entry = self._ids.get(id(thing))
            if entry is not None:  # another thread was first
                return entry[1]
            number = self._new_id(kind, text)
            self.set(thing, number, (kind, text))
            return number

    def alive(self, kind: type) -> list[Any]:
        """Those of a class."""
        things = [reference() for reference, _ in list(self._ids.values())]
        return [thing for thing in things if isinstance(thing, kind)]

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()  # a thread that is no more may have held it

    def set(self, thing: Any, number: int, freed_as: tuple[str, str]) -> None:
        """Makes `number` the id of `thing` as well."""
        key = id(thing)
        ids, free, gone = self._ids, self._free, self.gone

        def forget(_: weakref.ref[Any]) -> None:
            for tell in gone:
                tell()
            ids.pop(key, None)
            free.setdefault(freed_as, []).append(number)

        ids[key] = (weakref.ref(thing, forget), number)

    def _new_id(self, kind: str, text: str) -> int:
        count = self._counts.get(kind, 0)
        if count >= _MAX_OWN_IDS:
            free = self._free.get((kind, text))
            return free.pop() if free else 0
        self._counts[kind] = count + 1
        self._last += 1
        self._session.set_object(self._last, kind, text)
        return self._last
