"""Checks the trainperf that is installed beside this interpreter: it imports and runs, and what its libraries need.

Fails when a library other than the C and C++ runtimes comes from outside of the wheel, when data is missing, or when
the command does not start.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.resources
import os
import re
import subprocess
import sys
from pathlib import Path

RUNTIMES = re.compile(r"(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|ld-linux-[\w-]+|linux-vdso)\.so(\.\d+)*")


def main() -> int:
    trainperf = importlib.import_module("trainperf")
    native = importlib.import_module("trainperf._native")
    site = Path(str(trainperf.__file__)).parent.parent
    if "torch" in sys.modules:
        raise SystemExit("check_wheel: importing trainperf imported torch")

    libraries = sorted({Path(str(native.__file__)), *site.glob("trainperf*/**/*.so*")})
    for library in libraries:
        listing = subprocess.run(["ldd", str(library)], capture_output=True, text=True, check=True).stdout
        for line in listing.splitlines():
            name, _, place = (part.strip() for part in line.partition("=>"))
            if name == "statically linked":  # what ldd says of a library that needs none
                continue
            if RUNTIMES.fullmatch(Path(name.split()[0]).name):
                continue
            if not place.startswith(f"{site}{os.sep}trainperf"):
                raise SystemExit(f"check_wheel: {library.name} takes {name} from {place or 'nowhere'}")

    pages = [page.name for page in importlib.resources.files("trainperf").joinpath("docs/findings").iterdir()]
    if not any(page.startswith("TP") for page in pages):
        raise SystemExit("check_wheel: the wheel carries no page of a finding")
    # It draws a report: every template and the style sheet are there, and jinja2 is among what the wheel asks for.
    environment = importlib.import_module("trainperf.report.html").environment()
    for template in environment.list_templates():
        environment.get_template(template)
    if "report.html" not in environment.list_templates() or "style.css" not in environment.list_templates():
        raise SystemExit("check_wheel: the wheel carries no template of the report")

    version = importlib.metadata.version("trainperf")
    script = Path(sys.executable).parent / "trainperf"
    said = subprocess.run([str(script), "--version"], capture_output=True, text=True, check=True).stdout
    if version not in said or version != native.VERSION:
        raise SystemExit(f"check_wheel: versions differ: {version}, {native.VERSION}, {said.strip()}")
    print(f"wheel ok: {sys.version.split()[0]}, {len(libraries)} libraries, {len(pages)} pages, {said.strip()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
