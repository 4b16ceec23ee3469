"""The DataLoader hook: brackets, ready batches, identity, and that the loader is as it was."""

from __future__ import annotations

import gc
import inspect
import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from loading import Numbers, wait_until_sent
from recorder import Recorder, Session
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset, dataloader
from trainperf.hooks.dataloader import DataLoaderHook, StatefulLoaderHook

Install = Callable[..., Session]


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


def test_description(hooked: Install, recorder: Recorder) -> None:
    session = hooked(DataLoaderHook())
    iter(DataLoader(Subset(Numbers(8), [0, 1, 2]), batch_size=3, shuffle=True))
    (kind, text), description = session.objects[1], json.loads(session.objects[1][1])
    assert kind == "loader" and text
    assert description["dataset"] == "Subset(Numbers)"
    file, _, line = description["dataset_at"].rpartition(":")
    assert file == Numbers.__getitem__.__code__.co_filename and int(line) == Numbers.__getitem__.__code__.co_firstlineno
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
    with pytest.raises((AttributeError, TypeError)):
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
