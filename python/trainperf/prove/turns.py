"""Runs a loop on with another number of workers, in turns, in one process: a stretch of steps for each.

A trial takes seconds to start, and two of them differ by chance by more than two stretches of one process do. What
turns cannot tell, whether it is the same training, a trial of its own still does.

    turns = Turns(search(...))
    batch = turns.next(loader, original)    # in place of the loader's own; None: they are over
"""

from __future__ import annotations

import contextlib
import itertools
import math
import multiprocessing
import pickle
import statistics
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from trainperf.hooks.patch import AnyFunction
from trainperf.prove.sequential import LEAST_GAIN, MAX_TURNS, judge

# What a policy yields: a number of workers, OWN, DELIVERED, or None for batches that take no time. It is sent
# milliseconds of a step.
Policy = Generator[int | None, float, dict[str, Any]]

OWN = -1  # as many workers as the loader has
DELIVERED = -2  # batches that take no time, from workers
FEWEST_STEPS = 8  # of a stretch
_SECONDS = 0.3  # of one, at least
_SETTLES_S = 0.1  # what storage read ahead while nobody asked, between two stretches, is used up
_CACHED = 8  # batches
_PREFETCH = 2  # batches of each worker, by default
_DELIVERING = 2  # workers: one might take longer to pass a large batch on than the loop to train with it
_AGAIN = (0.3, 0.15, 0.08)  # above the best: near enough to be measured once more; a pass for each


class Turns:
    def __init__(
        self,
        policy: Policy,
        *,
        epoch: int | None = None,
        whole: bool = False,
        persistent: bool = False,
        between_ms: float = 0.0,
    ) -> None:
        """`epoch`: its batches; over so many the start of workers is spread, where epochs are not compared `whole`.
        `persistent`: other workers than the loader has now are kept for the next epoch. `between_ms`: of a step, what
        the script does between epochs, which stretches leave out."""
        self._policy = policy
        self._epoch = epoch
        self._whole = epoch if whole else None
        self._persistent = persistent
        self._between_ms = between_ms
        self._cache: list[Any] = []
        self._stretch: _Stretch | None = None
        self._workers: int | None = None
        self.found: dict[str, Any] = {}  # what the policy says at its end

    def offer(self, batch: Any) -> None:
        """One that the loader gave before the turns."""
        if len(self._cache) < _CACHED:
            self._cache.append(batch)

    def next(self, loader: Any, original: AnyFunction) -> Any:
        """A batch; None when the turns are over. `original`: the iterator's __next__. Raises what the loader does."""
        try:
            return self._next(loader, original)
        except Exception as error:
            if self._workers != DELIVERED:
                raise
            try:
                self._policy.throw(error)
            except StopIteration as end:
                self.found = end.value
            return None

    def _next(self, loader: Any, original: AnyFunction) -> Any:
        now = time.perf_counter()
        if self._stretch is not None and not self._stretch.is_over(now):
            return self._stretch.next()
        try:
            if self._stretch is None:
                self._workers = next(self._policy)
            else:
                self._stretch.close()
                spread = None if self._whole else self._epoch
                self._workers = self._policy.send(self._stretch.step_ms(now, spread) + self._between_ms)
        except StopIteration as end:
            self.found = end.value
            return None
        self._stretch = self._begun(loader, original)
        return self._stretch.next()

    def _begun(self, loader: Any, original: AnyFunction) -> _Stretch:
        began = time.perf_counter()
        if self._workers is None:
            return _Stretch(_Cached(self._cache), 0, self._whole or 1, self._whole or 1, began)
        if self._workers == DELIVERED:
            delivered = _Delivered(self._cache, loader, original)
            return _Stretch(delivered, _DELIVERING, 1 + _DELIVERING * _PREFETCH, _DELIVERING, began)
        workers = loader.num_workers if self._workers == OWN else self._workers
        kept = loader.persistent_workers if workers == loader.num_workers else self._persistent
        source = _Loader(loader, original, workers, keeps=kept)
        ahead = 1 + workers * int(getattr(loader, "prefetch_factor", None) or _PREFETCH)
        # Workers that take equally long deliver in bursts.
        return _Stretch(source, workers, self._whole or ahead, self._whole or max(1, workers), began)


class _Cached:
    """A source of batches that take no time."""

    def __init__(self, batches: Sequence[Any]) -> None:
        self._batches = itertools.cycle(batches)

    def take(self) -> Any:
        return next(self._batches)

    def close(self) -> None:
        """There is nothing to end."""


class _Loader:
    """A source of batches as if the loader had been made with so many workers; epoch after epoch."""

    def __init__(self, loader: Any, original: AnyFunction, workers: int, *, keeps: bool) -> None:
        """`keeps`: the workers, from one epoch to the next."""
        self._loader = loader
        self._original = original
        self._workers = workers
        self._keeps = keeps and workers > 0
        self._iterator = self._made()

    def take(self) -> Any:
        try:
            return self._original(self._iterator)
        except StopIteration:
            if self._keeps:
                self._iterator._reset(self._loader)
            else:
                self.close()
                self._iterator = self._made()
            return self._original(self._iterator)

    def _made(self) -> Any:
        own = vars(self._loader)
        before = {name: own[name] for name in ("num_workers", "prefetch_factor", "persistent_workers", "timeout")}
        ahead = (before["prefetch_factor"] or _PREFETCH) if self._workers else None
        timeout = before["timeout"] if self._workers else 0  # without workers there is none
        own.update(num_workers=self._workers, prefetch_factor=ahead, persistent_workers=self._keeps, timeout=timeout)
        try:
            return self._loader._get_iterator()
        finally:
            own.update(before)

    def close(self) -> None:
        end = getattr(self._iterator, "_shutdown_workers", None)
        if end is not None:
            end()


class _Delivered:
    """A source of batches that workers have at hand: the loop's step with what it costs to take them from a process."""

    def __init__(self, batches: Sequence[Any], loader: Any, original: AnyFunction) -> None:
        """Raises what is wrong with batches that no other process can be sent: a worker would say nothing."""
        pickle.dumps(batches[0])
        self._original = original
        own = vars(loader)
        before = dict(own)
        own.update(
            num_workers=_DELIVERING,
            prefetch_factor=_PREFETCH,
            persistent_workers=False,
            dataset=_Again(batches),
            sampler=range(sys.maxsize),
            batch_sampler=None,
            collate_fn=_itself,
            worker_init_fn=None,
            _dataset_kind=0,
            _DataLoader__multiprocessing_context=multiprocessing.get_context("fork"),
        )
        try:
            self._iterator = loader._get_iterator()
        finally:
            own.clear()
            own.update(before)

    def take(self) -> Any:
        return self._original(self._iterator)

    def close(self) -> None:
        self._iterator._shutdown_workers()


class _Again:
    """A dataset of batches that are there."""

    def __init__(self, batches: Sequence[Any]) -> None:
        self._batches = batches

    def __getitem__(self, index: int) -> Any:
        return self._batches[index % len(self._batches)]


def _itself(batch: Any) -> Any:
    return batch


class _Stretch:
    """From the start of the workers, which is measured by itself, to enough steps that wait for none of it."""

    def __init__(
        self, source: _Cached | _Loader | _Delivered, workers: int, ahead: int, period: int, began: float
    ) -> None:
        """`ahead`: batches before those that are measured, which are a multiple of `period`. `began`: before `source`
        was made."""
        self._source = source
        self._workers = workers
        self._period = period
        self._ahead = ahead
        self._began = began
        self._delivered = 0
        self._passed = 0  # before those that are measured
        self._first = 0.0
        self._since = 0.0
        self._waits: list[float] = []

    def next(self) -> Any:
        asked = time.perf_counter()
        batch = self._source.take()
        now = time.perf_counter()
        if not self._delivered:
            self._first = now - self._began
        else:
            self._waits.append(now - asked)
        self._delivered += 1
        return batch

    def is_over(self, now: float) -> bool:
        """Asked before each batch."""
        since_ahead = self._delivered - self._ahead
        settled = since_ahead >= 0 and since_ahead % self._period == 0
        if not self._passed and settled and now - self._began >= self._first + _SETTLES_S:
            self._passed, self._since = self._delivered, now
        measured = self._delivered - self._passed if self._passed else 0
        return measured >= FEWEST_STEPS and now - self._since >= _SECONDS and measured % self._period == 0

    def step_ms(self, now: float, spread: int | None) -> float:
        ms = 1e3 * (now - self._since) / (self._delivered - self._passed)
        start_up = max(0.0, self._first - statistics.median(self._waits))
        return ms + (1e3 * start_up / spread if spread and self._workers else 0.0)

    def close(self) -> None:
        self._source.close()


def floor() -> Policy:
    """The step with batches that take no time, as it is, and with batches that workers have at hand: None where none
    can deliver them."""
    found: dict[str, Any] = {"floor_ms": (yield None), "own_ms": (yield OWN), "delivered_ms": None}
    with contextlib.suppress(Exception):  # which the batches of the script's own workers may meet too, and then tell
        found["delivered_ms"] = yield DELIVERED
    return found


def search(now: int, first: Sequence[int], more: Sequence[int], *, alpha: float, seconds: float) -> Policy:
    """Measures `first`, and `more` until two in a row help by less than 2 %; the best again, and those near it with
    fewer workers; then the fewest within 2 % of the best, as paired() does. Returns the milliseconds of each, the best,
    and the pairs.
    """
    began = time.monotonic()
    ms: dict[int, list[float]] = {}

    def mean(workers: int) -> float:
        return statistics.fmean(ms[workers])

    for workers in (now, *first):
        ms[workers] = [(yield workers)]
    for workers in more:
        fewer = min((mean(w) for w in sorted(ms)[:-2]), default=math.inf)
        if fewer <= (1 + LEAST_GAIN) * min(map(mean, ms)) or time.monotonic() - began > seconds / 2:
            break
        ms[workers] = [(yield workers)]
    for number, near in enumerate(_AGAIN):
        # In both directions, as the machine's speed drifts.
        rivals = [w for w in sorted(ms, reverse=number % 2 == 0) if _rivals(mean, w, min(ms, key=mean), near)]
        if number and (len(rivals) < 2 or time.monotonic() - began > seconds / 2):
            break
        for workers in rivals:
            ms[workers].append((yield workers))
    best = min(w for w in ms if mean(w) <= (1 + LEAST_GAIN) * min(map(mean, ms)))
    left = seconds - (time.monotonic() - began)
    found = (yield from paired(now, best, alpha=alpha, seconds=left)) if best != now else {"pairs": []}
    return {"ms": {str(workers): mean(workers) for workers in ms}, "best": best, **found}


def _rivals(mean: Callable[[int], float], workers: int, best: int, near: float) -> bool:
    """Whether so many may be the choice in place of the best: fewer, and nearly as good."""
    return workers <= best and mean(workers) <= (1 + near) * mean(best)


def paired(now: int, other: int, *, alpha: float, seconds: float) -> Policy:
    """Pairs of what the loader has `now` and `other` workers, until the evidence is enough. Returns the milliseconds
    of each pair (without, with it).

    `seconds`: after which none begins.
    """
    began = time.monotonic()
    pairs: list[tuple[float, float]] = []
    while len(pairs) < MAX_TURNS and time.monotonic() - began < seconds:
        if len(pairs) % 2 == 0:
            without = yield now
            with_it = yield other
        else:
            with_it = yield other
            without = yield now
        pairs.append((without, with_it))
        if judge(logs_of(pairs), alpha=alpha).decision != "open":
            break
    return {"pairs": pairs}


def logs_of(pairs: Sequence[tuple[float, float]]) -> list[float]:
    """As judge() takes them."""
    return [math.log(without / with_it) for without, with_it in pairs]


def policy_of(asked: Mapping[str, Any]) -> Policy:
    """From what a trial is asked: {"floor": True}, or the arguments of one of the others."""
    if "paired" in asked:
        return paired(**asked["paired"])
    return search(**asked["search"]) if "search" in asked else floor()
