"""What the DataLoader hook tells of workers: what is ready, and for whom a fetch waits."""

from __future__ import annotations

import inspect
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from loading import Numbers, wait_until_sent
from recorder import Recorder, Session
from torch.utils.data import DataLoader, IterableDataset, dataloader, get_worker_info
from trainperf.hooks.dataloader import DataLoaderHook

Install = Callable[..., Session]


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


def fetches(recorder: Recorder) -> list[tuple[int, int]]:
    """(ready at begin, how it ended) of each fetch."""
    marks = recorder.of("FETCH")
    return [(begin.value, end.value & 0xFF) for begin, end in zip(marks[::2], marks[1::2], strict=True)]


def awaited(recorder: Recorder) -> list[tuple[int, int, float] | None]:
    """Of each fetch: (the worker that alone had something to do, or -1; how many still read; seconds)."""
    values = [end.value for end in recorder.of("FETCH")[1::2]]
    return [(((v >> 8) & 0xFFF) - 1, (v >> 20) & 0xFFF, (v >> 32) / 1e6) if v >> 32 else None for v in values]


def test_ready_counts_finished_batches(hooked: Install, recorder: Recorder) -> None:
    hooked(DataLoaderHook())
    iterator = iter(DataLoader(Numbers(8), num_workers=1, prefetch_factor=3))
    wait_until_sent(iterator, 3)
    next(iterator)
    assert fetches(recorder) == [(3, recorder.FETCHED_BATCH)]


def test_ready_is_zero_when_the_workers_have_nothing(hooked: Install, recorder: Recorder) -> None:
    hooked(DataLoaderHook())
    gate = torch.multiprocessing.get_context("fork").Event()
    iterator = iter(DataLoader(Numbers(4, slow=0, gate=gate), num_workers=1, multiprocessing_context="fork"))
    opener = threading.Timer(0.05, gate.set)
    opener.start()
    next(iterator)
    opener.join()
    assert fetches(recorder) == [(0, recorder.FETCHED_BATCH)]


def test_head_of_line_blocking_is_no_ready_batch(hooked: Install, recorder: Recorder) -> None:
    """Worker 0 is stuck with batch 0 while worker 1 has finished 1 and 3: they are ready, but for nobody yet."""
    hooked(DataLoaderHook())
    gate = torch.multiprocessing.get_context("fork").Event()
    loader = DataLoader(Numbers(8, slow=0, gate=gate), num_workers=2, multiprocessing_context="fork")
    iterator = iter(loader)
    wait_until_sent(iterator, 2)
    opener = threading.Timer(0.2, gate.set)
    opener.start()
    assert next(iterator).item() == 0
    opener.join()
    assert fetches(recorder) == [(2, recorder.FETCHED_BEHIND)]
    (wait,) = awaited(recorder)
    assert wait is not None and wait[:2] == (0, 2) and 0.001 < wait[2] < 5
    assert next(iterator).item() == 1  # it lay in the iterator: ready, whatever the queue holds
    ready, ended = fetches(recorder)[1]
    assert ready >= 2 and ended == recorder.FETCHED_BATCH
    assert [batch.item() for batch in iterator] == list(range(2, 8))


def test_pinned_batches_count_on_both_sides_of_the_pin_thread(hooked: Install, recorder: Recorder) -> None:
    """Without an accelerator there is no pin-memory thread, so the iterator is given the second queue by hand."""
    hooked(DataLoaderHook())
    iterator = iter(DataLoader(Numbers(8), num_workers=1, prefetch_factor=2))
    wait_until_sent(iterator, 2)

    class Waiting:
        _reader: Any = None

        def qsize(self) -> int:
            return 5

    class Pinned(queue.Queue[Any]):
        def qsize(self) -> int:
            raise AssertionError("this takes the lock that the pin-memory thread holds")

        def get(self, *args: Any, **kwargs: Any) -> Any:
            self.queue.popleft()
            return data.get(*args, **kwargs)

    from trainperf.hooks.dataloader import _Fetches
    from trainperf.hooks.workers import Workers

    slow = dataloader._BaseDataLoaderIter.__next__.slow  # type: ignore[attr-defined]
    hook = inspect.getclosurevars(slow).nonlocals["known"].__self__
    known = hook[id(iterator)]
    data = iterator._data_queue
    Waiting._reader = data._reader
    iterator._worker_result_queue, iterator._data_queue = Waiting(), Pinned()
    iterator._pin_memory_thread = None
    hook[id(iterator)] = _Fetches(known.loader, Workers(iterator), known.reference)
    del iterator._pin_memory_thread
    iterator._data_queue.queue.extend("ab")
    next(iterator)
    iterator._data_queue = data
    del iterator._worker_result_queue
    assert fetches(recorder)[0][0] == 7


def test_out_of_order_loaders(hooked: Install, recorder: Recorder) -> None:
    """in_order=False hands out what comes first: nothing is ever behind."""
    if "in_order" not in inspect.signature(DataLoader).parameters:
        pytest.skip("this torch has no in_order")
    hooked(DataLoaderHook())
    gate = torch.multiprocessing.get_context("fork").Event()
    dataset = Numbers(4, slow=0, gate=gate)
    iterator = iter(DataLoader(dataset, num_workers=2, in_order=False, multiprocessing_context="fork"))
    wait_until_sent(iterator, 2)
    assert next(iterator).item() == 1
    gate.set()
    assert sorted(batch.item() for batch in iterator) == [0, 2, 3]
    assert recorder.FETCHED_BEHIND not in [ended for _, ended in fetches(recorder)]


def test_iterable_with_workers_to_its_end(hooked: Install, recorder: Recorder) -> None:
    session = hooked(DataLoaderHook())
    assert len(list(DataLoader(Stream(), num_workers=2))) == 6
    assert [ended for _, ended in fetches(recorder)][-1] == recorder.FETCH_EXHAUSTED
    assert all(ready >= 0 for ready, _ in fetches(recorder))
    assert session.notes == []


class Parts(IterableDataset[int]):
    """Worker 0 has one sample; worker 1 has 5, each of which it makes when told to."""

    def __init__(self, gate: Any) -> None:
        self.gate = gate

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        if info.id == 0:
            yield 0
            return
        for i in range(1, 6):
            self.gate.acquire(timeout=20)
            yield i


@pytest.mark.parametrize("in_order", [True, False])
def test_who_alone_still_reads(hooked: Install, recorder: Recorder, in_order: bool) -> None:
    if not in_order and "in_order" not in inspect.signature(DataLoader).parameters:
        pytest.skip("this torch's DataLoader has no in_order")
    hooked(DataLoaderHook())
    context = torch.multiprocessing.get_context("fork")
    gate = context.Semaphore(0)
    options = {} if in_order else {"in_order": False}
    iterator = iter(DataLoader(Parts(gate), batch_size=None, num_workers=2, multiprocessing_context=context, **options))
    wait_until_sent(iterator, 2)  # what worker 0 has, and that it is at its end
    got = [next(iterator)]
    for _ in range(5):
        opener = threading.Timer(0.2, gate.release)
        opener.start()
        got.append(next(iterator))
        opener.join()
    assert got == [0, 1, 2, 3, 4, 5]
    first, *rest = awaited(recorder)
    assert first is None
    for wait in rest[1:]:  # within the first of them worker 0 comes to its end
        assert wait is not None and wait[:2] == (1, 1) and 0.001 < wait[2] < 5


def test_nobody_is_awaited_alone_where_others_have_something_to_do(hooked: Install, recorder: Recorder) -> None:
    """Both workers are stuck in their first batch; worker 0 is let go first."""
    hooked(DataLoaderHook())
    context = torch.multiprocessing.get_context("fork")
    gates = [context.Event(), context.Event()]

    class Gated(Numbers):
        def __getitem__(self, i: int) -> int:
            gates[i % 2].wait(20)
            return i

    iterator = iter(DataLoader(Gated(8), num_workers=2, multiprocessing_context=context))
    opener = threading.Timer(0.2, gates[0].set)
    opener.start()
    assert next(iterator).item() == 0
    opener.join()
    assert fetches(recorder) == [(0, recorder.FETCHED_BATCH)] and awaited(recorder) == [None]
    gates[1].set()
    assert [batch.item() for batch in iterator] == list(range(1, 8))


def test_the_last_batches_of_an_epoch_are_nobodys(hooked: Install, recorder: Recorder) -> None:
    """Nobody is asked for more then: that the other worker has nothing to do says nothing of the one."""
    hooked(DataLoaderHook())
    context = torch.multiprocessing.get_context("fork")
    gate = context.Event()
    iterator = iter(DataLoader(Numbers(3, slow=2, gate=gate), num_workers=2, multiprocessing_context=context))
    assert [next(iterator).item() for _ in range(2)] == [0, 1]
    opener = threading.Timer(0.2, gate.set)
    opener.start()
    assert next(iterator).item() == 2
    opener.join()
    assert awaited(recorder)[-1] is None


def test_what_a_worker_has_counted_and_not_sent_is_not_ready(hooked: Install, recorder: Recorder) -> None:
    hooked(DataLoaderHook())
    iterator = iter(DataLoader(Numbers(8), num_workers=1, prefetch_factor=2))
    wait_until_sent(iterator, 2)
    queue = iterator._data_queue
    taken = [queue.get(), queue.get()]
    queue._sem.acquire(), queue._sem.acquire()  # counted, as by put(); its thread has not sent it
    assert queue.qsize() == 2

    def send() -> None:
        queue._sem.release(), queue._sem.release()
        for batch in taken:
            queue.put(batch)

    sender = threading.Timer(0.05, send)
    sender.start()
    next(iterator)
    sender.join()
    assert fetches(recorder) == [(0, recorder.FETCHED_BATCH)]


def test_a_batch_that_is_slow_to_take_out_was_waited_for_from_nobody(hooked: Install, recorder: Recorder) -> None:
    hooked(DataLoaderHook())
    iterator = iter(DataLoader(Numbers(12), num_workers=2))
    wait_until_sent(iterator, 4)
    receive = iterator._data_queue._recv_bytes

    def slowly(*args: Any, **kwargs: Any) -> Any:
        time.sleep(0.02)
        return receive(*args, **kwargs)

    iterator._data_queue._recv_bytes = slowly
    for _ in range(4):
        next(iterator)
    assert awaited(recorder) == [None] * 4


def test_workers_are_at_work_when_each_has_made_a_batch(hooked: Install, recorder: Recorder) -> None:
    session = hooked(DataLoaderHook())
    iterator = iter(DataLoader(Numbers(8), num_workers=2))
    assert len(session.workers) == 2
    next(iterator)
    assert session.at_work == []
    next(iterator)
    assert session.at_work == [(1, 2)]
    list(iterator)
    assert session.at_work == [(1, 2)]
