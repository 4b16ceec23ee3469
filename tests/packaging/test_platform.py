"""Where the compiled core is not for the platform, the package is built without it: run files are read there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(shutil.which("cmake") is None or shutil.which("ninja") is None, reason="needs cmake and ninja")
@pytest.mark.parametrize("system", ["Darwin", "Windows"])
def test_elsewhere_only_what_is_read_is_installed(tmp_path: Path, system: str) -> None:
    configure = [
        "cmake",
        "-S",
        str(ROOT),
        "-B",
        str(tmp_path / "build"),
        "-G",
        "Ninja",
        f"-DCMAKE_SYSTEM_NAME={system}",
    ]
    done = subprocess.run(configure, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"trainperf watches on 64-bit Linux with glibc, not on {system}" in " ".join(done.stderr.split())
    install = ["cmake", "--install", str(tmp_path / "build"), "--prefix", str(tmp_path / "site")]
    subprocess.run(install, capture_output=True, check=True)
    installed = {p.suffix for p in (tmp_path / "site" / "trainperf").rglob("*") if p.is_file()}
    assert installed == {".md"}
