"""Tests that forked processes run are reported as if one had run them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def said(tmp_path: Path) -> str:
    """By two workers, of three files; a test of the third kills its process."""
    (tmp_path / "test_a.py").write_text(
        "import os\n"
        "import pytest\n"
        "@pytest.fixture(scope='module')\n"
        "def process():\n"
        "    yield os.getpid()\n"
        "    assert False, 'torn down'\n"
        "def test_one(process): print('out of one'); assert process == os.getpid() == 'no number'\n"
        "def test_two(process): assert process == os.getpid()\n"
    )
    (tmp_path / "test_b.py").write_text("import pytest\ndef test_skipped(): pytest.skip('not here')\n")
    (tmp_path / "test_c.py").write_text(
        "import os, signal\ndef test_killed(): os.kill(os.getpid(), signal.SIGKILL)\ndef test_lost(): pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "tests.workers", "--workers", "2", "-q", "-rfEs", "--color=no"]
    command += ["--rootdir", str(tmp_path), "-c", "/dev/null", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_all_that_ran_is_told(said: str) -> None:
    for part in (
        r"assert \d+ == 'no number'",
        r"Captured stdout call -+\nout of one\n",
        r"AssertionError: torn down",
        r"SKIPPED \[1\] \S*test_b.py:2: not here",
        r"FAILED \S*test_a.py::test_one",
        r"ERROR \S*test_a.py::test_two",
        r"FAILED \S*test_c.py::test_killed",
        r"^worker '\d+' crashed: exit code -9; what it had taken was not run$",
        r"^2 failed, 1 passed, 1 skipped, 1 error in ",
    ):
        assert re.search(part, said, re.MULTILINE), (part, said)
