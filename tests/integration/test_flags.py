"""Flags of a real loop, live."""

from __future__ import annotations

import threading
import time
import timeit
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import trainperf
from children import child
from loops import Task, check_wall_to_wall, phase_share
from torch.utils.data import DataLoader, Dataset
from trainperf.errors import TrainperfWarning
from trainperf.watching.closed_steps import ClosedStep

STEPS = 150


class Slow(Dataset[Any]):
    """Every tenth batch is slow to come."""

    def __init__(self, length: int = STEPS) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(0.02 if i % 10 == 9 else 0)
        return torch.randn(8), torch.randn(1)


def spin(ms: float) -> None:
    end = time.perf_counter() + ms / 1e3
    while time.perf_counter() < end:
        pass


def train(task: Task, steps: int = STEPS) -> Iterator[int]:
    for i, batch in enumerate(DataLoader(Slow(steps), batch_size=1)):
        yield i
        task.train(batch)
        spin(4)


def slow_ones(steps: list[ClosedStep]) -> set[int]:
    return {step.index for step in steps if "data_starved" in step.flags and not step.warm_up}


@pytest.mark.alone
def test_flags_live_and_at_the_end(tmp_path: Path) -> None:
    task, got, threads, during = Task(), list[ClosedStep](), set[int](), list[int]()

    def on_flag(step: ClosedStep) -> None:
        got.append(step)
        threads.add(threading.get_ident())

    with trainperf.watch(tmp_path / "a.tpr", verbose=False, on_flag=on_flag) as run:
        for i in train(task):
            during.append(len(got))
            if i == STEPS - 1:
                live = run.flags
    starved = {i for i in range(STEPS) if i % 10 == 9}
    assert slow_ones(got) >= starved
    assert during[-1] > 0, "none came while it ran"
    assert threads == {threading.get_ident()}
    assert 0 < live.steps < STEPS and live.counts["data_starved"] >= 3 and live.recent
    # What is said live, afterwards and in the file is the same.
    with run.run as file:
        flags, steps = file.steps.flags, run.recent_steps()
        check_wall_to_wall(file)
        assert file.step_count == STEPS == run.flags.steps == len(steps)
        for bit, flag in enumerate(("data_starved", "gil_contended", "host_stalled")):
            assert run.flags.counts[flag] == int(((flags >> bit) & 1).sum())
        assert [step.index for step in got] == [int(i) for i in file.steps.index if flags[int(i)] & 7]
        for step, wall_ns in zip(steps, file.steps.wall_ns, strict=True):
            assert step.wall_ms == pytest.approx(wall_ns / 1e6)
            assert sum(step.causes_ms.values()) == pytest.approx(step.wall_ms)
        assert run.step_totals.wall_ns == file.wall_ns
        assert run.step_totals.causes_ns["data_wait"] == file.cause_ns("data_wait")
    assert [step.index for step in run.recent_steps(after=STEPS - 3)] == [STEPS - 2, STEPS - 1]
    assert run.step_totals.since(run.step_totals).steps == 0


@pytest.mark.alone
def test_a_slow_callback_is_the_programs_own_time(tmp_path: Path) -> None:
    """30 ms in it: `other`, and neither a fetch, nor a step, nor our overhead. Though it trains and logs itself."""
    task, aside, called = Task(), Task(), list[int]()

    def on_flag(step: ClosedStep) -> None:
        if "data_starved" in step.flags:
            called.append(step.index)
            for batch in aside.loader(2):
                aside.train(batch)
            trainperf.step()
            time.sleep(0.03)

    with trainperf.watch(tmp_path / "a.tpr", verbose=False, on_flag=on_flag) as run:
        for _ in train(task):
            pass
        before = len(called)
    with run.run as file:
        check_wall_to_wall(file)
        assert file.step_count == STEPS
        assert (file.steps.backwards == 1).all() and (file.steps.fetches == 1).all()
        in_it = before * 0.03 / (file.wall_ns / 1e9)
        assert before >= 3 and phase_share(file, "other") >= in_it - 0.03
        assert phase_share(file, "fetch") < 0.5
        assert sum(file.overhead_ns.values()) < 0.3 * before * 0.03e9


def test_an_exception_in_it_never_breaks_training(tmp_path: Path) -> None:
    task = Task()

    def on_flag(step: ClosedStep) -> None:
        raise RuntimeError("no network")

    with (
        pytest.warns(TrainperfWarning, match="on_flag raised RuntimeError: no network") as warned,
        trainperf.watch(tmp_path / "a.tpr", verbose=False, on_flag=on_flag) as run,
    ):
        assert len(list(train(task))) == STEPS
    assert len(warned) == 1
    assert any("on_flag raised RuntimeError" in note for note in run.run.notes)


def test_ctrl_c_in_it(tmp_path: Path) -> None:
    child(
        """
        def on_flag(step):
            raise KeyboardInterrupt
        try:
            with trainperf.watch(path, verbose=False, on_flag=on_flag) as run:
                for i in range(400):
                    time.sleep(0.005)
                    weight.sum().backward(); optimizer.step(); run.step()
        except KeyboardInterrupt:
            assert 0 < i < 399
            assert run.run.ended == "exception" and run.run.step_count > 0
        else:
            raise SystemExit("Ctrl-C was swallowed")
        """,
        tmp_path / "a.tpr",
    )


def test_stop_in_it(tmp_path: Path) -> None:
    task, called = Task(), list[int]()

    def on_flag(step: ClosedStep) -> None:
        called.append(step.index)
        trainperf.stop()

    run = trainperf.start(tmp_path / "a.tpr", verbose=False, on_flag=on_flag)
    for _ in train(task):
        pass
    assert called and not run.running and run.run.ended == "normally"


@pytest.mark.parametrize("steps", [1, 10, 40])
def test_a_run_shorter_than_the_collectors_sleep_has_all_its_calls(tmp_path: Path, steps: int) -> None:
    task, got = Task(), list[ClosedStep]()

    def broken(step: ClosedStep) -> None:
        got.append(step)
        raise KeyError("mine")

    batch = torch.randn(1, 8), torch.randn(1, 1)
    with (
        pytest.warns(TrainperfWarning, match="on_flag raised KeyError: 'mine'") as told,
        trainperf.watch(tmp_path / "a.tpr", verbose=False, on_flag=broken) as run,
    ):
        for _ in range(steps):
            task.train(batch)
            time.sleep(0.001)
            run.step()
    assert len(got) == len(run.flags.recent) >= steps / 2
    assert len(told) == 1


@pytest.mark.parametrize(
    ("on_flag", "said"),
    [(3, "must be callable: give a function of one argument"), (print, None), (None, None)],
)
def test_what_on_flag_may_be(on_flag: Any, said: str | None) -> None:
    if said is None:
        trainperf.watch(on_flag=on_flag)
    else:
        with pytest.raises(TypeError, match=said):
            trainperf.watch(on_flag=on_flag)


def test_a_coroutine_is_refused() -> None:
    async def on_flag(step: ClosedStep) -> None: ...

    with pytest.raises(TypeError, match="coroutine function, which is never awaited"):
        trainperf.watch(on_flag=on_flag)


def test_without_a_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = trainperf.watch()
    assert empty.flags.steps == 0 and empty.flags.counts["data_starved"] == 0 and empty.recent_steps() == ()
    monkeypatch.setenv("TRAINPERF_DISABLE", "1")
    with trainperf.watch(on_flag=print) as off:
        assert off.flags.recent == () and off.step_totals.mean_ms() == 0.0


@pytest.mark.alone
def test_asking_costs_next_to_nothing() -> None:
    """0.06 us, which is three empty methods: no lock, no system call."""
    from trainperf import _native
    from trainperf.hooks.between import Between

    class Empty:
        def method(self) -> None: ...

    with trainperf.watch(verbose=False) as run:
        between = Between(_native, run._session, print)
        ours, empty = (
            min(timeit.repeat(function, number=20_000, repeat=7)) for function in (between.at_fetch, Empty().method)
        )
    assert ours < 12 * empty
