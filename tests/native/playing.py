"""Runs a scenario on this CPython, or on each supported one that is found, with gil_truth built for it.

NATIVE_TEST_MODULE names the folder of a gil_truth that was built elsewhere, for a system that builds none.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = Path(__file__).parent / "scenarios" / "run.py"
SUPPORTED = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.15")
ASK = "import sys, sysconfig; print('%d.%d' % sys.version_info[:2], bool(sysconfig.get_config_var('Py_GIL_DISABLED')))"
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))

BUILT = os.environ.get("NATIVE_TEST_MODULE")
BUILDS = shutil.which("cmake") is not None and shutil.which("ninja") is not None

MARKS = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the GIL probes are for Linux"),
    pytest.mark.skipif(not BUILT and not BUILDS, reason="needs cmake and ninja"),
    pytest.mark.timeout(600),
]


def pythons() -> dict[str, str]:
    """Version -> interpreter."""
    found = {"{}.{}".format(*sys.version_info[:2]): sys.executable}
    if os.environ.get("TRAINPERF_ALL_PYTHONS"):
        candidates = [shutil.which(f"python{version}") for version in SUPPORTED]
        candidates += [str(p) for p in sorted(Path.home().glob(".pyenv/versions/3.*/bin/python3"))]
        for candidate in filter(None, candidates):
            done = subprocess.run([candidate, "-c", ASK], capture_output=True, text=True, check=False)
            version, _, free_threaded = done.stdout.strip().partition(" ")
            if done.returncode == 0 and version in SUPPORTED and free_threaded == "False":
                found.setdefault(version, candidate)
    return found


@pytest.fixture(scope="session", params=sorted(pythons()))
def python(request: pytest.FixtureRequest) -> tuple[str, Path]:
    """An interpreter, and the folder of gil_truth built for it."""
    version = request.param
    executable = pythons()[version]
    if BUILT:
        return executable, Path(BUILT)
    pybind11 = pytest.importorskip("pybind11")
    build = ROOT / "build" / f"native-{version}"
    if executable == sys.executable:  # make test has built it already
        build = Path(os.environ.get("NATIVE_TEST_BUILD", build))
    log = ""
    configure = ["cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja", "-DTRAINPERF_TESTS=ON"]
    configure += [f"-DPython_EXECUTABLE={executable}", f"-Dpybind11_DIR={pybind11.get_cmake_dir()}"]
    for command in (configure, ["cmake", "--build", str(build), "--target", "gil_truth", "--parallel", "2"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        log += done.stdout + done.stderr
        assert done.returncode == 0, log[-4000:]
    return executable, build / "tests" / "native"


def play(python: tuple[str, Path], scenario: str, *, gil: bool = True) -> dict[str, Any]:
    """`gil`: of a free-threaded build, whether it is switched on."""
    executable, module = python
    done = subprocess.run(
        [executable, str(SCENARIOS), str(module), scenario],
        env={**os.environ, "PYTHON_GIL": str(int(gil))} if FREE_THREADED else None,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    result: dict[str, Any] = json.loads(done.stdout)
    return result
