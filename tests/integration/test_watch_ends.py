"""How a watch ends, and everything that can happen to the process before that."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
import trainperf
from children import child, train
from trainperf.report.model import build
from unpatched import assert_unpatched, patchable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.tpr"


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
    assert done.stderr.count("Traceback") == 1 and done.stderr.count("trainperf show") == 1
    run = trainperf.open(path)
    assert run.ended == "exception" and run.step_count == 5


def test_ctrl_c_while_it_stops(path: Path) -> None:
    """A second Ctrl-C in the middle of the end loses neither the run nor the interrupt."""
    body = """
        import trainperf.meta
        def interrupting(session):
            signal.raise_signal(signal.SIGINT)
            return {}
        trainperf.meta.describe_end = interrupting
        with trainperf.watch(path, verbose=False):
            train(5)
    """
    done = child(body, path, code=-signal.SIGINT)
    assert "KeyboardInterrupt" in done.stderr
    assert trainperf.open(path).step_count == 5


def test_ctrl_c_while_the_hooks_go(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainperf.hooks.backward import BackwardHook

    before = patchable()
    remove, interrupts = BackwardHook.remove, [KeyboardInterrupt]

    def interrupted(hook: BackwardHook) -> None:
        if interrupts:
            raise interrupts.pop()
        remove(hook)

    monkeypatch.setattr(BackwardHook, "remove", interrupted)
    watch = trainperf.watch(path, verbose=False)
    with pytest.raises(KeyboardInterrupt), watch:
        train(5)
    assert_unpatched(before, patchable())
    assert not watch.running
    run = trainperf.open(path)
    assert run.step_count == 5 and run.ended == "normally"


def test_ctrl_c_while_it_starts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing stays: no hook, no file, no session; and the same watch can be tried again."""
    from trainperf.hooks.checkpoint import CheckpointHook

    before = patchable()
    install, interrupts = CheckpointHook.install, [KeyboardInterrupt]

    def interrupted(hook: CheckpointHook, context: Any) -> None:
        install(hook, context)
        if interrupts:
            raise interrupts.pop()

    monkeypatch.setattr(CheckpointHook, "install", interrupted)
    watch = trainperf.watch(path, verbose=False)
    with pytest.raises(KeyboardInterrupt), watch:
        raise AssertionError("never entered")
    assert_unpatched(before, patchable())
    assert list(path.parent.iterdir()) == [] and watch.path == "" and not watch.running
    watch.step()
    with watch.phase("forward"):
        pass
    with watch:
        train(5)
    assert trainperf.open(path).step_count == 5


# Where it ends up


def test_a_run_that_was_moved_away_is_saved_elsewhere_and_the_user_hears_of_it(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved: list[Path] = []
    for verbose in (True, False):
        watch = trainperf.watch(path, verbose=verbose)
        with ExitStack() as stack:
            if not verbose:
                stack.enter_context(pytest.warns(trainperf.TrainperfWarning, match="saved to"))
            with watch:
                train(5)
                path.unlink()
        err = capsys.readouterr().err
        assert ("saved to" in " ".join(err.split())) == verbose
        assert ("it was removed or" in " ".join(err.split())) == verbose  # the rest where the verdict leaves it a line
        assert watch.path != str(path) and watch.run.step_count == 5
        saved.append(Path(watch.path))
    for file in saved:
        file.unlink()


def test_warnings_that_are_errors_do_not_raise_into_the_program(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    watch = trainperf.watch(path, verbose=False)
    with watch:
        train(5)
        path.unlink()
    assert "saved to" in capsys.readouterr().err
    Path(watch.path).unlink()


def test_a_watch_that_nobody_enters_says_so(path: Path) -> None:
    """Dropped at once, or held to the end of the process; those that are used, or failed to start, say nothing."""
    used = """
trainperf.watch()(lambda: 0)
with trainperf.watch(path, verbose=False):
    try:
        trainperf.start()
    except trainperf.AlreadyWatchingError:
        pass
"""
    for code, times in (("trainperf.watch(path)", 1), ("held = trainperf.watch(path)", 1), (used, 0)):
        done = child(code, path)
        assert done.stderr.count("was never entered, and watched nothing") == times, done.stderr
        assert "Traceback" not in done.stderr


def test_a_folder_that_is_there_is_not_called_missing() -> None:
    with pytest.raises(FileNotFoundError, match=r"/proc/trainperf\.tpr cannot be made in /proc: No such file"):
        trainperf.start("/proc/trainperf.tpr")


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


def test_sigterm_prints_nothing_and_leaves_what_was_written(path: Path) -> None:
    body = """
        with trainperf.watch(path) as run:
            train(50)
            end = time.monotonic() + 20
            while trainperf.open(path).step_count < 49 and time.monotonic() < end:  # the last ends with the next
                time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGTERM)
    """
    done = child(body, path, code=-signal.SIGTERM)
    assert done.stderr == ""
    run = trainperf.open(path)
    assert run.ended == "killed" and run.step_count >= 49
    assert Path(f"{path}-wal").exists()
    assert "the run was killed, or still runs" in " ".join(run.summary().split())


@pytest.mark.alone
def test_a_process_that_was_stopped_is_not_told_that_it_was_blocked(path: Path) -> None:
    body = """
        def train_on(steps):
            for _ in range(steps):
                train(1)
                end = time.thread_time() + 0.02
                while time.thread_time() < end:
                    pass

        with trainperf.watch(path, verbose=False):
            for _ in range(3):
                train_on(20)
                os.system(f"(kill -STOP {os.getpid()}; sleep 1; kill -CONT {os.getpid()}) &")
            train_on(20)
    """
    child(body, path)
    run = trainperf.open(path)
    seen = round(run.stopped_ns / 1e9)  # one that begins while our own thread is at work, a percent of its time, is not
    assert seen >= 2, run.stopped_ns
    assert run.cause_ns("descheduled") > run.stopped_ns and run.cause_ns("blocked_io") < (3 - seen + 0.5) * 1e9
    stopped = f"the whole process was stopped for {run.stopped_ns / 1e9:.1f} s"
    assert any(stopped in note for note in build(run).notes)  # the summary has it where its 15 lines have room


def test_no_steps(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with trainperf.watch(path) as run:
        pass
    assert run.run.step_count == 0
    assert "no training step was seen" in capsys.readouterr().err


def test_what_fewer_samples_mean_is_said_in_words(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with trainperf.watch(path, budget=1e-6):
        end = time.monotonic() + 3.5
        while time.monotonic() < end:
            train(5)
    err = " ".join(capsys.readouterr().err.split())
    note = (
        "trainperf samples less often to keep its own cost below 0.0001 %: no action needed; times stay exact, places "
        "are coarser"
    )
    with trainperf.open(path) as run:
        assert len([n for n in run.notes if "less often" in n]) == 1 and build(run).notes[-1] == note
    # As its 15 lines have room.
    assert note in err or "trainperf samples less often" in err or re.search(r"# (note|[0-9]+ notes): ", err)
    tier = trainperf.open(path).tiers["gil_holds"].why
    # How far it has stepped down by now is the machine's.
    assert re.match(r"stepped down to [23]0 Hz: in one second trainperf cost more than 0.0001 % of it; the split", tier)


# Company


def test_threads_that_end(path: Path) -> None:
    with trainperf.watch(path, verbose=False) as run:
        for _ in range(50):
            threads = [threading.Thread(target=train, args=(1,)) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert {"marks", "samples"} <= set(run.run.dropped)
    assert run.run.dropped["marks"] == run.run.dropped["samples"] == 0


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


@pytest.mark.parametrize("on", [True, False])
def test_anomaly_detection_is_told_also_where_it_ended_before_the_watch(
    path: Path, capsys: pytest.CaptureFixture[str], on: bool
) -> None:
    with trainperf.watch(path), torch.autograd.set_detect_anomaly(on):  # type: ignore[no-untyped-call]
        train(10)
    assert ("Note  anomaly detection was on for " in capsys.readouterr().err) == on


@pytest.mark.parametrize("on", [True, False])
def test_a_profiler_that_was_left_on_is_told(path: Path, capsys: pytest.CaptureFixture[str], on: bool) -> None:
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    with trainperf.watch(path), profiler if on else ExitStack():
        train(10)
    assert ("Note  PyTorch's profiler was on for 100 % of the time" in capsys.readouterr().err) == on


def test_import_is_light() -> None:
    program = "import sys, trainperf; print([m for m in ('torch', 'numpy', 'rich', 'sqlite3') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
