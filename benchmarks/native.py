"""The benchmarks of the C++ core: built as a release is, run, and their figures taken from Google Benchmark's JSON."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.harness import Figure, median_interval

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"


def build(target: str) -> Path:
    """The program, built as a release is. CalledProcessError when that fails, OSError when a tool is missing."""

    for command in (["--preset", "release"], ["--build", "--preset", "release", "--target", target]):
        subprocess.run(["cmake", *command], check=True, cwd=ROOT, capture_output=True, text=True)
    return next(path for path in BUILD.rglob(target) if path.is_file())


def measure(target: str, *options: str) -> list[dict[str, Any]]:
    program = build(target)
    done = subprocess.run(
        [str(program), "--benchmark_format=json", *options], check=True, cwd=BUILD, capture_output=True, text=True
    )
    benchmarks: list[dict[str, Any]] = json.loads(done.stdout)["benchmarks"]
    failed = [b["error_message"] for b in benchmarks if b.get("error_occurred")]
    if failed:
        raise ValueError("; ".join(failed))
    return benchmarks


def long_run() -> list[Figure]:
    (found,) = measure("trainperf_run_benchmark", "--benchmark_filter=TenMillionSteps")
    return [
        Figure(
            "10 million steps: memory", found["memory_mb"], "MB", target=64.0, note="of the run writer, beyond none"
        ),
        Figure("10 million steps: run file", found["file_mb"], "MB", target=100.0),
    ]


def timeline(repeats: int) -> list[Figure]:
    figures = []
    runs = measure("trainperf_timeline_benchmark", f"--benchmark_repetitions={repeats}")
    names = dict.fromkeys(b["run_name"] for b in runs if "items_per_second" in b)
    for name in names:
        rates = [b["items_per_second"] / 1e6 for b in runs if b["run_name"] == name and b["run_type"] == "iteration"]
        value, low, high = median_interval(rates)
        figures.append(
            Figure(
                f"events through the timeline ({name})", value, "M/s", low, high, 5.0, "higher", f"{repeats} repeats"
            )
        )
    return figures or [Figure("events through the timeline", None, note="its benchmark counts no items")]


def cupti(repeats: int) -> list[Figure]:
    """Our own thread's part of tracing a GPU, and what a request for a buffer costs the application's."""
    runs = measure("trainperf_cuda_benchmark", f"--benchmark_repetitions={repeats}")

    def values(name: str, counter: str) -> list[float]:
        return [
            b[counter] for b in runs if b["run_type"] == "iteration" and counter in b and b["run_name"].startswith(name)
        ]

    records = median_interval([rate / 1e6 for rate in values("BM_Decode", "records")])
    share = median_interval([100 * share for share in values("BM_DecodeAndFold", "core_share")])
    request = median_interval([ns / 1000 for ns in values("BM_BufferRequest", "cpu_time")])
    logged = median_interval([ns / 1000 for ns in values("BM_LogCall", "cpu_time")])
    more: dict[str, Any] = {"note": f"{repeats} repeats, buffers of the scripted libcupti"}
    return [
        Figure("CUPTI records decoded", *records[:1], "M/s", *records[1:], 10.0, "higher", **more),
        Figure("CUPTI at 50,000 launches/s, of a core", *share[:1], "%", *share[1:], 2.0, **more),
        Figure("CUPTI asks for a buffer", *request[:1], "us", *request[1:], 0.2, **more),
        Figure("CUPTI calls back for a launch", *logged[:1], "us", *logged[1:], 0.2, **more),
    ]


def figures(*, quick: bool = False) -> list[Figure]:
    result: list[Figure] = []
    repeats = 3 if quick else 9
    parts = (
        ("10 million steps", long_run),
        ("events/s", lambda: timeline(repeats)),
        ("CUPTI decoder", lambda: cupti(repeats)),
    )
    for name, part in parts:
        try:
            result += part()
        except (OSError, ValueError, StopIteration, subprocess.CalledProcessError) as error:
            output = (getattr(error, "stdout", "") or "") + (getattr(error, "stderr", "") or "")
            why = output.strip().splitlines()
            result.append(Figure(name, None, note=f"its benchmark cannot be run: {(why or [str(error)])[-1][:150]}"))
    return result
