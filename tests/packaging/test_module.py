"""The compiled module keeps to itself: it exports one symbol, and links neither Python, nor torch, nor CUDA."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from trainperf import _native as native

MODULE = Path(native.__file__)


def run(*command: str) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_exports_nothing_but_its_init_function() -> None:
    symbols = {line.split()[-1].split("@")[0] for line in run("nm", "-D", "--defined-only", str(MODULE)).splitlines()}
    assert symbols == {"PyInit__native"}


def test_needs_no_libpython_torch_or_cuda() -> None:
    needed = re.findall(r"\(NEEDED\).*\[(.+?)\]", run("readelf", "-d", str(MODULE)))
    assert needed
    assert not [name for name in needed if re.search(r"python|torch|c10|cud|cupti|nv", name)]


def test_symbols_that_stay_open_are_cpythons_or_a_librarys() -> None:
    """A module links without complaint when one of our own functions is missing: ask the loader instead."""
    report = subprocess.run(["ldd", "-r", str(MODULE)], capture_output=True, text=True, check=False)
    undefined = re.findall(r"undefined symbol: (\S+)", report.stdout + report.stderr)
    assert undefined, "ldd -r must at least miss CPython's symbols"
    assert [name for name in undefined if not re.match(r"_?Py", name)] == []


def test_importing_trainperf_imports_no_torch() -> None:
    code = "import sys, trainperf; sys.exit(bool({'torch', 'lightning'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)
