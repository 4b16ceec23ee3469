"""The hook of os.sched_setaffinity."""

from __future__ import annotations

import json
import os
import threading

import pytest
from trainperf.hooks.affinity import AffinityHook, affinity_settings

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux only")


class _Session:
    def __init__(self) -> None:
        self.meta: dict[str, str] = {}

    def set_meta(self, key: str, value: str) -> None:
        self.meta[key] = value


class _Context:
    def __init__(self) -> None:
        self.session = _Session()

    def fail(self, name: str, error: Exception) -> None:
        raise error


def test_a_call_is_kept_with_its_line_and_the_hook_leaves_no_trace() -> None:
    before, hook, context = os.sched_setaffinity, AffinityHook(), _Context()
    hook.install(context)  # type: ignore[arg-type]
    try:
        cpus = os.sched_getaffinity(0)

        def change() -> None:  # of a thread of its own: nothing is left changed
            os.sched_setaffinity(0, {min(cpus)})
            os.sched_setaffinity(os.getppid(), os.sched_getaffinity(os.getppid()))  # another process

        thread = threading.Thread(target=change)
        thread.start()
        thread.join()
        with pytest.raises(OSError):
            os.sched_setaffinity(0, {10**4})
    finally:
        hook.remove()
    assert os.sched_setaffinity is before
    (call,) = json.loads(context.session.meta["affinity_calls"])
    assert call[1] == __file__ and call[2] == change.__code__.co_firstlineno + 1 and call[4] == 1, call


@pytest.mark.parametrize(("value", "binds"), [("close", True), ("false", False), ("", False), ("verbose,none", False)])
def test_settings_that_bind(monkeypatch: pytest.MonkeyPatch, value: str, binds: bool) -> None:
    for name in ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KMP_AFFINITY", value)
    assert affinity_settings() == ({"KMP_AFFINITY": value} if binds else {})
