"""DataLoader: each fetch, the start-up of its workers, and what the loader is.

What `ready` means. It is the number of batches that the workers had finished when the next one was asked for:
- workers: those in the loader's queue, and with pin_memory those that still wait for the pin-memory thread as well
  (but for the one in its hands). So a fetch that takes long although `ready` > 0 waited for the pin-memory thread, for
  the GIL or for its own unpickling, and one with `ready` == 0 waited for a worker;
- batches that came before their turn are kept by the iterator, and count only when the one that is asked for is among
  them: behind a slow worker (head-of-line blocking) nothing is ready. What lies in the queue cannot be seen without
  taking it out, so whether the batch was in it is known only afterwards, by how many came out before it: then the
  fetch ends with FETCHED_BEHIND, and none was ready for it;
- -1: not known (no workers, or an iterator without the private names that this reads).
"""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainperf.hooks.base import PatchHook
from trainperf.hooks.context import Context
from trainperf.hooks.describe import describe_iterator, describe_loader
from trainperf.hooks.patch import AnyFunction

if TYPE_CHECKING:
    from trainperf._native import BracketFunction


_MAX_ORPHANS = 64


class _Fetches:
    """What is known of one iterator."""

    __slots__ = ("counts", "loader", "pids", "pinned", "reference")

    def __init__(
        self, loader: int, counts: bool, pinned: bool, pids: Sequence[int], reference: weakref.ref[Any]
    ) -> None:
        self.loader = loader
        self.counts = counts  # has workers, and the names by which ready batches are counted
        self.pinned = pinned
        self.pids = pids  # of its workers; 0: not known
        self.reference = reference


def _queued(iterator: Any, pinned: bool) -> int:
    """Batches that are finished, and not taken out."""
    if not pinned:
        return int(iterator._data_queue.qsize())
    # The data queue is a queue.Queue: its qsize() would take the lock that the pin-memory thread holds.
    return len(iterator._data_queue.queue) + int(iterator._worker_result_queue.qsize())


def _next_task(iterator: Any) -> Sequence[Any]:
    """(worker, batch if it came before its turn) of the batch that is next; () where there is none. A worker that is at
    the end of its stream leaves tasks behind that nobody does."""
    tasks, working = iterator._task_info, iterator._workers_status
    for index in range(iterator._rcvd_idx, iterator._send_idx):
        task: Sequence[Any] = tasks.get(index, ())
        if len(task) == 2 or (task and working[task[0]]):
            return task
    return ()


def _waited_for(iterator: Any, worker: int, sent: int, queued: int) -> tuple[bool, bool]:
    """Of a fetch that waited for this worker, as it ends: whether the others had nothing left to do (what is not taken
    out of the queue yet is theirs), and whether they had read their parts of a stream. `sent`: tasks at its beginning;
    one more is given out when the batch has come. A worker whose stream ended meanwhile has made no batch."""
    tasks, working = iterator._task_info, iterator._workers_status
    if not working[worker]:
        return False, False
    for index in range(iterator._rcvd_idx, sent):
        task = tasks.get(index, ())
        if len(task) == 1 and task[0] != worker and working[task[0]]:
            queued -= 1
    return queued >= 0, sum(working) == 1


class DataLoaderHook(PatchHook):
    name = "dataloader"
    needs = "torch"

    def __init__(self) -> None:
        super().__init__()
        self._iterators: dict[int, _Fetches] = {}
        # Loaders that are known by an iterator only: by the id of its sampler and its description, (the sampler, if it
        # can be told whether it is still there; the loader's id).
        self._orphans: dict[tuple[int, str], tuple[weakref.ref[Any] | None, int]] = {}
        self._fast: BracketFunction | None = None  # __next__ in C, for iterators without workers

    def install(self, context: Context) -> None:
        from torch.utils.data import dataloader

        self._context = context
        self._base: type = dataloader._BaseDataLoaderIter
        self.patch(dataloader._BaseDataLoaderIter, "__next__", self._wrap_next)
        self.patch(dataloader.DataLoader, "__iter__", self.wrap_iter)

    def remove(self) -> None:
        super().remove()
        self._iterators.clear()
        self._orphans.clear()

    def _wrap_next(self, original: AnyFunction) -> AnyFunction:
        import torch

        native, context, switch = self._context.native, self._context, self.switch
        begin, end, fetch = native.begin, native.end, native.FETCH
        batch_came, batch_came_behind = native.FETCHED_BATCH, native.FETCHED_BEHIND
        exhausted, raised, grad_disabled = native.FETCH_EXHAUSTED, native.FETCH_RAISED, native.GRAD_DISABLED
        is_grad_enabled, known, adopt, name = torch.is_grad_enabled, self._iterators.get, self._adopt, self.name
        at_their_end, shift = native.FETCH_OTHERS_AT_THEIR_END, native.FETCH_AWAITED_SHIFT
        between, next_task, queued, waited_for = context.between, _next_task, _queued, _waited_for

        def __next__(self: Any) -> Any:
            if not switch.on:
                return original(self)
            if between is not None and is_grad_enabled():
                between.at_fetch()
            try:
                state = known(id(self)) or adopt(self, 0)
                if fast is not None and not state.counts:
                    fast.know(self, state.loader)  # the next fetch comes here no more
                ready, stashed, sent, may_be_behind, awaited = -1, 0, 0, False, None
                if state.counts:
                    stashed = len(self._task_info) - self._tasks_outstanding
                    ready, task = queued(self, state.pinned), next_task(self)
                    if len(task) == 2:
                        ready += stashed
                    else:
                        may_be_behind = ready > 0
                        if task and len(state.pids) > 1:
                            awaited, sent = task[0], self._send_idx
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
            if may_be_behind or awaited is not None:
                try:
                    if may_be_behind and len(self._task_info) - self._tasks_outstanding - stashed >= ready:
                        how = batch_came_behind
                    waited = ready == 0 or how == batch_came_behind
                    if waited and awaited is not None:
                        alone, last = waited_for(self, awaited, sent, queued(self, state.pinned))
                        if alone:
                            how |= state.pids[awaited] << shift | (at_their_end if last else 0)
                except Exception as error:
                    switch.off()
                    context.fail(name, error)
            end(fetch, how)
            return batch

        if between is not None:
            fast = None
            return __next__
        self._fast = fast = native.fetch_function(original, __next__, is_grad_enabled, begin, end)
        switch.turns_off(fast)
        return fast

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
            for key, (reference, number) in self._orphans.items():
                if reference is not None and reference() is sampler:
                    del self._orphans[key]
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
        has_workers = getattr(iterator, "_num_workers", 0) > 0  # not by its class: torchdata has one of its own
        names = ["_task_info", "_tasks_outstanding", "_rcvd_idx", "_send_idx", "_workers_status", "_data_queue"]
        pinned = has_workers and hasattr(iterator, "_pin_memory_thread")
        if pinned:
            names.append("_worker_result_queue")
        counts = has_workers and all(hasattr(iterator, name) for name in names)
        if counts:
            try:
                _queued(iterator, pinned)
            except (AttributeError, NotImplementedError):  # another kind of queue; macOS has no sem_getvalue
                counts = False
        key, iterators = id(iterator), self._iterators

        def forget(_: weakref.ref[Any]) -> None:
            iterators.pop(key, None)
            if self._fast is not None:
                self._fast.forget()

        pids = [getattr(worker, "pid", None) or 0 for worker in getattr(iterator, "_workers", ())]
        state = _Fetches(loader, counts, pinned, pids, weakref.ref(iterator, forget))
        iterators[key] = state
        for pid in pids:
            if pid:
                self._context.session.watch_worker(loader, pid)
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
                del self._orphans[next(iter(self._orphans))]
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
