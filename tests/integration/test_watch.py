"""The life of a watch: how it starts, how it ends, and everything that can happen to the process in between."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import trainperf
from conftest import assert_unpatched, patchable
from trainperf.settings import resolve

pytest.importorskip("trainperf._native")

CHILD = """
import os, sys, signal, threading, time
import torch
import trainperf
from torch.utils.data import DataLoader

weight = torch.ones(1, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
def train(n=10, **options):
    for batch in DataLoader([torch.ones(1)] * n, batch_size=None, **options):
        (weight * batch).sum().backward()
        optimizer.step()
path = sys.argv[1]
"""


def train(n: int = 10) -> None:
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for batch in torch.utils.data.DataLoader([torch.ones(1)] * n, batch_size=None):  # type: ignore[arg-type]
        (weight * batch).sum().backward()
        optimizer.step()


def child(
    body: str, path: Path, *, code: int = 0, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", CHILD + textwrap.dedent(body), str(path)],
        capture_output=True, text=True, timeout=100, check=False, env={**os.environ, **(env or {})},
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done


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
    with pytest.raises((OSError, ValueError), match="directory"), trainperf.watch(tmp_path):
        pass
    with pytest.raises((OSError, ValueError), match="missing"), trainperf.watch(tmp_path / "missing" / "a.tpr"):
        pass
    assert_unpatched(before, patchable())
    with trainperf.watch(tmp_path / "a.tpr", overwrite=True, verbose=False):  # nothing is left of the failed ones
        train(2)
    assert trainperf.open(tmp_path / "a.tpr").step_count == 2


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
    ],
)
def test_options_that_are_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        trainperf.watch(**options)


@pytest.mark.parametrize(
    "options", [{"sampler_hz": "250"}, {"budget": True}, {"name": 3}, {"path": 3}, {"no_such_option": 1}]
)
def test_options_of_the_wrong_kind(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        trainperf.watch(**options)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TRAINPERF_DISABLE", "perhaps"),
        ("TRAINPERF_LOG_LEVEL", "loud"),
        ("TRAINPERF_DIR", __file__),
        ("TRAINPERF_CUPTI_PATH", "/no/such/libcupti.so"),
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
    before = patchable()
    with trainperf.watch(path) as run:
        assert_unpatched(before, patchable())
        with trainperf.watch(path), run.phase("forward"):  # no AlreadyWatchingError: nothing is watched
            run.step()
            train()
    assert not path.exists() and run.findings == [] and "TRAINPERF_DISABLE" in run.summary()
    assert capsys.readouterr().err == ""


def test_without_the_core(path: Path) -> None:
    body = """
        import importlib.abc
        class Blocker(importlib.abc.MetaPathFinder):
            def find_spec(self, name, where=None, target=None):
                if name == "trainperf._native":
                    raise ImportError("no such platform")
        sys.meta_path.insert(0, Blocker())
        for _ in range(2):
            with trainperf.watch(path) as run:
                run.step()
                with run.phase("forward"):
                    train()
            assert run.findings == []
        print("trained")
    """
    done = child(body, path)
    assert done.stdout == "trained\n"
    assert done.stderr.count("no such platform") == 1


def test_log_level_is_undone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINPERF_LOG_LEVEL", "debug")
    logger = logging.getLogger("trainperf")
    before = (logger.level, list(logger.handlers))
    with trainperf.watch(path, verbose=False):
        assert logger.level == logging.DEBUG
    assert (logger.level, list(logger.handlers)) == before


# The calls in the loop


def test_a_phase_that_is_none_is_told_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with trainperf.watch(path, verbose=False) as run:
        for _ in range(3):
            with run.phase("checkpiont"):
                train(1)
    assert caplog.text.count("checkpiont") == 1
    assert any("checkpiont" in note for note in run.run.notes)


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


# How it ends


def test_an_exception_passes_untouched(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = patchable()
    error = RuntimeError("loss is nan")
    with pytest.raises(RuntimeError) as caught, trainperf.watch(path):
        train(3)
        raise error
    assert caught.value is error and error.__context__ is None
    assert_unpatched(before, patchable())
    run = trainperf.open(path)
    assert run.ended == "exception" and run.step_count == 3 and run.meta["exception"] == "RuntimeError"
    assert capsys.readouterr().err.count("trainperf show") == 1


def test_ctrl_c(path: Path) -> None:
    body = """
        with trainperf.watch(path):
            train(5)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)
    """
    done = child(body, path, code=-signal.SIGINT)
    assert done.stderr.count("KeyboardInterrupt") == 1 and done.stderr.count("trainperf show") == 1
    run = trainperf.open(path)
    assert run.ended == "exception" and run.step_count == 5


def test_ctrl_c_while_it_stops(path: Path) -> None:
    """A second Ctrl-C in the middle of the end loses neither the run nor the interrupt."""
    body = """
        import trainperf.watch
        def interrupting(session):
            signal.raise_signal(signal.SIGINT)
            return {}
        sys.modules["trainperf.watch"]._describe_torch = interrupting
        with trainperf.watch(path, verbose=False):
            train(5)
    """
    done = child(body, path, code=-signal.SIGINT)
    assert "KeyboardInterrupt" in done.stderr
    assert trainperf.open(path).step_count == 5


@pytest.mark.parametrize(("argument", "code"), [("3", 3), ("", 0), ("'bad'", 1)])
def test_sys_exit(path: Path, argument: str, code: int) -> None:
    child(f"with trainperf.watch(path):\n    train(5)\n    sys.exit({argument})", path, code=code)
    run = trainperf.open(path)
    assert run.ended == "exception" and run.step_count == 5 and run.meta["exception"] == "SystemExit"


def test_start_without_stop(path: Path) -> None:
    done = child("trainperf.start(path)\ntrain(5)", path)
    run = trainperf.open(path)
    assert run.ended == "normally" and run.step_count == 5
    assert done.stderr.count("trainperf show") == 1


def test_start_and_an_uncaught_exception(path: Path) -> None:
    done = child("trainperf.start(path)\ntrain(5)\n1 / 0", path, code=1)
    run = trainperf.open(path)
    assert run.ended == "exception" and run.step_count == 5 and run.meta["exception"] == "ZeroDivisionError"
    assert done.stderr.index("ZeroDivisionError") < done.stderr.index("trainperf show")


def test_a_generator_that_holds_the_watch_at_exit(path: Path) -> None:
    body = """
        def losses():
            with trainperf.watch(path):
                while True:
                    train(1)
                    yield 1
        held = losses()
        for _ in range(5): next(held)
    """
    child(body, path)
    run = trainperf.open(path)
    assert run.ended == "normally" and run.step_count == 5


def test_os_exit_leaves_a_whole_file(path: Path) -> None:
    body = """
        with trainperf.watch(path) as run:
            train(50)
            run._session.flush()
            os._exit(7)
    """
    child(body, path, code=7)
    run = trainperf.open(path)
    assert run.ended == "killed" and run.step_count >= 45


def test_kill(path: Path) -> None:
    body = """
        with trainperf.watch(path) as run:
            train(50)
            run._session.flush()
            os.kill(os.getpid(), signal.SIGKILL)
    """
    child(body, path, code=-signal.SIGKILL)
    assert trainperf.open(path).ended == "killed"


def test_no_steps(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with trainperf.watch(path) as run:
        pass
    assert run.run.step_count == 0
    assert "no training step was seen" in capsys.readouterr().err


# Processes


def test_fork_inside(path: Path) -> None:
    """The child reports nothing, leaves nothing patched, prints nothing, and may watch itself."""
    body = """
        plain = torch.autograd.backward
        with trainperf.watch(path) as run:
            train(5)
            pid = os.fork()
            if pid == 0:
                ok = torch.autograd.backward is plain and not run.running
                train(100)
                run.step()
                run.stop()
                with trainperf.watch(path + ".child", verbose=False) as own:
                    train(3)
                ok = ok and own.run.step_count == 3
                sys.stderr.flush()
                if not ok:
                    os._exit(1)
                sys.exit(0)   # leaves by the parent's with, and runs atexit
            assert os.waitpid(pid, 0)[1] == 0
            train(5)
    """
    done = child(body, path)
    run = trainperf.open(path)
    assert run.step_count == 10 and run.ended == "normally"
    assert done.stderr.count("trainperf show") == 1
    assert trainperf.open(f"{path}.child").step_count == 3


def test_many_forks_while_threads_run(path: Path) -> None:
    body = """
        done = threading.Event()
        def churn():
            while not done.is_set():
                (weight * 1).sum().backward()
        threads = [threading.Thread(target=churn) for _ in range(2)]
        with trainperf.watch(path, verbose=False):
            for thread in threads: thread.start()
            for i in range(30):
                pid = os.fork()
                if pid == 0:
                    trainperf.stop()
                    os._exit(0)
                assert os.waitpid(pid, 0)[1] == 0
            done.set()
            for thread in threads: thread.join()
        print("fine")
    """
    assert child(body, path).stdout == "fine\n"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers(path: Path, tmp_path: Path, method: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        CHILD.replace("path = sys.argv[1]", "")
        + textwrap.dedent(f"""
            if __name__ == "__main__":
                with trainperf.watch(sys.argv[1]):
                    train(10, num_workers=2, multiprocessing_context={method!r})
        """)
    )
    done = subprocess.run(
        [sys.executable, str(script), str(path)], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("trainperf show") == 1
    run = trainperf.open(path)
    assert run.step_count == 10
    assert next(iter(run.loaders.values())).description["multiprocessing_context"] == method


def test_subprocess_inside(path: Path) -> None:
    with trainperf.watch(path, verbose=False):
        train(3)
        done = subprocess.run([sys.executable, "-c", "print('hello')"], capture_output=True, text=True, check=True)
        assert done.stdout == "hello\n" and done.stderr == ""
        train(2)
    assert trainperf.open(path).step_count == 5


# Company


def test_threads_that_end(path: Path) -> None:
    with trainperf.watch(path, verbose=False) as run:
        for _ in range(50):
            threads = [threading.Thread(target=train, args=(1,)) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert run.run.dropped.get("events", 0) == 0


def test_tracers_and_profilers_at_the_same_time(path: Path) -> None:
    body = """
        import faulthandler, tracemalloc, cProfile
        faulthandler.enable()
        tracemalloc.start()
        lines = 0
        def tracer(frame, event, argument):
            global lines
            lines += event == "line"
            return tracer
        with trainperf.watch(path, verbose=False):
            sys.settrace(tracer); threading.settrace(tracer)
            train(5)
            sys.settrace(None); threading.settrace(None)
            profile = cProfile.Profile()
            profile.runcall(train, 5)
        tracemalloc.stop()
        assert lines > 50
        print("fine")
    """
    assert child(body, path).stdout == "fine\n"
    assert trainperf.open(path).step_count == 10


def test_torch_profiler_at_the_same_time(path: Path) -> None:
    with trainperf.watch(path, verbose=False), torch.profiler.profile() as profile:
        train(5)
    assert trainperf.open(path).step_count == 5
    assert any("enumerate(DataLoader)" in event.key for event in profile.key_averages())


def test_torch_imported_inside(path: Path) -> None:
    program = """
import sys, trainperf
assert "torch" not in sys.modules
with trainperf.watch(sys.argv[1], verbose=False):
    import torch
    from torch.utils.data import DataLoader
    weight = torch.ones(1, requires_grad=True)
    for batch in DataLoader([torch.ones(1)] * 5, batch_size=None):
        (weight * batch).sum().backward()
"""
    subprocess.run([sys.executable, "-c", program, str(path)], check=True, timeout=100)
    run = trainperf.open(path)
    assert run.step_count == 5 and run.meta["torch"] == torch.__version__


def test_torch_absent(path: Path) -> None:
    program = """
import sys, trainperf
sys.modules["torch"] = None
with trainperf.watch(sys.argv[1], verbose=False) as run:
    for i in range(5):
        run.step()
"""
    subprocess.run([sys.executable, "-c", program, str(path)], check=True, timeout=100)
    run = trainperf.open(path)
    assert "torch" not in run.meta and run.tiers["torch_hooks"].tier == "off"


def test_the_users_own_signal_handlers_run(path: Path) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        with trainperf.watch(path, verbose=False):
            for _ in range(20):
                os.kill(os.getpid(), signal.SIGUSR1)
                train(1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(seen) == 20


def test_import_is_light() -> None:
    program = "import sys, trainperf; print([m for m in ('torch', 'numpy', 'rich', 'sqlite3') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
