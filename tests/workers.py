"""A plugin of pytest: tests share the machine, in processes that are forked once all tests are collected.

    python -m pytest -p tests.workers --workers 3 tests

To import all modules of tests takes eight seconds of CPU, which each worker of pytest-xdist takes for itself. As by
its `--dist loadfile`, the tests of a file run in one process and in their order; whoever is done takes the next file.
"""

from __future__ import annotations

import itertools
import os
import pickle
import selectors
import struct
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import pytest

_NUMBER = struct.Struct("<H")  # of a file, in the pipe that all workers read
_LENGTH = struct.Struct("<I")  # of what a worker tells next


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, help="so many processes run tests, file by file")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    count, option = session.config.option.workers, session.config.option
    if not count or option.collectonly or (session.testsfailed and not option.continue_on_collection_errors):
        return None
    files: dict[str, list[pytest.Item]] = {}
    for item in session.items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    waiting, put = os.pipe()
    os.write(put, b"".join(map(_NUMBER.pack, range(len(files)))))
    os.close(put)
    warm = sys.modules.get("warm")  # where tests ask for processes that find torch imported
    prepared = warm.prepare(count) if warm else []
    workers = []
    for number in range(count):

        def work(tells: _Tells, number: int = number) -> None:
            if warm:
                warm.take(prepared, number)
            _work(session, list(files.values()), waiting, tells)

        workers.append(_fork(session.config, work))
    os.close(waiting)
    for theirs in prepared:
        theirs.close()
    _hear(workers)
    return True


class _Worker:
    """As the process sees it that reports."""

    def __init__(self, config: pytest.Config, pid: int, told: int) -> None:
        self.pid, self.ended = pid, os.pidfd_open(pid)
        self._config, self._told = config, told
        os.set_blocking(told, False)
        self._rest = b""
        self._runs = self._error = ""

    def fileno(self) -> int:
        return self._told

    def hear(self) -> bool:
        """What it has written so far; whether there was anything."""
        try:
            heard = os.read(self._told, 1 << 16)
        except BlockingIOError:
            return False
        self._rest += heard
        while len(self._rest) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._rest)[0]
            if len(self._rest) < end:
                break
            told, self._rest = pickle.loads(self._rest[_LENGTH.size : end]), self._rest[end:]
            self._runs, self._error = told.get("runs", self._runs), told.get("error", self._error)
            if "report" in told:
                report = self._config.hook.pytest_report_from_serializable(config=self._config, data=told["report"])
                self._config.hook.pytest_runtest_logreport(report=report)
        return bool(heard)

    def close(self) -> None:
        """It has ended."""
        while self.hear():
            pass
        os.close(self._told)
        os.close(self.ended)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if code:
            said = f"{self._error}worker '{self.pid}' crashed: exit code {code}; what it had taken was not run"
            lost = pytest.TestReport(self._runs, (self._runs, None, self._runs), {}, "failed", said, "call")
            self._config.hook.pytest_runtest_logreport(report=lost)


def _fork(config: pytest.Config, work: Callable[[_Tells], None]) -> _Worker:
    sys.stdout.flush()
    sys.stderr.flush()
    told, ours = os.pipe()
    pid = os.fork()
    if pid:
        os.close(ours)
        return _Worker(config, pid, told)
    code = 1
    try:
        threading.main_thread()._set_native_id()  # type: ignore[attr-defined]  # as multiprocessing does
        os.close(told)
        tells = _Tells(config, ours)
        try:
            work(tells)
            code = 0
        except BaseException:
            tells.tell({"error": traceback.format_exc()})
    finally:
        os._exit(code)


def _work(session: pytest.Session, files: list[list[pytest.Item]], waiting: int, tells: _Tells) -> None:
    capture = session.config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()  # into files that all workers would share
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # what pytest's own reporter says here
    os.close(nowhere)
    capture.start_global_capturing()
    capture.suspend_global_capture()
    session.config.pluginmanager.register(tells)

    def taken() -> list[pytest.Item]:
        number = os.read(waiting, _NUMBER.size)
        return files[_NUMBER.unpack(number)[0]] if number else []

    run = session.config.hook.pytest_runtest_protocol
    items = taken()
    while items:
        for item, following in itertools.pairwise(items):
            run(item=item, nextitem=following)
        last, items = items[-1], taken()
        run(item=last, nextitem=items[0] if items else None)


class _Tells:
    """What the process that reports is told."""

    def __init__(self, config: pytest.Config, to: int) -> None:
        self._config, self._to = config, to

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.tell({"runs": nodeid})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tell({"report": self._config.hook.pytest_report_to_serializable(config=self._config, report=report)})

    def tell(self, what: Mapping[str, Any]) -> None:
        text = pickle.dumps(what)
        text = _LENGTH.pack(len(text)) + text
        while text:
            text = text[os.write(self._to, text) :]


def _hear(workers: list[_Worker]) -> None:
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker, selectors.EVENT_READ, worker.hear)
            selector.register(worker.ended, selectors.EVENT_READ, worker)
        while selector.get_map():
            for key, _ in selector.select():
                if isinstance(key.data, _Worker):
                    selector.unregister(key.data)
                    selector.unregister(key.data.ended)
                    key.data.close()
                elif key.fd in selector.get_map():  # else it has ended meanwhile
                    key.data()
