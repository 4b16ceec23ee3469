"""Checks the trainperf that this interpreter imports: its libraries, its data, its command, and a watch.

Fails when a library other than the C and C++ runtimes comes from outside of the wheel (but with --system-libraries,
for one that was built here), when data is missing, when the command does not start, or when a watch does not find who
holds the GIL, or stops all threads where there is none. Needs no torch.
"""

from __future__ import annotations

import gc
import importlib
import importlib.metadata
import importlib.resources
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

RUNTIMES = re.compile(r"(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|ld-linux-[\w-]+|linux-vdso)\.so(\.\d+)*")


def watch_waits(trainperf: Any) -> str:
    """Watches a loop that gives the GIL to a thread in each step, and has it back after the switch interval; without a
    GIL one that is stopped by the thread's collections."""
    has_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    objects = [[i] for i in range(0 if has_gil else 100_000)]  # each is looked at in a collection
    stop = threading.Event()

    def hog() -> None:
        while not stop.is_set():
            if objects:
                gc.collect()
            else:
                sum(range(1_000))

    probe, cause, finding = "gil_waits", "gil_wait", "TP201"
    if not has_gil:
        probe, cause, finding = "interpreter_waits", "stop_the_world", "TP203"
    steps = 40
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.tpr")
        holder = threading.Thread(target=hog, name="hog")
        with trainperf.watch(path, verbose=False) as watch:
            holder.start()
            for _ in range(steps):
                watch.step()
                with watch.phase("forward"):
                    time.sleep(0.001)
            stop.set()
            holder.join()
        with trainperf.open(path) as run:
            tiers = {name: run.tiers[name] for name in (probe, "gil_holds", "stacks")}
            off = [f"{name}: {tier.tier}, {tier.why}" for name, tier in tiers.items() if tier.tier == "off"]
            if off or run.tiers[probe].tier != "exact":
                raise SystemExit(f"check_wheel: probes do not work: {tiers}")
            ms = run.cause_ns(cause) / 1e6 / run.step_count
            where = [found.where for found in run.findings if found.id == finding]
    if ms < 1 or not where or Path(__file__).name not in str(where[0]):
        raise SystemExit(f"check_wheel: {ms:.2f} ms/step {cause}, the holder at {where}: not the hog of {__file__}")
    if not has_gil and sys._is_gil_enabled():
        raise SystemExit("check_wheel: the GIL has been switched on")
    return f"{cause} {ms:.1f} ms/step, by hog()"


def main() -> int:
    trainperf = importlib.import_module("trainperf")
    native = importlib.import_module("trainperf._native")
    site = Path(str(trainperf.__file__)).parent.parent
    if "torch" in sys.modules:
        raise SystemExit("check_wheel: importing trainperf imported torch")

    libraries = sorted({Path(str(native.__file__)), *site.glob("trainperf*/**/*.so*")})
    if "--system-libraries" in sys.argv[1:]:
        libraries = []
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
    scripts = (Path(sys.executable).parent, site / "bin")  # of an environment, or of pip's --target
    script = next((folder / "trainperf" for folder in scripts if (folder / "trainperf").exists()), None)
    if script is None:
        raise SystemExit(f"check_wheel: no command trainperf in {' or '.join(map(str, scripts))}")
    said = subprocess.run([sys.executable, str(script), "--version"], capture_output=True, text=True, check=True).stdout
    if version not in said or version != native.VERSION:
        raise SystemExit(f"check_wheel: versions differ: {version}, {native.VERSION}, {said.strip()}")
    watched = watch_waits(trainperf)
    system = f"{platform.machine()}, {' '.join(platform.libc_ver())}"
    print(f"wheel ok: CPython {sys.version.split()[0]}, {system}, {len(pages)} pages, {said.strip()}; {watched}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
