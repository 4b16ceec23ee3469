"""The life of a watch: how it is started and used."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import os
import pickle
import sys
import time
import weakref
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import trainperf
from children import train
from trainperf.cli.main import main
from unpatched import assert_unpatched, patchable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.tpr"


# How it is used


def test_with(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = patchable()
    with trainperf.watch(path, name="mine") as run:
        assert run.running and Path(run.path) == path
        train()
    assert_unpatched(before, patchable())
    assert not run.running
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("trainperf show") == 1
    with trainperf.open(path) as opened:
        assert opened.step_count == 10 and opened.ended == "normally" and opened.meta["name"] == "mine"
    assert "10 steps" in run.summary() and isinstance(run.findings, list)


def test_quiet(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with trainperf.watch(path, verbose=False):
        train()
    assert capsys.readouterr() == ("", "")


def test_what_is_shown_while_it_runs_says_so(path: Path) -> None:
    told = "the watch still runs: this is what it has seen so far"
    with trainperf.watch(path, verbose=False) as run:
        train()
        assert told in run.summary() and told in run._repr_mimebundle_()["text/html"]
    assert told not in run.summary() and told not in run._repr_mimebundle_()["text/html"]


def test_start_and_stop(path: Path) -> None:
    run = trainperf.start(path, verbose=False)
    train()
    assert trainperf.stop() is run
    assert trainperf.stop() is None
    run.stop()
    assert run.run.step_count == 10


def test_decorator(tmp_path: Path) -> None:
    path = tmp_path / "a.tpr"

    @trainperf.watch(path, overwrite=True, verbose=False)
    def loop(n: int, *, twice: bool = False) -> str:
        """Trains."""
        train(n)
        return "done"

    assert loop.__name__ == "loop" and loop.__doc__ == "Trains."
    assert loop(3) == "done"
    assert trainperf.open(path).step_count == 3
    assert loop(4, twice=True) == "done"  # each call is a watch of its own
    assert trainperf.open(path).step_count == 4


def test_decorated_coroutine_and_generator(tmp_path: Path) -> None:
    path = tmp_path / "a.tpr"

    @trainperf.watch(path, overwrite=True, verbose=False)
    async def asynchronous() -> int:
        train(3)
        await asyncio.sleep(0)
        return 3

    @trainperf.watch(path, overwrite=True, verbose=False)
    def losses() -> Iterator[int]:
        for i in range(3):
            train(1)
            yield i

    assert asyncio.run(asynchronous()) == 3
    assert trainperf.open(path).step_count == 3
    generator = losses()
    assert next(generator) == 0
    with pytest.raises(trainperf.AlreadyWatchingError):
        trainperf.start()
    generator.close()  # type: ignore[attr-defined]
    run = trainperf.open(path)
    assert run.step_count == 1 and run.ended == "normally"


def test_a_decorated_asynchronous_generator_is_sent_to_thrown_into_and_closed(path: Path) -> None:
    heard: list[Any] = []

    @trainperf.watch(path, overwrite=True, verbose=False)
    async def losses() -> AsyncGenerator[int, str]:
        try:
            while True:
                try:
                    heard.append((yield len(heard)))
                except KeyError as error:
                    heard.append(repr(error))
        finally:
            heard.append("closed")

    async def drive() -> list[int]:
        generator = losses()
        got = [await generator.asend(None), await generator.asend("sent"), await generator.athrow(KeyError("thrown"))]
        await generator.aclose()
        return got

    assert asyncio.run(drive()) == [0, 1, 2] and heard == ["sent", "KeyError('thrown')", "closed"]
    assert trainperf.open(path).ended == "normally"

    @trainperf.watch(path, overwrite=True, verbose=False)
    async def three() -> AsyncGenerator[int, None]:
        for i in range(3):
            yield i

    async def collect() -> list[int]:
        return [i async for i in three()]

    assert asyncio.run(collect()) == [0, 1, 2]


def test_an_exception_from_before_is_not_kept_alive_by_a_watch_that_is_over() -> None:
    """In a notebook the last exception is remembered, with its traceback and all that lies in its frames."""

    class Big:
        pass

    def fails(big: Big) -> None:
        raise MemoryError

    big = Big()
    alive = weakref.ref(big)
    try:
        fails(big)
    except MemoryError as error:
        sys.last_value = error
    try:
        with trainperf.watch(verbose=False) as run:
            pass
    finally:
        del sys.last_value, big
    gc.collect()
    assert alive() is None and not run.running


def test_a_module_that_holds_the_watch_can_be_copied() -> None:
    module: Any = torch.nn.Linear(1, 1)
    with trainperf.watch(verbose=False) as module.run:
        copied = copy.deepcopy(module)
        assert copied is not module and copied.run is module.run
        with pytest.raises(TypeError, match="keep it out of what is pickled"):
            pickle.dumps(module)


def test_a_private_file_goes_with_its_watch(capsys: pytest.CaptureFixture[str]) -> None:
    with trainperf.watch() as run:
        train()
    path = run.path
    assert os.path.exists(path) and run.run.step_count == 10
    assert "trainperf show" not in capsys.readouterr().err
    del run
    gc.collect()
    assert not os.path.exists(path)


def test_findings_while_it_runs(path: Path) -> None:
    with trainperf.watch(path, verbose=False) as run:
        train(300)
        seen = run.run.step_count  # the last ones are not certain yet
        assert 100 <= seen <= 300
        assert "trainperf" in run.summary()
        train(5)
    assert run.run.step_count == 305


def test_meta(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    with trainperf.watch(path, verbose=False):
        train(2)
    meta = trainperf.open(path).meta
    assert meta["torch"] == torch.__version__ and int(meta["torch_threads"]) == torch.get_num_threads()
    assert meta["python"].startswith("3.") and int(meta["cpus"]) == len(os.sched_getaffinity(0))
    assert json.loads(meta["argv"]) == sys.argv and int(meta["pid"]) == os.getpid()
    assert meta["local_rank"] == "1" and meta["feeds_device"] == "0"
    assert meta["started"].endswith("+00:00") and meta["host"] and meta["cwd"] == os.getcwd()


def test_a_program_that_goes_to_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    with trainperf.watch("a.tpr") as run:
        train(5)
        assert run.path == "a.tpr" and run.run.path == "a.tpr"
        os.chdir("other")
        train(5)
        assert run.path == str(tmp_path / "a.tpr") and "trainperf" in run.summary()
    assert run.run.step_count == 10 and os.listdir() == []
    assert capsys.readouterr().err.count("trainperf show") == 1
    os.chdir("..")
    with trainperf.watch("b.tpr", verbose=False) as run:
        os.chdir("other")
    os.chdir("..")
    assert run.path == "b.tpr" and sorted(os.listdir()) == ["a.tpr", "b.tpr", "other"]


def test_in_a_folder_whose_name_is_no_text(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(folder)
    monkeypatch.chdir(os.fsdecode(folder))
    with trainperf.watch(path, verbose=False):
        train(2)
    assert trainperf.open(path).meta["cwd"] == f"{tmp_path}/?"


# The calls in the loop


def tells(note: str, verdict: str) -> bool:
    """Where a finding, as on a busy machine, leaves no room for the note itself, the verdict says what it is about."""
    return f"Note  {note}" in verdict or "# note: " in verdict


def test_a_phase_that_is_none_is_told_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with trainperf.watch(path, verbose=False) as run:
        for _ in range(3):
            with run.phase("checkpiont"):
                train(1)
    assert caplog.text.count("checkpiont") == 1
    assert any("checkpiont" in note for note in run.run.notes)
    assert tells("phase('checkpiont')", run.summary())


def test_many_phases_that_are_none_are_not_all_remembered(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with trainperf.watch(path, verbose=False) as run:
        for i in range(1000):
            with run.phase(f"step {i}"):
                pass
        remembered = len(run._brackets)
        with run.phase("forward"):
            train(1)
    assert remembered <= 9 + 64 and len(caplog.records) <= 64 and len(run.run.notes) <= 64


def test_a_hook_that_is_off_is_in_the_verdict(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from trainperf.hooks.checkpoint import CheckpointHook

    def broken(*_: object) -> None:
        raise LookupError("torch has changed")

    monkeypatch.setattr(CheckpointHook, "install", broken)
    with trainperf.watch(path):
        train(3)
    assert tells("the checkpoint hook is off: LookupError: torch has changed", capsys.readouterr().err)


def test_a_run_that_is_opened_later_says_the_same(path: Path) -> None:
    with trainperf.watch(path, verbose=False) as watch:
        train(30)
    run = trainperf.open(path)
    assert isinstance(run.path, str) and run.path == watch.path
    assert run.findings == watch.findings and isinstance(run.findings, list)
    assert run.summary() == watch.summary()


def test_calls_outside_of_a_watch_do_nothing(path: Path) -> None:
    trainperf.step()
    with trainperf.phase("forward"), trainperf.phase("nonsense"):
        pass
    with trainperf.watch(path, verbose=False) as run:
        train(2)
    run.step()
    with run.phase("forward"):
        pass
    assert run.run.step_count == 2


# From the loop to the reader


def test_a_loop_that_only_calls_step_has_as_many_steps(path: Path) -> None:
    with trainperf.watch(path, verbose=False) as run:
        for _ in range(5):
            time.sleep(0.1)
            run.step()
    with run.run as file:
        assert file.step_count == 5 and all(abs(ns - 0.1e9) < 0.05e9 for ns in file.steps.wall_ns)


def test_what_comes_before_a_loop_that_only_calls_step_is_no_step(path: Path) -> None:
    with trainperf.watch(path, verbose=False) as run:
        time.sleep(0.3)
        for _ in range(5):
            time.sleep(0.05)
            run.step()
    assert run.run.step_count == 4 and run.run.lead_ns > 0.3e9


class Slow(torch.utils.data.Dataset[torch.Tensor]):
    """A worker's share of the fetch leaves no sample on the training thread: the place comes from the hook."""

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.01)
        return torch.ones(1)

    def __len__(self) -> int:
        return 60


def test_show_json_of_a_real_run(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weight = torch.ones(1, requires_grad=True)
    with trainperf.watch(path, verbose=False):
        for batch in torch.utils.data.DataLoader(Slow(), num_workers=1, multiprocessing_context="fork"):
            (weight * batch).sum().backward()
    assert main(["show", str(path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["trainperf"] == trainperf.__version__
    assert {"gil_waits", "gil_holds", "stacks", "run_delay"} <= set(shown["tiers"])
    assert 0 < shown["overhead"]["share"] < 1
    (starved,) = [finding for finding in shown["findings"] if finding["id"] == "TP102"]
    file, _, line = starved["where"].rpartition(":")
    assert Path(file).name == "test_watch.py" and int(line) == Slow.__getitem__.__code__.co_firstlineno
