"""The DataLoader hook: brackets, ready batches, identity, and that the loader is as it was."""

from __future__ import annotations

import gc
import inspect
import json
import pickle
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from recorder import Recorder, Session
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, dataloader, get_worker_info
from trainperf.hooks.dataloader import DataLoaderHook, StatefulLoaderHook

Install = Callable[..., Session]


class Numbers(Dataset[int]):
    def __init__(self, n: int = 8, slow: int = -1, gate: Any = None) -> None:
        self.n, self.slow, self.gate = n, slow, gate

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> int:
        if i == self.slow:
            self.gate.wait(20)
        return i


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


class Raises(Numbers):
    def __getitem__(self, i: int) -> int:
        raise KeyError("lost sample")


def test_brackets_of_an_epoch(hooked: Install, recorder: Recorder) -> None:
    hooked(DataLoaderHook())
    batches = list(DataLoader(Numbers(4), batch_size=2))
    assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3]]
    assert recorder.words() == [
        "begin LOADER_START", "end LOADER_START",
        "begin FETCH", "end FETCH", "begin FETCH", "end FETCH", "begin FETCH", "end FETCH",
    ]  # fmt: skip
    ends = [mark.value for mark in recorder.of("FETCH") if mark.kind == "end"]
    assert ends == [recorder.FETCHED_BATCH, recorder.FETCHED_BATCH, recorder.FETCH_EXHAUSTED]
    begins = [mark for mark in recorder.of("FETCH") if mark.kind == "begin"]
    assert all(mark.value == -1 and mark.object == 1 and mark.flags == 0 for mark in begins)


def test_a_fetch_that_raises_says_so_and_the_error_is_untouched(hooked: Install, recorder: Recorder) -> None:
    hooked(DataLoaderHook())
    with pytest.raises(KeyError, match="lost sample"):
        next(iter(DataLoader(Raises())))
    assert recorder.marks[-1].value == recorder.FETCH_RAISED


def test_no_grad_is_flagged(hooked: Install, recorder: Recorder) -> None:
    hooked(DataLoaderHook())
    iterator = iter(DataLoader(Numbers()))
    with torch.no_grad():
        next(iterator)
    with torch.inference_mode():
        next(iterator)
    next(iterator)
    flags = [mark.flags for mark in recorder.of("FETCH") if mark.kind == "begin"]
    assert flags == [recorder.GRAD_DISABLED, recorder.GRAD_DISABLED, 0]


def test_the_iterator_is_the_original_and_starts_its_workers_at_once(hooked: Install, recorder: Recorder) -> None:
    session = hooked(DataLoaderHook())
    iterator = iter(DataLoader(Numbers(8), batch_size=2, num_workers=2))
    assert type(iterator) is dataloader._MultiProcessingDataLoaderIter
    assert len(iterator) == 4
    pids = [worker.pid for worker in iterator._workers]
    assert all(worker.is_alive() for worker in iterator._workers)
    assert session.workers == [(1, pid) for pid in pids]
    assert sum(len(batch) for batch in iterator) == 8


def test_persistent_workers_are_met_once(hooked: Install, recorder: Recorder) -> None:
    session = hooked(DataLoaderHook())
    loader = DataLoader(Numbers(4), num_workers=1, persistent_workers=True)
    first = iter(loader)
    list(first)
    second = iter(loader)
    list(second)
    assert first is second
    assert len(session.workers) == 1
    assert recorder.words("LOADER_START").count("begin LOADER_START") == 2


@pytest.mark.parametrize("batches", [None, [[0, 1], [2, 3]]], ids=["sampler", "list"])
def test_epochs_of_a_loader_that_makes_its_iterators_by_itself(
    batches: Any, hooked: Install, recorder: Recorder
) -> None:
    """fastai's __iter__ is not torch's, and what names its batches need not have weak references."""
    session = hooked(DataLoaderHook())
    options = {"batch_sampler": batches} if batches else {"batch_size": 2}
    loaders = [DataLoader(Numbers(n), **options) for n in (4, 5)]
    for loader in loaders * 3:
        assert next(loader._get_iterator()).tolist() == [0, 1]
    assert recorder.words() == ["begin FETCH", "end FETCH"] * 6 and session.notes == []
    assert [mark.object for mark in recorder.of("FETCH") if mark.kind == "begin"] == [1, 2] * 3
    assert len(session.objects) == 2


@pytest.mark.filterwarnings("ignore::UserWarning")  # its own
def test_torchdatas_loader(hooked: Install, recorder: Recorder) -> None:
    module = pytest.importorskip("torchdata.stateful_dataloader")
    loaders = DataLoaderHook()
    session = hooked(loaders, StatefulLoaderHook(loaders))
    loader = module.StatefulDataLoader(Numbers(4), batch_size=2, num_workers=1)
    for _ in range(2):
        assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]
    assert recorder.words() == (["begin LOADER_START", "end LOADER_START"] + ["begin FETCH", "end FETCH"] * 3) * 2
    assert all(mark.value >= 0 for mark in recorder.of("FETCH") if mark.kind == "begin")  # it is known what is ready
    assert len(session.objects) == 1 and session.notes == []
    assert json.loads(session.objects[1][1])["num_workers"] == 1


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def wait_until_sent(iterator: Any, count: int) -> None:
    """A batch is counted before the worker's own thread has sent it."""
    wait_for(lambda: iterator._data_queue.qsize() == count and iterator._data_queue._reader.poll(0))
    time.sleep(0.05)


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


def test_description(hooked: Install, recorder: Recorder) -> None:
    session = hooked(DataLoaderHook())
    iter(DataLoader(Subset(Numbers(8), [0, 1, 2]), batch_size=3, shuffle=True))
    (kind, text), description = session.objects[1], json.loads(session.objects[1][1])
    assert kind == "loader" and text
    assert description["dataset"] == "Subset(Numbers)"
    file, _, line = description["dataset_at"].rpartition(":")
    assert file == __file__ and int(line) == Numbers.__getitem__.__code__.co_firstlineno
    assert description["dataset_length"] == 3 and description["batch_size"] == 3
    assert description["num_workers"] == 0 and description["sampler"] == "RandomSampler"
    assert description["pin_memory"] is False and description["persistent_workers"] is False
    assert description["prefetch_factor"] is None and description["kind"] == "map"
    assert description["multiprocessing_context"] is None


def test_description_of_workers_and_of_the_users_collate(hooked: Install, recorder: Recorder) -> None:
    session = hooked(DataLoaderHook())

    def mine(samples: list[int]) -> list[int]:
        return samples

    list(DataLoader(Numbers(2), num_workers=1, collate_fn=mine, multiprocessing_context="fork"))
    description = json.loads(session.objects[1][1])
    assert description["multiprocessing_context"] == "fork" and description["prefetch_factor"] == 2
    assert description["collate_at"] == f"{__file__}:{mine.__code__.co_firstlineno}"


def test_a_length_that_raises_is_not_known(hooked: Install, recorder: Recorder) -> None:
    class NoLength(Numbers):
        def __len__(self) -> int:
            raise RuntimeError("still listing")

    session = hooked(DataLoaderHook())
    next(iter(DataLoader(NoLength(), sampler=[0, 1])))
    assert json.loads(session.objects[1][1])["dataset_length"] is None
    assert session.notes == []


def test_each_loader_has_its_id_for_all_epochs(hooked: Install, recorder: Recorder) -> None:
    hooked(DataLoaderHook())
    one, two = DataLoader(Numbers(2)), DataLoader(Numbers(2))
    for _ in range(2):
        for _ in zip(one, two, strict=True):
            pass
    ids = [mark.object for mark in recorder.of("LOADER_START") if mark.kind == "begin"]
    assert ids == [1, 2, 1, 2]


def test_an_iterator_from_before_the_watch_belongs_to_its_loader(hooked: Install, recorder: Recorder) -> None:
    loader = DataLoader(Numbers(4), batch_size=2)
    iterator = iter(loader)
    session = hooked(DataLoaderHook())
    next(iterator)
    next(iter(loader))
    assert {mark.object for mark in recorder.marks if mark.kind == "begin"} == {1}
    assert json.loads(session.objects[1][1])["dataset"] == "Numbers"


def test_many_loaders_stay_bounded_and_dead_ones_are_let_go(hooked: Install, recorder: Recorder) -> None:
    hook = DataLoaderHook()
    session = hooked(hook)
    dataset = TensorDataset(torch.zeros(2))
    for _ in range(600):
        next(iter(DataLoader(dataset)))
    gc.collect()
    assert len(session.objects) <= 256
    assert len(hook._iterators) <= 1
    assert min(mark.object for mark in recorder.marks if mark.kind == "begin") >= 1


def test_the_loader_pickles_and_looks_as_before(hooked: Install) -> None:
    before = {name: inspect.signature(getattr(DataLoader, name)) for name in ("__iter__", "__len__", "__init__")}
    plain = DataLoader.__iter__
    hooked(DataLoaderHook())
    loader = pickle.loads(pickle.dumps(DataLoader(Numbers(4), batch_size=2)))
    assert len(loader) == 2 and len(list(loader)) == 2
    assert {name: inspect.signature(getattr(DataLoader, name)) for name in before} == before
    assert DataLoader.__iter__.__wrapped__ is plain and DataLoader.__iter__.__name__ == "__iter__"
    assert pickle.loads(pickle.dumps(DataLoader.__iter__)) is DataLoader.__iter__
    with pytest.raises(NotImplementedError):
        pickle.dumps(iter(loader))


def test_a_failure_in_the_hook_switches_it_off_and_spares_the_loop(
    hooked: Install, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    session = hooked(DataLoaderHook())
    iterator = iter(DataLoader(Numbers(6), num_workers=1))
    tasks, iterator._task_info = iterator._task_info, None
    seen = len(recorder.marks)
    failing = next
    with pytest.raises(AttributeError):
        failing(iterator)  # torch's own: it needs the attribute that we took away
    iterator._task_info = tasks
    assert len(list(iterator)) == 6
    assert len(recorder.marks) == seen
    assert len(session.notes) == 1 and "dataloader hook is off" in session.notes[0]
    assert session.tiers["hook_dataloader"][0] == "off"
    assert caplog.text.count("dataloader hook is off") == 1


def test_a_batch_is_not_lost_when_torchs_private_names_change_in_the_fetch(hooked: Install, recorder: Recorder) -> None:
    session = hooked(DataLoaderHook())
    gate = torch.multiprocessing.get_context("fork").Event()
    loader = DataLoader(Numbers(4, slow=0, gate=gate), num_workers=2, multiprocessing_context="fork")
    iterator = iter(loader)
    wait_until_sent(iterator, 2)
    tasks = iterator._task_info

    fetch = iterator._next_data

    def renaming() -> Any:
        gate.set()
        batch = fetch()
        iterator._task_info = None
        return batch

    iterator._next_data = renaming
    assert next(iterator).item() == 0
    iterator._task_info, iterator._next_data = tasks, fetch
    assert recorder.words("FETCH") == ["begin FETCH", "end FETCH"]
    assert session.tiers["hook_dataloader"][0] == "off"
    assert [batch.item() for batch in iterator] == [1, 2, 3]


def test_a_batch_is_not_lost_when_the_pipe_cannot_be_asked(hooked: Install, recorder: Recorder) -> None:
    session = hooked(DataLoaderHook())
    loader = DataLoader(Numbers(4), num_workers=2, multiprocessing_context="fork")
    iterator = iter(loader)
    wait_until_sent(iterator, 4)
    take = iterator._try_get_data

    def closing(*args: Any, **kwargs: Any) -> Any:
        hook = inspect.getclosurevars(type(iterator)._try_get_data).nonlocals["known"].__self__
        hook[id(iterator)].workers._pipe = -1
        return take(*args, **kwargs)

    iterator._try_get_data = closing
    assert next(iterator).item() == 0
    del iterator._try_get_data
    assert session.tiers["hook_dataloader"][0] == "off"
    assert [batch.item() for batch in iterator] == [1, 2, 3]


def test_a_subclass_with_its_own_iter(hooked: Install, recorder: Recorder) -> None:
    class Lazy(DataLoader[Any]):
        def __iter__(self) -> Any:
            for batch in super().__iter__():
                yield batch * 10

    hooked(DataLoaderHook())
    assert [batch.item() for batch in Lazy(Numbers(2))] == [0, 10]
    assert recorder.words("LOADER_START") == ["begin LOADER_START", "end LOADER_START"]
    assert {mark.object for mark in recorder.marks if mark.kind == "begin"} == {1}
