"""The tracing of the GPU as the hooks begin it, and how it steps aside for torch's own users of CUPTI."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from recorder import Recorder, Session
from torch.autograd import profiler
from torch.profiler import ProfilerActivity
from trainperf.hooks import Hooks
from trainperf.hooks.cuda import CudaHook, cupti_folders
from trainperf.hooks.profiler import CuptiMonitorHook, ProfilerHook
from trainperf.settings import resolve

CPU, BOTH = {ProfilerActivity.CPU}, {ProfilerActivity.CPU, ProfilerActivity.CUDA}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """torch's three functions, replaced by ones that only tell that they were called."""
    told: list[str] = []

    def tell(name: str) -> Any:
        def function(*_: Any, **options: Any) -> str:
            if options.pop("fail", False):
                raise RuntimeError(name)
            told.append(name)
            return name

        return function

    for name in ("_prepare_profiler", "_enable_profiler", "_disable_profiler"):
        monkeypatch.setattr(profiler, name, tell(name))
    return told


@pytest.fixture
def session(recorder: Recorder, calls: list[str]) -> Iterator[Session]:
    made = Session()
    made.traces_cuda = True
    hooks = Hooks(recorder, made, [CudaHook(), ProfilerHook()], cuda=True, cupti_path="/x/libcupti.so.13")
    hooks.install()
    made.cuda.clear()
    yield made
    hooks.remove()
    assert profiler._prepare_profiler.__module__ == __name__


def test_tracing_begins_with_torch_and_the_path_of_the_settings(recorder: Recorder) -> None:
    made = Session()
    hooks = Hooks(recorder, made, [CudaHook(), ProfilerHook()], cuda=True, cupti_path="/x/libcupti.so.13")
    before = profiler._prepare_profiler
    hooks.install()
    assert made.cuda == ["trace /x/libcupti.so.13"]
    assert profiler._prepare_profiler is before  # it is not traced, so there is nothing to step aside with
    hooks.remove()
    off = Session()
    Hooks(recorder, off, [CudaHook(), ProfilerHook()], cuda=False).install()
    assert off.cuda == []


def test_it_lets_go_before_the_profiler_prepares_and_comes_back_after_it_has_stopped(
    session: Session, calls: list[str]
) -> None:
    order: list[str] = []
    pause, resume = session.pause_cuda, session.resume_cuda
    session.pause_cuda = lambda: (order.extend([*calls, "pause"]), pause())[1]  # type: ignore[method-assign]
    session.resume_cuda = lambda: (order.extend([*calls, "resume"]), resume())[1]  # type: ignore[method-assign]
    assert profiler._prepare_profiler("config", BOTH) == "_prepare_profiler"
    profiler._enable_profiler("config", BOTH)
    assert session.cuda == ["pause"]  # once
    profiler._disable_profiler()
    assert order == ["pause", "_prepare_profiler", "_enable_profiler", "_disable_profiler", "resume"]
    profiler._disable_profiler()
    assert session.cuda == ["pause", "resume"]


def test_a_profile_of_the_cpu_alone_is_none_of_its_business(session: Session) -> None:
    profiler._prepare_profiler("config", CPU)
    profiler._enable_profiler("config", activities=CPU)
    profiler._disable_profiler()
    assert session.cuda == []
    profiler._enable_profiler("config")  # which activities is not known
    profiler._disable_profiler()
    assert session.cuda == ["pause", "resume"]


def test_a_profiler_that_does_not_begin(session: Session) -> None:
    with pytest.raises(RuntimeError, match="_prepare_profiler"):
        profiler._prepare_profiler("config", BOTH, fail=True)
    assert session.cuda == ["pause", "resume"]
    profiler._prepare_profiler("config", BOTH)
    with pytest.raises(RuntimeError):  # a second one, while the first goes on
        profiler._prepare_profiler("config", BOTH, fail=True)
    profiler._disable_profiler()
    assert session.cuda == ["pause", "resume"] * 2


def test_an_interrupt_while_it_lets_go_does_not_leave_the_gpu_unseen(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = session.pause_cuda

    def interrupted() -> None:
        pause()
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "pause_cuda", interrupted)
    with pytest.raises(KeyboardInterrupt):
        profiler._prepare_profiler("config", BOTH)
    assert session.cuda == ["pause", "resume"]


def test_removed_in_the_middle_of_a_profile_it_only_passes_through(recorder: Recorder, calls: list[str]) -> None:
    made = Session()
    made.traces_cuda = True
    hooks = Hooks(recorder, made, [CudaHook(), ProfilerHook()], cuda=True)
    hooks.install()
    held = profiler._disable_profiler  # somebody keeps it
    profiler._prepare_profiler("config", BOTH)
    hooks.remove()
    assert held() == "_disable_profiler"
    assert made.cuda == ["trace", "pause"]


def test_a_profile_that_runs_when_the_watch_begins_is_waited_for(
    recorder: Recorder, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiler, "_is_profiler_enabled", True)
    made = Session()
    made.traces_cuda = True
    hooks = Hooks(recorder, made, [CudaHook(), ProfilerHook()], cuda=True)
    hooks.install()
    assert made.cuda == []
    monkeypatch.setattr(profiler, "_is_profiler_enabled", False)
    profiler._disable_profiler()
    assert made.cuda == ["trace"]
    profiler._prepare_profiler("config", BOTH)
    profiler._disable_profiler()
    assert made.cuda == ["trace", "pause", "resume"]
    hooks.remove()


def test_torchs_own_monitor_of_cupti(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    class CuptiMonitor:
        def start(self, fail: bool = False) -> str:
            if fail:
                raise OSError
            return "started"

        def stop(self) -> str:
            return "stopped"

    module = types.ModuleType("torch.profiler._cupti_monitor")
    module.CuptiMonitor = CuptiMonitor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(torch.profiler, "_cupti_monitor", module, raising=False)
    made = Session()
    made.traces_cuda = True
    hooks = Hooks(recorder, made, [CudaHook(), CuptiMonitorHook()], cuda=True)
    hooks.install()
    monitor = CuptiMonitor()
    assert monitor.start() == "started"
    assert monitor.stop() == "stopped"
    monitor.stop()
    with pytest.raises(OSError):
        monitor.start(fail=True)
    assert made.cuda == ["trace", "pause", "resume", "pause", "resume"]
    hooks.remove()
    assert CuptiMonitor.start.__qualname__.endswith("CuptiMonitor.start")


def test_a_monitor_that_runs_when_the_watch_begins_is_waited_for(
    recorder: Recorder, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class CuptiMonitor:
        def start(self) -> None: ...
        def stop(self) -> None: ...

    running = CuptiMonitor()
    module = types.ModuleType("torch.profiler._cupti_monitor")
    module.CuptiMonitor = CuptiMonitor  # type: ignore[attr-defined]
    module.get_monitor = lambda: running  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(torch.profiler, "_cupti_monitor", module, raising=False)
    made = Session()
    made.traces_cuda = True
    hooks = Hooks(recorder, made, [CudaHook(), ProfilerHook(), CuptiMonitorHook()], cuda=True)
    hooks.install()
    profiler._prepare_profiler("config", CPU)
    profiler._disable_profiler()
    assert made.cuda == []  # the monitor still runs
    monkeypatch.setattr(profiler, "_is_profiler_enabled", True)
    running.stop()
    assert made.cuda == []  # a profiler does
    monkeypatch.setattr(profiler, "_is_profiler_enabled", False)
    running.stop()
    assert made.cuda == ["trace"]
    running.start()
    running.stop()
    assert made.cuda == ["trace", "pause", "resume"]
    hooks.remove()


def test_the_wheels_folders_of_torchs_cuda_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("cu13", "cuda_cupti"):
        (tmp_path / "nvidia" / folder / "lib").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(tmp_path), "", "/nowhere"])
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert [Path(folder).parts[-2] for folder in cupti_folders()] == ["cuda_cupti", "cu13"]
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert [Path(folder).parts[-2] for folder in cupti_folders()] == ["cu13", "cuda_cupti"]
    monkeypatch.setattr(torch.version, "cuda", None)
    assert len(cupti_folders()) == 2


def test_settings(tmp_path: Path) -> None:
    assert (resolve(environ={}).cuda, resolve(environ={}).cupti_path) == ("auto", "")
    with pytest.raises(ValueError, match=r"cuda='of' is not a mode .did you mean 'off'.*: use auto, full, off"):
        resolve(cuda="of", environ={})
    with pytest.raises(ValueError, match=r"TRAINPERF_CUPTI_PATH='/nowhere' is not a file: .* or unset it"):
        resolve(environ={"TRAINPERF_CUPTI_PATH": "/nowhere"})
    library = tmp_path / "libcupti.so.13"
    library.write_bytes(b"")
    assert resolve(environ={"TRAINPERF_CUPTI_PATH": str(library)}).cupti_path == str(library)
