"""How a watch begins, ends and tells beside threads that keep the GIL, and that the switch interval is as before."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trainperf
from children import child, train
from trainperf import _native
from trainperf.hooks import Hooks
from trainperf.report.console import print_verdict
from trainperf.watching import lifetime
from trainperf.watching.lifetime import Lifetime
from trainperf.watching.switch_interval import short_switch_interval
from trainperf.watching.verdict_in_child import print_in_child
from unpatched import assert_unpatched, patchable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.tpr"


def test_a_thread_that_keeps_the_gil_does_not_hold_the_verdict_up(path: Path) -> None:
    """The verdict gives the GIL up thousands of times: at 5 ms each, it took 39 s after a training of 10 s."""
    body = """
        def spin():
            while not over:
                sum(v * v % 7 for v in range(20_000))

        over = False
        thread = threading.Thread(target=spin, name="spinner")
        thread.start()
        sys.setswitchinterval(0.004)
        with trainperf.watch(path) as run:
            train(10)
            begin = time.monotonic()
        ended = time.monotonic()
        run.report(path + ".html")
        print(ended - begin, time.monotonic() - ended, sys.getswitchinterval())
        over = True
        thread.join()
    """
    done = child(body, path)
    took_s, report_s, interval_s = map(float, done.stdout.split())
    assert "trainperf show" in done.stderr
    assert took_s < 10 and report_s < 10 and interval_s == 0.004


def test_turns_are_short_from_the_begin_to_the_end_of_a_watch_but_not_in_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But as the session is made: it finds CPython's interval by its value."""
    turns = {}

    def note(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def noting(*args: Any, **kwargs: Any) -> Any:
            turns[name] = sys.getswitchinterval()
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, noting)

    note(_native, "Session")
    for name in ("install", "remove"):
        note(Hooks, name)
    note(Lifetime, "_show")
    before = sys.getswitchinterval()
    with trainperf.watch(path):
        within = sys.getswitchinterval()
        train(3)
    assert turns.pop("Session") == within == sys.getswitchinterval() == before
    assert sorted(turns) == ["_show", "install", "remove"] and all(turn < before / 10 for turn in turns.values())


def test_c_calls_that_keep_the_gil_do_not_hold_the_verdict_up(path: Path) -> None:
    """The verdict is told by a process of its own: in this one, at 13 ms each, it took 89 s."""
    body = """
        def keep():
            while not over:
                sum(numbers)  # a C call, which does not give the GIL up

        over, numbers = False, range(1_000_000)
        with trainperf.watch(path):
            thread = threading.Thread(target=keep, name="keeper")
            thread.start()
            train(10)
            begin = time.monotonic()
        print(time.monotonic() - begin, "trainperf.findings" in sys.modules)
        over = True
        thread.join()
    """
    done = child(body, path)
    took_s, told_here = done.stdout.split()
    assert done.stderr.count("trainperf show") == 1 and "gil_wait" in done.stderr, done.stderr
    assert float(took_s) < 30 and told_here == "False"


def told(path: Path, capsys: pytest.CaptureFixture[str], **changed: Any) -> tuple[bool, str]:
    capsys.readouterr()
    worked = print_in_child(str(path), **{"keep": True, "notes": ["as it is now"], **changed})
    return worked, capsys.readouterr().err


def test_another_process_tells_the_same(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with trainperf.watch(path, verbose=False) as run:
        train(10)
    print_verdict(run.run, keep=False, notes=["as it is now"])
    here = capsys.readouterr().err
    assert told(path, capsys, keep=False) == (True, here) and "as it is now" in here
    monkeypatch.setattr(sys, "path", [path.parent, *sys.path])  # a Path, as programs put there
    (path.parent / "json.py").write_text("raise SystemExit('not this one')")  # in the folder that we are in
    monkeypatch.chdir(path.parent)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert told(path, capsys, keep=False) == (True, here)  # its exit status is lost
        (path.parent / "truncated.tpr").write_bytes(path.read_bytes()[:5000])
        assert told(path.parent / "truncated.tpr", capsys) == (False, "")
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for executable in (None, "", "/bin/false", str(path.parent / "no-python")):
        monkeypatch.setattr(sys, "executable", executable)
        assert told(path, capsys) == (False, "")
    monkeypatch.setattr(sys, "stderr", None)
    assert not print_in_child(str(path), keep=True, notes=())


def test_what_another_process_cannot_tell_is_told_here(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = path.with_name("python-broken")
    broken.write_text("#!/bin/sh\ntouch $0.tried; exit 0\n")
    broken.chmod(0o755)
    monkeypatch.setattr(lifetime, "gil_is_kept", lambda: True)
    monkeypatch.setattr(sys, "executable", str(broken))
    with trainperf.watch(path):
        train(10)
    assert capsys.readouterr().err.count("trainperf show") == 1
    assert path.with_name("python-broken.tried").exists()


@pytest.fixture
def interval() -> Iterator[float]:
    before = sys.getswitchinterval()
    yield before
    sys.setswitchinterval(before)


def test_an_interval_that_is_set_as_the_verdict_is_told_stays(interval: float) -> None:
    with short_switch_interval():
        assert sys.getswitchinterval() < interval
        sys.setswitchinterval(0.0001)
    assert sys.getswitchinterval() == pytest.approx(0.0001, abs=2e-6)


@pytest.mark.parametrize("us", [0.1, 1, 50, 100, 7_000, 100_000])  # 0.1: CPython makes 0 of it, and takes no 0
def test_the_interval_is_as_before_to_the_microsecond(interval: float, us: float) -> None:
    sys.setswitchinterval((us + 0.05) / 1e6)
    before = sys.getswitchinterval()
    for _ in range(5):
        with short_switch_interval(), short_switch_interval():
            assert sys.getswitchinterval() <= max(before, 1e-4)
    assert sys.getswitchinterval() == before


def test_the_interval_is_as_before_where_several_threads_tell_at_once(interval: float) -> None:
    def tell() -> None:
        for _ in range(3_000):
            with short_switch_interval():
                time.sleep(0)

    threads = [threading.Thread(target=tell) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sys.getswitchinterval() == interval


def test_a_child_that_is_forked_meanwhile_has_the_interval_as_before(path: Path, interval: float) -> None:
    turns = short_switch_interval()
    with trainperf.watch(path, verbose=False):
        turns.__enter__()
        pid = os.fork()
        if pid == 0:
            found = []
            try:
                found.append(sys.getswitchinterval() == interval)
                with short_switch_interval():
                    found.append(sys.getswitchinterval() < interval)
                turns.__exit__(None, None, None)
                found.append(sys.getswitchinterval() == interval)
            finally:
                os._exit(0 if found == [True] * 3 else 1)
        turns.__exit__(None, None, None)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0 and sys.getswitchinterval() == interval


def test_an_interrupt_as_turns_are_made_short_leaves_nothing_patched(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    before = patchable()
    watch = trainperf.start(path, verbose=False)
    train(3)
    monkeypatch.setattr(lifetime, "short_switch_interval", interrupted)
    with pytest.raises(KeyboardInterrupt):
        watch.stop()
    assert_unpatched(before, patchable())
    assert trainperf.open(path).step_count == 3
