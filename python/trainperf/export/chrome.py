"""A run as a timeline in Chrome's trace format, for ui.perfetto.dev and chrome://tracing.

Top to bottom: the steps; what each device ran, and why it idled; the phases of the kept steps, GIL waits (with who held
it) and collections, long spans. Only kept steps have a timeline of their own (docs/run-file.md). All of it is one
process, as Perfetto folds several up, and a track's number is its place, as Perfetto sorts by it.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from trainperf.export.files import replaced, run_name
from trainperf.report.json import FLAGS
from trainperf.report.sharing import homeless
from trainperf.runfile.schema import CAUSES

if TYPE_CHECKING:
    from trainperf.run import Run
    from trainperf.runfile.records import Segment

Event = dict[str, Any]

_PID: Final = 1000  # a track of the same number would be the main thread's
_SPAN_NAMES: Final = {"loader_start": "loader starts", "first_fetch": "first fetches", "gc": "long collections"}


def write(run: Run, path: str) -> None:
    """Makes or replaces `path`; compressed when its name ends in .gz. A failure leaves what was there."""
    with replaced(path) as made, open(made, "wb") as raw:
        if path.endswith(".gz"):
            with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0) as packed:
                _write_json(run, packed)
        else:
            _write_json(run, raw)


def _write_json(run: Run, out: Any) -> None:
    text = io.TextIOWrapper(out, encoding="utf-8", write_through=False)
    head = {
        "displayTimeUnit": "ms",
        "otherData": {k: run.meta.get(k, "") for k in ("trainperf", "started", "python", "torch", "name")},
    }
    text.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
    separator, metas = "", [run.meta]
    for event in events(run):
        text.write(separator + homeless(json.dumps(event, allow_nan=False, separators=(",", ":")), metas))
        separator = ",\n"
    text.write("\n]}\n")
    text.detach()


def events(run: Run) -> Iterator[Event]:
    """All of them. Microseconds with three digits hold a nanosecond while they stay small, so time starts at 0."""
    starts = [int(run.steps.start_ns[0])] if len(run.steps.start_ns) else []
    starts += [span.start_ns for kind in _kinds(run) for span in run.spans(kind)]
    starts += [reading.at_ns for reading in run.host]
    tracks = _tracks(run)
    canvas = _Canvas(min(starts, default=0), tracks)
    yield from _names(run, tracks)
    yield from _steps(run, canvas)
    yield from _kept_steps(run, canvas)
    yield from _spans(run, canvas)
    yield from _host(run, canvas)
    if run.devices:
        yield from _device_segments(run, canvas)


class _Canvas:
    """Where events are drawn: on which track, and from when on."""

    def __init__(self, zero_ns: int, tracks: Iterable[str]) -> None:
        self._zero_ns = zero_ns
        self._tids = {track: tid for tid, track in enumerate(tracks, 1)}

    def us(self, at_ns: int) -> float:
        return (int(at_ns) - self._zero_ns) / 1000

    def slice(self, track: str, name: str, start_ns: int, end_ns: int, **args: Any) -> Event:
        event: Event = {
            "ph": "X", "pid": _PID, "tid": self._tids[track], "name": name or "?", "ts": self.us(start_ns),
            "dur": (int(end_ns) - int(start_ns)) / 1000,
        }  # fmt: skip
        return event | {"args": args} if args else event


def _kinds(run: Run) -> list[str]:
    from trainperf.runfile.schema import SPAN_KINDS

    return [kind for kind in SPAN_KINDS if run.spans(kind)]


def _tracks(run: Run) -> dict[str, str]:
    """What is written above each of them, top to bottom."""
    thread = run.step_thread
    who = f" of {thread.name}" if thread is not None and thread.name else ""
    tracks = {"steps": "steps"}
    for device in run.devices:
        tracks[f"runs{device.id}"] = f"GPU {device.id} runs"
        tracks[f"idle{device.id}"] = f"GPU {device.id} idle, why"
    tracks |= {"phases": f"phases{who}, kept steps", "waits": f"GIL waits and collections{who}"}
    return tracks | {kind: _SPAN_NAMES.get(kind, kind) for kind in _kinds(run)}


def _names(run: Run, tracks: dict[str, str]) -> Iterator[Event]:
    devices = [f"GPU {device.id}: {device.name}" for device in run.devices if device.name]
    yield _name("process", 0, ", ".join([f"trainperf {run_name(run)}", *devices]))
    for tid, name in enumerate(tracks.values(), 1):
        yield _name("thread", tid, name)
        yield {"ph": "M", "pid": _PID, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}


def _name(what: str, tid: int, name: str) -> Event:
    return {"ph": "M", "pid": _PID, "tid": tid, "name": f"{what}_name", "args": {"name": name}}


def _steps(run: Run, canvas: _Canvas) -> Iterator[Event]:
    steps = run.steps
    for i in range(len(steps.index)):
        first, count = int(steps.index[i]), int(steps.count[i])
        name = f"step {first}" if count == 1 else f"steps {first}-{first + count - 1}"
        causes = {c: int(ns) / 1e6 for c, ns in zip(CAUSES, steps.causes_ns[i], strict=True) if ns}
        args: dict[str, Any] = {f"{c}_ms": ms for c, ms in sorted(causes.items(), key=lambda pair: -pair[1])}
        flags = [name for bit, name in enumerate(FLAGS) if int(steps.flags[i]) >> bit & 1]
        if flags:
            args["flags"] = ", ".join(flags)
        # Rows of neighbours hold their summed wall time, and steps follow on one another.
        start = int(steps.start_ns[i])
        yield canvas.slice("steps", name, start, start + int(steps.wall_ns[i]), **args)


def _kept_steps(run: Run, canvas: _Canvas) -> Iterator[Event]:
    for step in sorted(int(i) for i in run.kept_steps.index):
        phase, start, end = "", 0, 0
        for segment in run.segments(step):
            if segment.mechanism in ("gil_wait", "stop_the_world", "object_lock", "gc"):
                args: dict[str, Any] = {"step": step}
                if segment.mechanism == "gil_wait":
                    args["holder"] = _thread_name(segment)
                    if frames := run.stack(segment.stack):
                        args["holder_at"] = [f"{f.function} ({f.file}:{f.line})" for f in frames]
                name = f"GIL held by {args['holder']}" if "holder" in args else segment.mechanism
                yield canvas.slice("waits", name, segment.start_ns, segment.end_ns, **args)
            if segment.phase == phase and segment.start_ns == end:
                end = segment.end_ns
                continue
            if end > start:
                yield canvas.slice("phases", phase, start, end, step=step)
            phase, start, end = segment.phase, segment.start_ns, segment.end_ns
        if end > start:
            yield canvas.slice("phases", phase, start, end, step=step)


def _thread_name(segment: Segment) -> str:
    return segment.thread.name or str(segment.thread.native_tid) if segment.thread else "?"


def _spans(run: Run, canvas: _Canvas) -> Iterator[Event]:
    for kind in _kinds(run):
        for span in run.spans(kind):
            args: dict[str, Any] = {"step": span.step}
            if span.object in run.objects:
                args["object"] = run.objects[span.object][0]
            if kind == "checkpoint" and span.value >= 0:
                args["bytes"] = span.value
            if span.thread is not None and span.thread.name:
                args["thread"] = span.thread.name
            yield canvas.slice(kind, kind, span.start_ns, span.end_ns, **args)


def _host(run: Run, canvas: _Canvas) -> Iterator[Event]:
    """Counters: what the process and the machine were doing."""
    before = None
    for i, reading in enumerate(run.host):
        values: dict[str, Mapping[str, float]] = {"RSS (MB)": {"value": reading.rss_bytes / 1e6}}
        if before is not None and reading.at_ns > before.at_ns:
            wall = reading.at_ns - before.at_ns
            values["CPUs used by the process"] = {"value": (reading.process_cpu_ns - before.process_cpu_ns) / wall}
            for counter, so_far in run.machine.items():
                if "_levels:" in counter:  # of sixteen CPUs
                    continue
                if counter.startswith("gpu_"):  # as it is, and no counter
                    values[counter.replace("_", " ")] = {"value": int(so_far[i])}
                    continue
                unit, one = ("MB/s", 1e6) if "_bytes" in counter else ("%", 1e7) if "_ns" in counter else ("/s", 1.0)
                name = f"{counter.replace('_bytes', '').replace('_ns', '').replace('_', ' ')} ({unit})"
                values[name] = {"value": max(0, int(so_far[i] - so_far[i - 1])) * 1e9 / wall / one}
        for name, value in values.items():
            yield {"ph": "C", "pid": _PID, "name": name, "ts": canvas.us(reading.at_ns), "args": value}
        before = reading


def _device_segments(run: Run, canvas: _Canvas) -> Iterator[Event]:
    for step in sorted(int(i) for i in run.kept_steps.index):
        segments = run.device_segments(step)
        waits = [s for s in run.segments(step) if s.mechanism == "gil_wait"] if segments else []
        for segment in segments:
            idle = segment.what == "idle"
            track = f"{'idle' if idle else 'runs'}{segment.device}"
            args: dict[str, Any] = {"step": step, "what": segment.what}
            name = segment.name or segment.what
            if idle:
                name = segment.cause or "unknown"
                if name == "gil_wait" and (holder := _holder(waits, segment.start_ns, segment.end_ns)):
                    args["holder"] = holder
                    name += f": {holder}"
            yield canvas.slice(track, name, segment.start_ns, segment.end_ns, **args)


def _holder(waits: list[Segment], start_ns: int, end_ns: int) -> str:
    """Who held the GIL for most of this time, as far as the step thread waited for it."""
    held: dict[str, int] = {}
    for wait in waits:
        if wait.start_ns < end_ns and start_ns < wait.end_ns:
            who = _thread_name(wait)
            held[who] = held.get(who, 0) + min(wait.end_ns, end_ns) - max(wait.start_ns, start_ns)
    return max(held, key=lambda who: held[who], default="")
