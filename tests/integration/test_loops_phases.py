"""Validation, and the loops on which other tools are wrong, each with its healthy twin."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from loops import N, Task, phase_share, validate, watch
from torch.utils.data import DataLoader, TensorDataset
from trainperf import runfile
from trainperf.findings import loaders

# Validation


def test_validation_between_epochs(tmp_path: Path) -> None:
    task = Task()
    train, valid = task.loader(), task.loader(6)

    def loop(_: Any) -> None:
        for _epoch in range(3):
            for b in train:
                task.train(b)
            validate(task, valid)

    run = watch(loop, tmp_path)
    assert run.step_count == 3 * N and run.incomplete == 0
    assert run.span_total("validation").count == 3
    assert run.phase_ns("validation") >= 3 * 6 * 1_000_000


def test_validation_inside_of_an_epoch(tmp_path: Path) -> None:
    task = Task()
    valid = task.loader(3)

    def loop(_: Any) -> None:
        for i, b in enumerate(task.loader()):
            task.train(b)
            if i % 4 == 3:
                validate(task, valid)

    run = watch(loop, tmp_path)
    assert run.step_count == N and run.span_total("validation").count == 3
    with_validation = (run.steps.flags & runfile.HAS_VALIDATION) != 0
    assert int(with_validation.sum()) == 3


def test_validation_without_a_loader(tmp_path: Path) -> None:
    task = Task()

    def loop(_: Any) -> None:
        for i, b in enumerate(task.loader()):
            task.train(b)
            if i % 4 == 3:
                task.model.eval()
                with torch.no_grad():
                    task.model(b[0])
                    time.sleep(0.003)
                task.model.train()

    run = watch(loop, tmp_path)
    assert run.step_count == N
    assert run.phase_ns("validation") >= 3 * 3_000_000
    assert run.span_total("validation").count == 3


def test_validation_under_no_grad_with_no_eval(tmp_path: Path) -> None:
    task = Task()
    train, valid = task.loader(), task.loader(6)

    def loop(_: Any) -> None:
        for _epoch in range(3):
            for b in train:
                task.train(b)
            with torch.no_grad():
                for b in valid:
                    task.loss(b)
                    time.sleep(0.001)

    run = watch(loop, tmp_path)
    assert run.step_count == 3 * N
    assert run.phase_ns("validation") >= 0.8 * 3 * 6 * 1_000_000


def test_no_validation_is_no_validation(tmp_path: Path) -> None:
    """The healthy twin: train() is called each epoch, as everybody does."""
    task = Task()
    train = task.loader()

    def loop(_: Any) -> None:
        for _epoch in range(3):
            task.model.train()
            for b in train:
                task.train(b)

    run = watch(loop, tmp_path)
    assert run.step_count == 3 * N and run.phase_ns("validation") == 0


# Scenarios on which other tools are wrong, each with its healthy twin


@pytest.mark.parametrize("logging_ms", [0, 6])
def test_logging_after_the_step_is_not_lost(tmp_path: Path, logging_ms: int) -> None:
    task = Task()

    def loop(_: Any) -> None:
        for b in task.loader():
            task.train(b)
            time.sleep(logging_ms / 1e3)

    run = watch(loop, tmp_path)
    assert run.step_count == N
    slow = run.cause_ns("blocked_io") / N / 1e6
    assert slow >= 5.9 if logging_ms else slow < 3


@pytest.mark.parametrize("slow_ms", [0, 5])
def test_a_slow_validation_loader_is_validation_and_not_input(tmp_path: Path, slow_ms: int) -> None:
    class Slow(TensorDataset):
        def __getitem__(self, i: Any) -> Any:
            time.sleep(slow_ms / 1e3)
            return super().__getitem__(i)

    task = Task()
    valid = DataLoader(Slow(torch.randn(4, 8), torch.randn(4, 1)), batch_size=2)

    def loop(_: Any) -> None:
        for i, b in enumerate(task.loader(40)):
            task.train(b)
            if i % 20 == 19:
                validate(task, valid, ms=0)

    run = watch(loop, tmp_path)
    assert run.step_count == 40
    assert run.phase_ns("validation") >= 2 * 4 * slow_ms * 1e6
    assert run.cause_ns("data_wait") < 20e6


@pytest.mark.parametrize("slow_ms", [0, 4])
def test_next_inside_of_the_step_is_counted_once(tmp_path: Path, slow_ms: int) -> None:
    class Slow(TensorDataset):
        def __getitem__(self, i: Any) -> Any:
            time.sleep(slow_ms / 4e3)
            return super().__getitem__(i)

    task = Task()
    loader = DataLoader(Slow(torch.randn(4 * N, 8), torch.randn(4 * N, 1)), batch_size=4)

    def loop(_: Any) -> None:
        it = iter(loader)
        for _i in range(N):
            b = next(it)
            task.train(b)
            time.sleep(slow_ms / 1e3)

    run = watch(loop, tmp_path)
    assert run.step_count == N
    if slow_ms:
        assert 0.4 < phase_share(run, "fetch") < 0.65
    else:
        assert run.phase_ns("fetch") / N < 3e6


@pytest.mark.parametrize("spins", [False, True])
def test_a_thread_that_spins_on_the_gil(tmp_path: Path, spins: bool) -> None:
    task = Task()
    done = threading.Event()
    steps = 2 * N if spins else 6 * N  # either way much longer than the switch interval of 5 ms

    def spin() -> None:
        while not done.is_set():
            pass

    def loop(_: Any) -> None:
        thread = threading.Thread(target=spin if spins else done.wait, name="spinner")
        thread.start()
        try:
            for b in task.loader(steps):
                task.train(b)
        finally:
            done.set()
            thread.join()

    run = watch(loop, tmp_path)
    assert run.step_count == steps
    # Of the time that the machine gave us: others may be running beside the test.
    share = run.cause_ns("gil_wait") / (run.wall_ns - run.cause_ns("descheduled"))
    assert share > 0.3 if spins else share < 0.1


@pytest.mark.parametrize("persistent", [False, True])
def test_worker_start_up_is_in_the_steps_that_have_it(tmp_path: Path, persistent: bool) -> None:
    task = Task()
    loader = task.loader(4, num_workers=1, persistent_workers=persistent)

    def loop(_: Any) -> None:
        for _epoch in range(3):
            for b in loader:
                task.train(b)

    run = watch(loop, tmp_path)
    assert run.step_count == 12
    starts = (run.steps.flags & runfile.HAS_LOADER_START) != 0
    assert [int(i) for i in run.steps.index[starts]] == [0, 4, 8]
    assert run.span_total("loader_start").count == 3
    (only,) = run.loaders.values()
    assert only.fetches.first_count == 3
    assert loaders.worker_starts(only, 3) == (1 if persistent else 3)
    assert len(only.workers) == 1 or not persistent  # the same process in each epoch
    assert only.fetches.exhausted_count == 3


@pytest.mark.parametrize("persistent", [False, True])
def test_a_loader_that_begins_again_in_each_step_is_told_so(tmp_path: Path, persistent: bool) -> None:
    task = Task()
    loader = task.loader(num_workers=1, persistent_workers=persistent)

    def loop(_: Any) -> None:
        for _step in range(24):
            task.train(next(iter(loader)))

    run = watch(loop, tmp_path)
    (only,) = run.loaders.values()
    assert (only.fetches.first_count, only.fetches.count, only.fetches.exhausted_count) == (24, 0, 0)
    (told,) = (f for f in run.findings if f.id == "TP104")
    assert told.title == "iter(loader) is called for each batch (24 times in 24 steps)"
    assert told.fix.startswith("batches = iter(loader)") and not any("request" in f.fix for f in run.findings)
