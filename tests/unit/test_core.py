"""What is said where the compiled core cannot be had: one line, with the fix where there is one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trainperf
from trainperf import core, traces
from trainperf.cli.main import main
from trainperf.errors import TrainperfError


@pytest.fixture
def no_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(trainperf, "_native")
    monkeypatch.setitem(sys.modules, "trainperf._native", None)


def test_here_there_is_one() -> None:
    assert core.load() is sys.modules["trainperf._native"]


def test_one_that_was_built_for_other_python_code_is_told_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An old module beside new Python code, whose stub has one more function."""
    core.load()
    assert not caplog.messages and not core.is_stale(trainperf._native)
    stub = tmp_path / "_native.pyi"
    stub.write_text(Path(core._STUB).read_text() + "def newer() -> None: ...\n")
    monkeypatch.setattr(core, "_STUB", str(stub))
    monkeypatch.setattr(core, "_told", set())
    assert main(["doctor"]) == 0
    core.load()
    assert caplog.messages == [core.STALE] and f"  note: {core.STALE}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("system", "libc", "pointers", "says"),
    [
        ("darwin", "", 2**63 - 1, "64-bit Linux with glibc, not on darwin; run files can be read here"),
        ("win32", "", 2**63 - 1, "64-bit Linux with glibc, not on win32; run files can be read here"),
        ("linux", "musl", 2**63 - 1, "64-bit Linux with glibc, not on musl; run files can be read here"),
        ("linux", "glibc", 2**31 - 1, "64-bit Linux with glibc, not on 32-bit linux; run files can be read here"),
        ("linux", "glibc", 2**63 - 1, "the compiled core is not there for CPython 3"),
    ],
)
@pytest.mark.usefixtures("no_core")
def test_a_watch_says_why_it_does_nothing(
    monkeypatch: pytest.MonkeyPatch, system: str, libc: str, pointers: int, says: str
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(sys, "maxsize", pointers)
    monkeypatch.setattr("platform.libc_ver", lambda: (libc, ""))
    with trainperf.watch(verbose=False) as watch:
        trainperf.step()
    assert not watch.path
    line = watch.summary()
    assert line.startswith("trainperf: nothing was watched: ") and says in line and "\n" not in line


@pytest.mark.usefixtures("no_core")
def test_a_trace_is_refused_in_one_line(tmp_path: object) -> None:
    with pytest.raises(TrainperfError, match="pip install --force-reinstall trainperf"):
        traces.analyze(f"{tmp_path}/trace.json", None)


def test_a_core_that_does_not_load_says_what_the_loader_said() -> None:
    """Such as that of another glibc, or one in a sub-interpreter."""
    program = (
        "import sys, importlib.abc\n"
        "class Refuses(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'trainperf._native': raise ImportError('version GLIBC_2.38 not found')\n"
        "sys.meta_path.insert(0, Refuses())\n"
        "import trainperf\n"
        "with trainperf.watch(): pass\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == (
        "trainperf: nothing was watched: the compiled core cannot be imported: version GLIBC_2.38 not found\n"
    )
