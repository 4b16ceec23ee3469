"""DataLoader: each fetch, the start-up of its workers, and what the loader is.

What `ready` means. It is the number of batches that the workers had finished when the next one was asked for:
- workers: those in the loader's queue, and with pin_memory those that still wait for the pin-memory thread as well
  (but for the one in its hands). So a fetch that takes long although `ready` > 0 waited for the pin-memory thread, for
  the GIL, for its own unpickling or for the thread in which a worker hands tensors over, and one with `ready` == 0
  waited for a worker;
- batches that came before their turn are kept by the iterator, and count only when the one that is asked for is among
  them: behind a slow worker (head-of-line blocking) nothing is ready. Whose batch lies in the queue cannot be seen
  without taking it out, so whether the right one was there is known only afterwards: where it came into an empty queue
  the fetch ends with FETCHED_BEHIND, and none was ready for it;
- -1: not known (no workers, or an iterator without the private names that this reads).
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import weakref
from typing import TYPE_CHECKING, Any

from trainperf.hooks.base import PatchHook
from trainperf.hooks.context import Context
from trainperf.hooks.describe import batch_bytes, describe_iterator, describe_loader, innermost
from trainperf.hooks.patch import AnyFunction
from trainperf.hooks.workers import Workers

if TYPE_CHECKING:
    from trainperf._native import BracketFunction


_MAX_ORPHANS = 64
_LOOK_EACH_S = 1.0


class _Fetches:
    """What is known of one iterator."""

    __slots__ = ("batches", "due", "loader", "pids", "read", "reference", "starting", "workers")

    def __init__(self, loader: int, workers: Workers | None, reference: weakref.ref[Any]) -> None:
        self.loader = loader
        self.workers = workers  # None: has none, or they are not known by torch's names
        # Measured: what the next one reads, and how large its batch is. Not the first, which may fill a cache.
        self.due = False
        self.pids: tuple[int, ...] = ()  # of its workers
        self.batches = 0  # that came from these, since `read` was
        self.read: int | None = None  # by these so far, as it was last looked at
        self.starting = 0  # fetches until as many batches have come as there are workers
        self.reference = reference


@dataclasses.dataclass(slots=True)
class _Reads:
    """What read calls returned for batches of a loader, cached or not; of some fetches, or between looks at workers."""

    read: int = 0
    batches: int = 0  # for so many
    sizes: int = 0  # of batches
    sized: int = 0  # of so many


def _bytes_read(path: str) -> int | None:
    """By all read calls so far; None: it has ended, or the kernel does not count."""
    try:
        with open(path, "rb") as file:
            first = file.readline()
    except OSError:
        return None
    return int(first[7:]) if first.startswith(b"rchar: ") else None


def patch_arrivals(hook: PatchHook, iterator: Any, loaders: DataLoaderHook) -> None:
    """`iterator`: a class of those with workers; without its method it is not known for whom a fetch waits."""
    if callable(getattr(iterator, "_try_get_data", None)):
        hook.patch(iterator, "_try_get_data", loaders.wrap_arrivals)


class DataLoaderHook(PatchHook):
    name = "dataloader"
    needs = "torch"

    def __init__(self) -> None:
        super().__init__()
        self._iterators: dict[int, _Fetches] = {}
        # Loaders that are known by an iterator only: by the id of its sampler and its description, (the sampler, if it
        # can be told whether it is still there; the loader's id).
        self._orphans: dict[tuple[int, str], tuple[weakref.ref[Any] | None, int]] = {}
        self._reads: dict[int, _Reads] = {}  # by loader
        self._fast: BracketFunction | None = None  # __next__ in C, for iterators without workers

    def install(self, context: Context) -> None:
        from torch.utils.data import dataloader

        self._context = context
        context.ticker.add(self.name, self._look, after_s=_LOOK_EACH_S)
        self._base: type = dataloader._BaseDataLoaderIter
        self.patch(dataloader._BaseDataLoaderIter, "__next__", self._wrap_next)
        self.patch(dataloader.DataLoader, "__iter__", self.wrap_iter)
        patch_arrivals(self, getattr(dataloader, "_MultiProcessingDataLoaderIter", None), self)

    def remove(self) -> None:
        super().remove()
        self._context.ticker.discard(self.name)
        self._iterators.clear()
        self._orphans.clear()
        self._reads.clear()

    def wrap_arrivals(self, original: AnyFunction) -> AnyFunction:
        """Of the iterator's method that takes a batch from its workers, and returns (whether one came, it)."""
        known, switch, context, name = self._iterators.get, self.switch, self._context, self.name

        def _try_get_data(self: Any, *args: Any, **kwargs: Any) -> Any:
            state = known(id(self)) if switch.on else None
            if state is None or state.workers is None:
                return original(self, *args, **kwargs)
            try:
                was_there = state.workers.is_there(self)
            except Exception as error:
                switch.off()
                context.fail(name, error)
                return original(self, *args, **kwargs)
            got = original(self, *args, **kwargs)
            if got[0]:
                state.workers.came(was_there)
            return got

        return _try_get_data

    def _wrap_next(self, original: AnyFunction) -> AnyFunction:
        import torch

        native, context, switch = self._context.native, self._context, self.switch
        begin, end, fetch = native.begin, native.end, native.FETCH
        batch_came, batch_came_behind = native.FETCHED_BATCH, native.FETCHED_BEHIND
        exhausted, raised, grad_disabled = native.FETCH_EXHAUSTED, native.FETCH_RAISED, native.GRAD_DISABLED
        is_grad_enabled, known, adopt, name = torch.is_grad_enabled, self._iterators.get, self._adopt, self.name
        between, fetch_value, measure = context.between, native.fetch_value, self._measure

        def __next__(self: Any) -> Any:
            if not switch.on:
                return original(self)
            if between is not None and is_grad_enabled():
                between.at_fetch()
            try:
                state = known(id(self)) or adopt(self, 0)
                if fast is not None and state.workers is None and not state.starting:
                    fast.know(self, state.loader)  # the next fetch comes here no more
                ready, wait, workers = -1, None, state.workers
                before = _bytes_read("/proc/thread-self/io") if state.due and not state.pids else None
                if workers is not None:
                    ready, wait = workers.begin(self)
                begin(fetch, state.loader, ready, 0 if is_grad_enabled() else grad_disabled)
            except Exception as error:
                switch.off()
                context.fail(name, error)
                return original(self)
            try:
                batch = original(self)
            except StopIteration:
                end(fetch, exhausted)
                raise
            except BaseException:
                end(fetch, raised)
                raise
            how = batch_came
            if wait is not None or state.starting:
                try:
                    if state.starting:
                        state.starting -= 1
                        if not state.starting:
                            context.session.workers_at_work(state.loader)
                    if workers is not None and wait is not None:
                        if ready and workers.was_behind(wait):
                            how = batch_came_behind
                        awaited = workers.awaited(self, wait)
                        if awaited is not None:
                            how = fetch_value(how, *awaited)
                except Exception as error:
                    switch.off()
                    context.fail(name, error)
            end(fetch, how)
            state.batches += 1
            if state.due:
                try:
                    read = _bytes_read("/proc/thread-self/io") if before is not None else None
                    measure(state, batch, None if read is None or before is None else read - before)
                except Exception as error:
                    switch.off()
                    context.fail(name, error)
            return batch

        if between is not None:
            fast = None
            return __next__
        self._fast = fast = native.fetch_function(original, __next__, is_grad_enabled, begin, end)
        switch.turns_off(fast)
        return fast

    def _measure(self, state: _Fetches, batch: Any, read: int | None) -> None:
        """`read`: by this thread in this fetch."""
        state.due = False
        size = batch_bytes(batch)
        if size is None:
            return
        reads = self._reads.setdefault(state.loader, _Reads())
        reads.sizes, reads.sized = reads.sizes + size, reads.sized + 1
        if read is not None:
            reads.read, reads.batches = reads.read + read, reads.batches + 1

    def _look(self) -> float:
        """At what workers have read since the last look; and has the next fetch of each loader measured."""
        for state in list(self._iterators.values()):
            state.due = True
            if state.pids:
                found = [_bytes_read(f"/proc/{pid}/io") for pid in state.pids]
                now = None if None in found else sum(filter(None, found))
                if now is not None and state.read is not None and state.batches:
                    reads = self._reads.setdefault(state.loader, _Reads())
                    reads.read, reads.batches = reads.read + now - state.read, reads.batches + state.batches
                state.read, state.batches = now, 0
        if self._fast is not None:
            self._fast.forget()
        told = {loader: dataclasses.astuple(reads) for loader, reads in self._reads.items()}
        if told:
            self._context.session.set_meta("reads", json.dumps(told))
        return _LOOK_EACH_S

    def wrap_iter(self, original: AnyFunction) -> AnyFunction:
        import torch

        native, context, switch = self._context.native, self._context, self.switch
        begin, end, start = native.begin, native.end, native.LOADER_START
        loader_id, adopt, base, name = self._loader_id, self._adopt, self._base, self.name
        is_grad_enabled, between = torch.is_grad_enabled, context.between

        def __iter__(self: Any) -> Any:
            if not switch.on:
                return original(self)
            if between is not None and is_grad_enabled():
                between.at_loader_start()
            try:
                loader = loader_id(self)
                begin(start, loader)
            except Exception as error:
                switch.off()
                context.fail(name, error)
                return original(self)
            try:
                iterator = original(self)
            finally:
                end(start)
            try:
                if isinstance(iterator, base):
                    adopt(iterator, loader)
            except Exception as error:
                switch.off()
                context.fail(name, error)
            return iterator

        return __iter__

    def _loader_id(self, loader: Any) -> int:
        """The loader's id: the one that an iterator from before the watch got in its name, if there was one."""
        objects = self._context.objects
        if self._orphans and (sampler := getattr(loader, "_index_sampler", None)) is not None:
            for key, (reference, number) in list(self._orphans.items()):  # others may add and take some meanwhile
                if reference is not None and reference() is sampler:
                    self._orphans.pop(key, None)
                    objects.set(loader, number, ("loader", ""))
                    break
        return objects.id_of(loader, "loader", lambda: describe_loader(loader))

    def _adopt(self, iterator: Any, loader: int) -> _Fetches:
        """Meets an iterator: a new one, or (loader 0) one whose loader is not known."""
        known = self._iterators.get(id(iterator))
        if known is not None:  # persistent workers: the same iterator again
            return known
        if loader == 0:
            loader = self._adopt_orphan(iterator)
        workers = None
        if getattr(iterator, "_num_workers", 0) > 0:  # not by its class: torchdata has one of its own
            with contextlib.suppress(AttributeError, NotImplementedError):
                workers = Workers(iterator)
        key, iterators = id(iterator), self._iterators

        def forget(_: weakref.ref[Any]) -> None:
            iterators.pop(key, None)
            if self._fast is not None:
                self._fast.forget()

        state = _Fetches(loader, workers, weakref.ref(iterator, forget))
        iterators[key] = state
        processes = list(getattr(iterator, "_workers", ()))
        for worker in processes:
            pid = getattr(worker, "pid", None)
            if pid is not None:
                self._context.session.watch_worker(loader, pid)
                state.pids = (*state.pids, pid)
                self._context.workers[pid] = type(innermost(getattr(iterator, "_dataset", None)))
        if getattr(iterator, "_rcvd_idx", 0):
            self._context.session.workers_at_work(loader)
        else:
            state.starting = len(processes)
        return state

    def _adopt_orphan(self, iterator: Any) -> int:
        """There before the watch, or made by another's __iter__ (fastai's), which makes the next epoch's from the same
        sampler."""
        described, sampler = describe_iterator(iterator), getattr(iterator, "_index_sampler", None)
        key = (id(sampler), str(described))
        reference, number = self._orphans.get(key, (None, 0))
        if number == 0 or (reference is not None and reference() is not sampler):
            number = self._context.objects.id_of(iterator, "loader", lambda: described)
            try:
                reference = weakref.ref(sampler)
            except TypeError:  # a list of indices, itertools.count()
                reference = None
            self._orphans[key] = (reference, number)
            if len(self._orphans) > _MAX_ORPHANS:
                self._orphans.pop(next(iter(list(self._orphans)), key), None)
        return number


class StatefulLoaderHook(PatchHook):
    """torchdata's, which has an __iter__ of its own."""

    name = "stateful_dataloader"
    needs = "torchdata.stateful_dataloader.stateful_dataloader"

    def __init__(self, loaders: DataLoaderHook) -> None:
        super().__init__()
        self._loaders = loaders

    def install(self, context: Context) -> None:
        module = importlib.import_module(self.needs)
        self.patch(module.StatefulDataLoader, "__iter__", self._loaders.wrap_iter)
        patch_arrivals(self, getattr(module, "_StatefulMultiProcessingDataLoaderIter", None), self._loaders)
