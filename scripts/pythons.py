"""Prints each CPython >= 3.10 of this machine that modules can be built for: "/usr/bin/python3.11 cpython-311-1f3a".

That is its path and a tag for folders. The one of .venv comes first. Looks at PATH and at pyenv's versions; one build
of Python is printed once.
"""

from __future__ import annotations

import glob
import hashlib
import os
import subprocess
import sys
from pathlib import Path

ASK = """
import os, sys, sysconfig
ok = sys.implementation.name == "cpython" and sys.version_info >= (3, 10)
ok = ok and os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
try:
    import ensurepip, venv
except ImportError:
    ok = False
if ok:
    base = getattr(sys, "_base_executable", sys.executable)
    print(os.path.realpath(base), sys.implementation.cache_tag + sys.abiflags)
"""


def candidates() -> list[str]:
    found = [str(Path(__file__).parent.parent / ".venv/bin/python")]
    minors = range(10, 16)
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        found += [f"{folder}/python3", *(f"{folder}/python3.{minor}" for minor in minors)]
    pyenv = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    found += sorted(glob.glob(f"{pyenv}/versions/3.*/bin/python3"))
    return [path for path in found if os.access(path, os.X_OK) and "/shims/" not in path]


def main() -> int:
    seen: set[str] = set()
    for candidate in candidates():
        answer = subprocess.run([candidate, "-c", ASK], capture_output=True, text=True, check=False).stdout.split()
        if len(answer) != 2 or answer[0] in seen:
            continue
        path, tag = answer
        seen.add(path)
        print(path, f"{tag}-{hashlib.sha256(path.encode()).hexdigest()[:4]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
