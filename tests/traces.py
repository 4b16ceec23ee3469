"""What a trace says, computed from its JSON in plain Python, apart from trainperf's own reader: the truth of tests."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

# Real traces are not part of the repository: they lie in shared/traces beside it, or further out, on some machines.
_FOLDERS = [parent / "shared" / "traces" for parent in Path(__file__).resolve().parents]
SHARED = next((folder for folder in _FOLDERS if folder.is_dir()), _FOLDERS[2])

Interval = tuple[int, int]
DEVICE_CATEGORIES = {
    "kernel": "kernel", "Kernel": "kernel", "gpu_memcpy": "copy", "Memcpy": "copy", "gpu_memset": "memset",
    "Memset": "memset",
}  # fmt: skip


def load(path: Path) -> list[dict[str, Any]]:
    """Its events; stamps as exact decimals."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    document = json.loads(raw, parse_float=Decimal)
    return list(document["traceEvents"] if isinstance(document, dict) else document)


def ns(value: Any) -> int:
    return round(Decimal(value) * 1000)


def span(event: dict[str, Any]) -> Interval:
    start = ns(event["ts"])
    return start, start + ns(event.get("dur", 0))


def union(intervals: list[Interval]) -> list[Interval]:
    merged: list[list[int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return [(a, b) for a, b in merged]


def within(intervals: list[Interval], start: int, end: int) -> int:
    return sum(max(0, min(b, end) - max(a, start)) for a, b in intervals)


def step_windows(events: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    """(number, start, end), wall to wall; [] without marks of steps."""
    marks = sorted(
        (*span(e), int(str(e["name"]).split("#")[1]))
        for e in events
        if e.get("ph") == "X" and str(e["name"]).startswith("ProfilerStep#") and e["cat"] != "gpu_user_annotation"
    )
    starts = [m[0] for m in marks]
    return [
        (number, start, starts[i + 1] if i + 1 < len(marks) else end) for i, (start, end, number) in enumerate(marks)
    ]


class DeviceTruth:
    """One device's work, by sort, with the operations themselves."""

    def __init__(self, operations: list[dict[str, Any]]) -> None:
        by_sort: defaultdict[str, list[Interval]] = defaultdict(list)
        for e in operations:
            sort = DEVICE_CATEGORIES[e["cat"]]
            if sort == "kernel" and "nccl" in e["name"].lower():
                by_sort["collective"].append(span(e))
            elif sort == "kernel":
                by_sort["compute"].append(span(e))
            by_sort[sort].append(span(e))
        self.operations = operations
        self.busy = union([i for sort in ("kernel", "copy", "memset") for i in by_sort[sort]])
        self.kernels = union(by_sort["kernel"])
        self.compute = union(by_sort["compute"])
        self.collectives = union(by_sort["collective"])

    def started(self, sort: str, start: int, end: int) -> int:
        return sum(DEVICE_CATEGORIES[e["cat"]] == sort and start <= ns(e["ts"]) < end for e in self.operations)

    def exposed_collectives(self, start: int, end: int) -> int:
        """Time with a collective and no other kernel."""
        both = union([*self.collectives, *self.compute])
        return within(both, start, end) - within(self.compute, start, end)


def devices(events: list[dict[str, Any]]) -> dict[int, DeviceTruth]:
    found: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for e in events:
        if e.get("ph") == "X" and e.get("cat") in DEVICE_CATEGORIES:
            found[int(e["args"]["device"])].append(e)
    return {device: DeviceTruth(operations) for device, operations in found.items()}
