"""on_flag is called between two steps of the training thread, and nowhere else."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from recorder import Recorder, Session
from torch.utils.data import DataLoader
from trainperf.errors import TrainperfWarning
from trainperf.hooks import Hooks
from trainperf.hooks.between import Between
from trainperf.hooks.dataloader import DataLoaderHook
from trainperf.hooks.optimizer import OptimizerHook
from trainperf.watching.closed_steps import ClosedStep

STARVED = (7, 100_000_000, 1 | 16, (60_000_000, 0, 40_000_000))

Make = Callable[[Callable[[ClosedStep], Any]], tuple[Between, Session]]


@pytest.fixture
def make(recorder: Recorder) -> Iterator[Make]:
    """make(on_flag): the hooks of a watch with it, on the recorder."""
    installed: list[Hooks] = []

    def install(on_flag: Callable[[ClosedStep], Any]) -> tuple[Between, Session]:
        session = recorder.Session("")
        between = Between(recorder, session, on_flag)
        installed.append(Hooks(recorder, session, [DataLoaderHook(), OptimizerHook()], between=between))
        installed[-1].install()
        return between, session

    yield install
    for hooks in installed:
        hooks.remove()


def test_the_step_is_given_in_ms(make: Make) -> None:
    got: list[ClosedStep] = []
    between, session = make(got.append)
    session.flagged = [STARVED, (8, 50, 4 | 2 | 8, (0, 50, 0))]
    between.at_step()
    causes = {"data_wait": 60.0, "gil_wait": 0.0, "compute": 40.0}
    assert got[0] == ClosedStep(7, ("data_starved",), True, 100.0, causes)
    assert got[1].flags == ("gil_contended", "host_stalled", "incomplete") and not got[1].warm_up


def test_called_before_a_fetch_opens_its_bracket(make: Make, recorder: Recorder) -> None:
    seen: list[list[str]] = []
    _, session = make(lambda step: seen.append([*recorder.words(), str(recorder.muted)]))
    fetches = iter(DataLoader([1, 2, 3]))  # type: ignore[arg-type]
    next(fetches)
    recorder.marks.clear()
    session.flagged = [STARVED]
    next(fetches)
    assert seen == [["begin_phase other", "True"]]
    assert recorder.words() == ["begin_phase other", "end_phase other", "begin FETCH", "end FETCH"]
    assert not recorder.muted


def test_nothing_comes_between_a_loader_start_and_its_first_fetch(make: Make, recorder: Recorder) -> None:
    seen: list[int] = []
    _, session = make(lambda step: seen.append(len(recorder.marks)))
    session.flagged = [STARVED]
    fetches = iter(DataLoader([1, 2, 3]))  # type: ignore[arg-type]
    assert len(seen) == 1
    session.flagged = [STARVED]
    next(fetches)
    assert len(seen) == 1
    next(fetches)
    assert len(seen) == 2


def test_not_in_validation(make: Make) -> None:
    seen: list[ClosedStep] = []
    _, session = make(seen.append)
    session.flagged = [STARVED]
    with torch.no_grad():
        assert len(list(DataLoader([1, 2]))) == 2  # type: ignore[arg-type]
    assert not seen


def sgd() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)


def test_without_a_loader_after_the_optimizer(make: Make, recorder: Recorder) -> None:
    seen: list[str] = []
    _, session = make(lambda step: seen.extend(recorder.words("OPTIMIZER")))
    optimizer = sgd()
    session.flagged = [STARVED]
    optimizer.step()
    assert seen == ["begin OPTIMIZER", "end OPTIMIZER"]


def test_with_a_loader_not_between_two_optimizers(make: Make) -> None:
    seen: list[ClosedStep] = []
    _, session = make(seen.append)
    optimizer = sgd()
    fetches = iter(DataLoader(list(range(100))))  # type: ignore[arg-type]
    next(fetches)
    session.flagged = [STARVED]
    for _ in range(4):
        optimizer.step()
    assert not seen
    next(fetches)
    assert len(seen) == 1
    session.flagged = [STARVED]
    for _ in range(100):  # trained on one batch again and again: nobody should wait for the next one
        optimizer.step()
    assert len(seen) == 2


def test_a_loop_of_backwards_only(make: Make) -> None:
    seen: list[ClosedStep] = []
    between, session = make(seen.append)
    session.flagged = [STARVED]
    for _ in range(20):
        between.at_tick()
    assert not seen
    between.at_tick()
    assert len(seen) == 1


def test_a_loop_within_the_callback(make: Make, recorder: Recorder) -> None:
    """It may read a loader, and is not called again from there."""
    session: Session
    depth: list[int] = []

    def on_flag(step: ClosedStep) -> None:
        session.flagged = [STARVED]
        depth.append(len(list(DataLoader([1, 2]))))  # type: ignore[arg-type]
        assert recorder.muted
        session.flagged = []

    between, session = make(on_flag)
    session.flagged = [STARVED]
    between.at_step()
    assert depth == [2] and not recorder.muted


def test_an_exception_is_shown_once(make: Make, recorder: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    def on_flag(step: ClosedStep) -> None:
        calls.append(step.index)
        raise KeyError("gone")

    between, session = make(on_flag)
    session.flagged = [STARVED, STARVED]
    with pytest.warns(TrainperfWarning, match=r"on_flag raised KeyError: 'gone'.*test_between.py:\d+"):
        between.at_step()
    session.flagged = [STARVED]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        between.at_step()
    assert calls == [7, 7, 7]
    assert len(session.notes) == 1 and "on_flag raised KeyError" in session.notes[0]
    assert [record.exc_info is not None for record in caplog.records] == [True]
    assert not recorder.muted and recorder.words() == ["begin_phase other", "end_phase other"] * 2


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_passes_through(make: Make, recorder: Recorder, error: type[BaseException]) -> None:
    def on_flag(step: ClosedStep) -> None:
        raise error

    between, session = make(on_flag)
    session.flagged = [STARVED]
    with pytest.raises(error):
        between.at_step()
    assert not recorder.muted and recorder.words()[-1] == "end_phase other"
    session.flagged = [STARVED]
    with pytest.raises(error):
        between.at_step()  # it is not left busy


def test_an_interrupt_as_it_begins_does_not_end_it_for_good(
    make: Make, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[ClosedStep] = []
    between, session = make(seen.append)
    session.flagged = [STARVED]
    begin = recorder.begin_phase

    def interrupted(phase: int, /) -> None:
        begin(phase)
        raise KeyboardInterrupt

    monkeypatch.setattr(recorder, "begin_phase", interrupted)
    with pytest.raises(KeyboardInterrupt):
        between.at_step()
    monkeypatch.undo()
    assert recorder.words() == ["begin_phase other", "end_phase other"] and not recorder.muted
    between.at_step()
    assert len(seen) == 1


def test_another_thread_finds_nothing_waiting() -> None:
    """The core says for whom: here for the thread that called step()."""
    import trainperf

    waiting: list[bool] = []
    from trainperf import _native

    def deadline() -> Iterator[None]:
        for _ in range(2000):
            yield
            threading.Event().wait(0.005)

    called: list[int] = []
    with trainperf.watch(verbose=False, on_flag=lambda step: called.append(threading.get_ident())) as run:
        for _ in range(40):
            threading.Event().wait(0.002)
            run.step()
        for _ in deadline():
            if _native.flags_waiting():
                break
        thread = threading.Thread(target=lambda: waiting.append(_native.flags_waiting()))
        thread.start()
        thread.join()
        assert waiting == [False] and _native.flags_waiting()
    assert set(called) == {threading.get_ident()}
