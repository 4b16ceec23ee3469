"""A loop that runs Python, native code, and both beside a thread that does so too. Prints what the run says."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time

import trainperf

DATA = b"x" * 4_000_000


def in_python() -> int:
    x = 0
    for i in range(60_000):
        x += i & 7
    return x


def in_native() -> str:
    return hashlib.sha256(DATA).hexdigest()


def beside(stop: threading.Event) -> None:
    while not stop.is_set():
        in_python()
        time.sleep(0.0005)


stop = threading.Event()
thread = threading.Thread(target=beside, args=(stop,))
thread.start()
with trainperf.watch(sys.argv[1], verbose=False, sampler_hz=500) as watch:
    for _ in range(120):
        with watch.phase("forward"):
            in_python()
        with watch.phase("optimizer"):
            in_native()
        watch.step()
stop.set()
thread.join()

run = watch.run
states: dict[str, dict[str, int]] = {"in_python": {}, "in_native": {}}
for detail in run.detail_totals("sample"):
    names = {frame.function for frame in run.stack(detail.stack)}
    for name in states.keys() & names:
        if detail.state in ("python", "native"):
            states[name][detail.state] = states[name].get(detail.state, 0) + detail.count
print(
    json.dumps(
        {
            "gil": sys._is_gil_enabled(),
            "tiers": {t.probe: f"{t.tier}: {t.why}" if t.why else t.tier for t in run.tiers.values()},
            "gil_ns": sum(d.ns for d in run.detail_totals("gil_wait")),
            "findings": [finding.id for finding in run.findings],
            "states": states,
        }
    )
)
