"""What keeps memory, where the process's memory rises while it trains: two looks and a search, within stated pauses."""

from __future__ import annotations

import gc
import importlib
import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainperf.hooks.context import Context

if TYPE_CHECKING:
    from trainperf.keeping.census import Census, Kept

_EVERY_S = 1.0  # a reading
_FIRST_S = 5.0  # of training, without a look
_APART_S = 3.0  # the two looks, at least
_GIVE_UP_S = 30.0
_STEPS = 5  # between the two looks, at least
_PAUSE_S = 0.05  # each, as a rule
_LONGEST_S = 0.08  # of work in one: then it is the last
_SHARE = 0.01  # of the time so far, all of them together
_MOST_READINGS = 32
_LEAST_RISE, _LEAST_SHARE = 8e6, 0.01  # of the readings, less their first quarter
_SEARCH_S = 0.035  # for the names, mostly
_CENSUS = "trainperf.keeping.census"


class KeptMemoryHook:
    """Once a second, at the end of a backward, reads the resident memory, and takes what tensors have of GPUs as
    hooks/device_memory.py last read it. Where one of the two rises steadily, the training thread
    stops for a first look at all objects, some steps later for a second one, and then for a search for the names of
    what grew: three pauses in a run, of 50 ms as a rule and together 1 % of its time, which count as trainperf's."""

    name = "kept_memory"
    needs = "torch"

    def __init__(self) -> None:
        self._context: Context | None = None
        self._began = self._again_s = 0.0
        self._of_host: list[tuple[float, int]] = []  # time, resident bytes
        self._of_gpus: list[tuple[float, int]] = []  # likewise, at the same times
        self._every = _EVERY_S
        self._census: Census | None = None
        self._at: tuple[float, int, int] = (0.0, 0, 0)  # of the first look: time, bytes of both, steps
        self._pauses: list[float] = []  # seconds
        self._work: list[float] = []  # seconds of CPU time in them: the machine may be busy
        self._next: Callable[[float, int], None] = self._suspect

    def install(self, context: Context) -> None:
        if hasattr(sys, "_is_gil_enabled") and not sys._is_gil_enabled():
            return self._off(context, "other threads change objects while they are counted, as there is no GIL")
        if own_memory() is None:
            return self._off(context, "/proc/self/statm cannot be read")
        self._context = context
        self._began = time.monotonic()
        context.session.set_tier(self.name, "on")
        context.ticker.add(self.name, self._tick)

    def remove(self) -> None:
        if self._context is not None:
            self._context.ticker.discard(self.name)
        self._census = None

    def _off(self, context: Context, why: str) -> None:
        context.ticker.discard(self.name)
        context.session.set_tier(self.name, "off", why)
        self._census = None

    def _tick(self) -> float:
        self._again_s = self._every
        resident = own_memory()
        if resident is not None:
            self._next(time.monotonic(), resident)
        return self._again_s

    def _suspect(self, now: float, resident: int) -> None:
        self._of_host.append((now, resident))
        self._of_gpus.append((now, self._on_gpus()))
        if len(self._of_host) > _MOST_READINGS:
            self._of_host, self._of_gpus, self._every = self._of_host[::2], self._of_gpus[::2], 2 * self._every
        some_rise = rises(self._of_host) or rises(self._of_gpus)
        if now - self._began < _FIRST_S or not some_rise or not self._may_pause(now, _PAUSE_S):
            return
        if _CENSUS not in sys.modules:
            self._book(lambda: importlib.import_module(_CENSUS))  # 15 ms, in a step of its own
        else:
            self._pause(self._first)

    def _first(self) -> None:
        from trainperf.keeping.census import Census

        assert self._context is not None
        native: Any = self._context.native
        self._census = Census(native)
        self._census.first()
        self._at = (time.monotonic(), self._held(), self._steps())
        self._every, self._next = _EVERY_S, self._wait

    def _wait(self, now: float, resident: int) -> None:
        assert self._context is not None
        at, before, steps = self._at
        if now - at < _APART_S or self._steps() - steps < _STEPS:
            return
        quarter = len(self._of_host) // 4
        rise = sum(readings[-1][1] - readings[quarter][1] for readings in (self._of_host, self._of_gpus))
        rate = rise / (self._of_host[-1][0] - self._of_host[quarter][0])
        if resident + self._on_gpus() - before >= rate * (now - at) / 3:
            if self._may_pause(now, self._work[-1]):
                self._pause(self._second)
        elif now - at > _GIVE_UP_S:
            if len(self._pauses) > 1 or self._work[0] + _SEARCH_S > _PAUSE_S:  # three would not be enough
                return self._off(self._context, "memory stopped growing between two looks")
            self._census, self._of_host, self._of_gpus, self._next = None, [], [], self._suspect

    def _second(self) -> None:
        assert self._census is not None
        now, (at, before, steps) = time.monotonic(), self._at
        self._at = (now - at, self._held() - before, self._steps() - steps)
        self._census.second()
        self._again_s, self._next = 0.0, self._search
        if max(self._work) + _SEARCH_S <= _PAUSE_S:
            self._name()

    def _search(self, now: float, _: int) -> None:
        if self._may_pause(now, _SEARCH_S):
            self._pause(self._name)

    def _name(self) -> None:
        assert self._context is not None
        assert self._census is not None
        census, self._census = self._census, None
        seconds, rise, steps = self._at
        kept = census.named(rise, steps)
        self._context.ticker.discard(self.name)
        told = {"seconds": round(seconds, 2), "bytes": rise, "steps": steps, "objects": census.objects}
        self._context.session.set_meta("kept_memory", json.dumps({**told, "kept": list(map(_told, kept))}))

    def _may_pause(self, now: float, expected: float) -> bool:
        return sum(self._pauses) + expected <= _SHARE * (now - self._began)

    def _pause(self, work: Callable[[], None]) -> None:
        self._book(work)
        if self._census is None:
            return
        assert self._context is not None
        if self._work[-1] > _LONGEST_S:
            objects = self._census.objects
            self._off(self._context, f"a look at {objects:,} objects takes {1e3 * self._work[-1]:.0f} ms")

    def _book(self, work: Callable[[], object]) -> None:
        """What is done in it leaves no marks, and no collection comes in between."""
        assert self._context is not None
        native, session = self._context.native, self._context.session
        other = native.PHASES.index("other")
        began, work_began, collects = time.perf_counter(), time.thread_time(), gc.isenabled()
        try:
            native.begin_phase(other)
            native.mute(1)
            gc.disable()
            work()
        finally:
            if collects:
                gc.enable()
            native.mute(0)
            native.end_phase(other)
            self._pauses.append(time.perf_counter() - began)
            self._work.append(time.thread_time() - work_began)
            session.set_overhead(self.name, round(1e9 * sum(self._pauses)))
            session.set_meta("kept_memory_pauses", json.dumps([round(1e3 * pause, 1) for pause in self._pauses]))

    def _on_gpus(self) -> int:
        assert self._context is not None
        return self._context.device_bytes

    def _held(self) -> int:
        return (own_memory() or 0) + self._on_gpus()

    def _steps(self) -> int:
        assert self._context is not None
        session: Any = self._context.session
        return int(session.step_totals()[0])


def own_memory(pid: int | str = "self") -> int | None:
    """Resident bytes of a process, mapped files not counted; None: not known."""
    try:
        file = os.open(f"/proc/{pid}/statm", os.O_RDONLY)  # open() takes twice as long
        try:
            words = os.read(file, 256).split()
        finally:
            os.close(file)
        return (int(words[1]) - int(words[2])) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def rises(readings: list[tuple[float, int]]) -> bool:
    """Steadily, without the first quarter: mostly upwards, and not by one jump."""
    kept = [resident for _, resident in readings[len(readings) // 4 :]]
    steps = [b - a for a, b in itertools.pairwise(kept)]
    rise = kept[-1] - kept[0]
    if len(steps) < 3 or rise < max(_LEAST_RISE, _LEAST_SHARE * kept[0]):
        return False
    half = kept[len(kept) // 2] - kept[0]
    return sum(step > 0 for step in steps) >= 0.75 * len(steps) and max(steps) <= 0.6 * rise and half <= 0.8 * rise


def _told(kept: Kept) -> dict[str, Any]:
    name = kept.names[0] if kept.names else None
    line = kept.line
    return {
        "kind": kept.kind,
        "type": kept.type,
        "elements": kept.elements,
        "holds": kept.held.holds,
        "bytes": round(kept.held.bytes),
        "scalar": kept.held.scalar,
        "on_gpu": kept.held.on_gpu,
        "bound": kept.bound,
        "of": name.of if name else "",
        "name": name.name if name else "",
        "owner": name.owner if name else "",
        "inside": name.inside if name else 0,
        "file": line.file if line else name.file if name else "",
        "line": line.line if line else 0,
        "text": line.text if line else "",
        "argument": line.argument if line else "",
    }
