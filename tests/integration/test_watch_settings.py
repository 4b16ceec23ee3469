"""What a watch is told, by arguments and by the environment, and what is refused."""

from __future__ import annotations

import importlib.util
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import trainperf
from children import child, train
from trainperf.settings import resolve
from unpatched import assert_unpatched, patchable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.tpr"


# What is refused, before anything is changed


def test_nested(path: Path) -> None:
    with trainperf.watch(path, verbose=False):
        before = patchable()
        with pytest.raises(trainperf.AlreadyWatchingError, match=r"a\.tpr.*leave that watch"), trainperf.watch():
            pass
        other: list[BaseException] = []

        def elsewhere() -> None:
            try:
                trainperf.start()
            except trainperf.AlreadyWatchingError as error:
                other.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert len(other) == 1
        assert_unpatched(before, patchable())
        train()
    assert trainperf.open(path).step_count == 10


def test_a_watch_serves_once(path: Path) -> None:
    watch = trainperf.watch(path, verbose=False)
    with watch:
        pass
    with pytest.raises(trainperf.TrainperfError, match="make another"), watch:
        pass


def test_paths_that_are_refused(tmp_path: Path) -> None:
    before = patchable()
    (tmp_path / "a.tpr").write_text("precious")
    with pytest.raises(FileExistsError, match="overwrite"), trainperf.watch(tmp_path / "a.tpr"):
        pass
    assert (tmp_path / "a.tpr").read_text() == "precious"
    with pytest.raises((OSError, ValueError), match="missing"), trainperf.watch(tmp_path / "missing" / "a.tpr"):
        pass
    assert_unpatched(before, patchable())
    with trainperf.watch(tmp_path / "a.tpr", overwrite=True, verbose=False):  # nothing is left of the failed ones
        train(2)
    assert trainperf.open(tmp_path / "a.tpr").step_count == 2


def test_a_run_file_through_a_link_keeps_the_link_and_the_permissions(path: Path, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    real = tmp_path / "far" / "real.tpr"
    real.touch(mode=0o600)
    path.symlink_to("far/real.tpr")
    with trainperf.watch(path, overwrite=True, verbose=False):
        train(2)
        trainperf.open(path).close()  # its log lies next to the file, not next to the link
    assert os.readlink(path) == "far/real.tpr" and real.stat().st_mode & 0o777 == 0o600
    assert trainperf.open(path).step_count == 2 and os.listdir(real.parent) == ["real.tpr"]


def test_the_script_is_not_replaced_by_its_run(tmp_path: Path) -> None:
    script, link = tmp_path / "train.py", tmp_path / "link.tpr"
    script.write_text("print('trained')")
    link.symlink_to(script)
    for target in (script, link):
        words = ["-m", "trainperf", "run", "-f", "-o", str(target), str(script)]
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 1 and "is the input itself: give another name" in done.stderr
        assert "trained" not in done.stdout and script.read_text() == "print('trained')"


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"gil": "exakt"}, "did you mean 'exact'"),
        ({"sampler_hz": -1}, "sampler_hz=-1"),
        ({"sampler_hz": float("nan")}, "sampler_hz=nan"),
        ({"budget": 0}, "one percent"),
        ({"budget": 2}, "budget=2"),
        ({"flag_shares": {"data_starvd": 0.1}}, "did you mean 'data_starved'"),
        ({"flag_shares": {"data_starved": 10}}, "ten percent"),
        ({"path": ""}, "path is empty"),
        ({"path": "a\0b"}, "NUL"),
        ({"path": "\udcff.tpr"}, "path='.udcff.tpr' cannot be written as UTF-8: give another"),
        ({"name": "\udcff"}, "name='.udcff' cannot be written as UTF-8"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        trainperf.watch(**options)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"sampler_hz": "250"}, "must be a number: use 60"),
        ({"budget": True}, "must be a number: 0.01"),
        ({"name": 3}, "must be a str"),
        ({"path": 3}, "give a file name"),
        ({"path": print}, r"written @trainperf\.watch\(\), with its parentheses"),
        ({"flag_shares": ["data_starved"]}, 'must be a dict, such as {"data_starved": 0.1}'),
        ({"on_flag": 3}, "give a function of one argument"),
        ({"no_such_option": 1}, "no_such_option"),
    ],
)
def test_options_of_the_wrong_kind(options: dict[str, Any], match: str) -> None:
    with pytest.raises(TypeError, match=match):
        trainperf.watch(**options)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TRAINPERF_DISABLE", "perhaps"),
        ("TRAINPERF_LOG_LEVEL", "loud"),
        ("TRAINPERF_DIR", __file__),
    ],
)
def test_variables_that_are_refused(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=variable):
        trainperf.watch()


# The environment


def test_argument_over_environment_over_default(tmp_path: Path) -> None:
    settings = resolve(environ={})
    assert settings.run_path() == "" and settings.verbose and not settings.disabled and settings.log_level is None
    settings = resolve(environ={"TRAINPERF_DIR": str(tmp_path / "runs"), "TRAINPERF_LOG_LEVEL": "ERROR"})
    assert Path(settings.run_path()).parent == tmp_path / "runs" and not settings.verbose
    assert settings.log_level == logging.ERROR
    settings = resolve("b.tpr", verbose=True, environ={"TRAINPERF_DIR": "x", "TRAINPERF_LOG_LEVEL": "error"})
    assert settings.run_path() == "b.tpr" and settings.verbose


def test_each_rank_writes_its_own_file() -> None:
    environ = {"RANK": "3", "WORLD_SIZE": "8"}
    assert resolve("runs/a.tpr", environ=environ).run_path() == "runs/a.rank3.tpr"
    assert resolve(environ=environ).run_path() == ""
    assert resolve("a.tpr", environ={"RANK": "0", "WORLD_SIZE": "1"}).run_path() == "a.tpr"
    assert resolve("a.tpr", environ={"RANK": "none"}).run_path() == "a.tpr"


def test_unknown_variable_is_told(caplog: pytest.LogCaptureFixture) -> None:
    resolve(environ={"TRAINPERF_DISABLED": "1"})
    assert "did you mean 'TRAINPERF_DISABLE'" in caplog.text


def test_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINPERF_DIR", str(tmp_path / "new" / "runs"))
    for _ in range(2):
        with trainperf.watch(name="my run/1", verbose=False):
            train(2)
    files = sorted((tmp_path / "new" / "runs").glob("my_run_1-*.tpr"))
    assert len(files) == 2 and trainperf.open(files[0]).step_count == 2


def test_disabled(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TRAINPERF_DISABLE", "1")
    monkeypatch.setenv("TRAINPERF_LOG_LEVEL", "loud")  # of no account then
    monkeypatch.setenv("TRAINPERF_DIR", __file__)
    before = patchable()
    with trainperf.watch(path) as run:
        assert_unpatched(before, patchable())
        with trainperf.watch(path), run.phase("forward"):  # no AlreadyWatchingError: nothing is watched
            run.step()
            train()
    assert not path.exists() and run.findings == [] and "TRAINPERF_DISABLE" in run.summary()
    assert capsys.readouterr().err == ""


WITHOUT_THE_CORE = """
        import importlib.abc
        class Blocker(importlib.abc.MetaPathFinder):
            def find_spec(self, name, where=None, target=None):
                if name == "trainperf._native":
                    raise ImportError("no such platform")
        sys.meta_path.insert(0, Blocker())"""


def test_without_the_core(path: Path) -> None:
    body = """
        for _ in range(2):
            with trainperf.watch(path) as run:
                run.step()
                with run.phase("forward"):
                    train()
            assert run.findings == []
        print("trained")
    """
    done = child(WITHOUT_THE_CORE + body, path)
    assert done.stdout == "trained\n"
    assert done.stderr.count("no such platform") == 1


@pytest.mark.parametrize("integration", ["lightning", "transformers"])
def test_a_frameworks_callback_without_the_core(integration: str, path: Path) -> None:
    name = {"lightning": "TrainPerf", "transformers": "TrainPerfCallback"}[integration]
    if importlib.util.find_spec(integration) is None:
        pytest.skip(f"{integration} is not installed")
    body = f"""
        from trainperf.integrations.{integration} import {name}
        watch, own = {name}(path)._begin_watch("", rank=0, world_size=1)
        print(watch is own, watch.context)
    """
    done = child(WITHOUT_THE_CORE + body, path)
    assert done.stdout == "True None\n", done.stderr


def test_log_level_is_undone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINPERF_LOG_LEVEL", "debug")
    logger = logging.getLogger("trainperf")
    monkeypatch.setattr(logger, "level", logging.CRITICAL)  # the program's own
    before = (logger.level, list(logger.handlers))
    with trainperf.watch(path, verbose=False):
        assert logger.level == logging.DEBUG
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(writer, b"as before" if (logger.level, list(logger.handlers)) == before else b"left behind")
            os._exit(0)
        os.waitpid(pid, 0)
        os.close(writer)
        with open(reader, "rb") as said:
            assert said.read() == b"as before"
    assert (logger.level, list(logger.handlers)) == before
