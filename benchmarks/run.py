"""Runs every benchmark and prints one table: figure, spread, target, met or not. `make bench` is this.

    python benchmarks/run.py [--quick] [--only NAME ...] [--markdown FILE] [--no-peers]

The neighbours (gilknocker, traceml-ai, HolisticTraceAnalysis) are installed from PyPI into .venv-bench, which borrows
everything else from the running environment; where that fails the table says so.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.harness import Figure  # noqa: E402  # the line above makes it importable from anywhere

BENCHMARKS = (
    *("imports", "marks", "gil_accuracy", "gil_fight", "step_overhead", "traceml", "lightning_overhead"),
    "huggingface_overhead",
    *("child_shares", "report_size", "trace_reader", "native"),
)
_LONG = ("huggingface_overhead",)  # --quick leaves it out: a framework's hooks are timed under Lightning
PEERS = ("gilknocker==0.4.2", "traceml-ai==0.5.0", "HolisticTraceAnalysis==0.5.0")


def with_peers() -> str:
    """The interpreter of .venv-bench, made if need be; "" when the neighbours cannot be installed."""
    venv = ROOT / ".venv-bench"
    python = venv / "bin" / "python"
    stamp = venv / "peers.txt"
    wanted = "\n".join(PEERS)
    if stamp.exists() and stamp.read_text() == wanted and python.exists():
        return str(python)
    print("installing the neighbours into .venv-bench ...", file=sys.stderr)
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True, capture_output=True)
        library = Path(sysconfig.get_path("purelib", vars={"base": str(venv), "platbase": str(venv)}))
        borrowed = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
        (library / "borrowed.pth").write_text("".join(f"import site; site.addsitedir({p!r})\n" for p in borrowed))
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PEERS], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        detail = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        print(f"the neighbours cannot be installed: {detail[-1] if detail else error}", file=sys.stderr)
        return ""
    stamp.write_text(wanted)
    return str(python)


def number(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    digits = 4 if unit == "x" else 3
    return f"{value:.{digits}f}" if abs(value) < 1000 else f"{value:,.0f}"


def table(figures: list[Figure]) -> str:
    rows = [("figure", "value", "95 % interval", "target", "", "note")]
    for f in figures:
        interval = f"{number(f.low, f.unit)} .. {number(f.high, f.unit)}" if f.low is not None else ""
        sign = "<=" if f.better == "lower" else ">="
        target = f"{sign} {f.target:g} {f.unit}" if f.target is not None else ""
        rows.append((f.name, f"{number(f.value, f.unit)} {f.unit}".strip(), interval, target, f.verdict, f.note))
    widths = [max(len(row[i]) for row in rows) for i in range(6)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def machine() -> str:
    import torch

    return (
        f"{time.strftime('%Y-%m-%d')}: {platform.system()} {platform.release()} {platform.machine()}, "
        f"{len(os.sched_getaffinity(0))} CPUs, CPython {platform.python_version()}, torch {torch.__version__}; "
        f"load before: {os.getloadavg()[0]:.1f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few repeats: a look, not a measurement")
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=BENCHMARKS, metavar="NAME")
    parser.add_argument("--markdown", type=Path, help="write the table there too")
    parser.add_argument("--no-peers", action="store_true", help="leave out the neighbours")
    arguments = parser.parse_args()
    if not arguments.no_peers and ".venv-bench" not in sys.prefix:
        python = with_peers()
        if python:
            return subprocess.run([python, str(Path(__file__)), *sys.argv[1:]], check=False).returncode
    header = machine()
    print(header, flush=True)
    figures: list[Figure] = []
    for name in arguments.only:
        if (arguments.no_peers and name == "traceml") or (arguments.quick and name in _LONG):
            continue
        start = time.monotonic()
        figures += importlib.import_module(f"benchmarks.{name}").figures(quick=arguments.quick)
        print(f"  {name}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    text = table(figures)
    print(text)
    if arguments.markdown:
        arguments.markdown.write_text(f"{header}\n\n{text}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
