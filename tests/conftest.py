"""Fixtures of all tests. Nothing may stay patched after any of them."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from recorder import Recorder, Session
from unpatched import OURS, assert_unpatched, patchable


def pytest_configure() -> None:
    # Who is started in the background of a shell ignores Ctrl-C, and so would our children, which are sent one.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    gc.freeze()  # to look through what all tests import takes a quarter of a second, each time a trainer asks for it


@pytest.fixture(autouse=True)
def nothing_stays_patched() -> Iterator[None]:
    before = patchable()
    yield
    after = patchable()
    # A module that was imported in the test is compared with a clean one: nothing of ours.
    for what, value in after.items():
        for item in value if isinstance(value, list) else [value]:
            module = getattr(item, "__module__", None) or type(item).__module__
            code = getattr(item, "__code__", None)
            assert not str(module).startswith("trainperf"), what
            for holder in (item, getattr(item, "__self__", None)):
                assert not type(holder).__module__.startswith("trainperf"), what
            assert code is None or not code.co_filename.startswith(OURS), what
    assert_unpatched({what: before[what] for what in before}, after)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Compute threads that wait for one another take long on a machine that others use."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def hooked(recorder: Recorder) -> Iterator[Callable[..., Session]]:
    """hooked(*hooks) installs these hooks (all: none given) on the recorder until the test ends."""
    from trainperf.hooks import Hooks

    installed: list[Hooks] = []

    def install(*hooks: Any) -> Session:
        session = Session()
        installed.append(Hooks(recorder, session, hooks or None))
        installed[-1].install()
        return session

    yield install
    for hooks in reversed(installed):
        hooks.remove()
