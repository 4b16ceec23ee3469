"""A run as a timeline in Chrome's trace format, for ui.perfetto.dev and chrome://tracing.

Tracks of the host: steps, the phases of the kept steps, GIL waits (with who held it) and collections, long spans; of
each device: what it ran, and each idle gap with its cause. Only kept steps have a timeline of their own
(docs/run-file.md).
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from trainperf.export.files import replaced
from trainperf.runfile.schema import CAUSES

if TYPE_CHECKING:
    from trainperf.run import Run

Event = dict[str, Any]

_HOST: Final = 1  # pid of the host's tracks
_DEVICE: Final = 1000  # and of device 0
_STEPS, _PHASES, _WAITS, _SPANS = 1, 2, 3, 10  # tid; each kind of span has its own
_SPAN_NAMES: Final = {"loader_start": "loader starts", "first_fetch": "first fetches", "gc": "long collections"}
_FLAGS: Final = (
    "data_starved", "gil_contended", "host_stalled", "incomplete",
    "warm_up", "has_validation", "has_checkpoint", "has_loader_start",
)  # fmt: skip


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
        "otherData": {k: run.meta.get(k, "") for k in ("trainperf", "started", "host", "python", "torch", "name")},
    }
    text.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
    separator = ""
    for event in events(run):
        text.write(separator + json.dumps(event, allow_nan=False, separators=(",", ":")))
        separator = ",\n"
    text.write("\n]}\n")
    text.detach()


def events(run: Run) -> Iterator[Event]:
    """All of them. Microseconds with three digits hold a nanosecond while they stay small, so time starts at 0."""
    starts = [int(run.steps.start_ns[0])] if len(run.steps.start_ns) else []
    starts += [span.start_ns for kind in _kinds(run) for span in run.spans(kind)]
    starts += [reading.at_ns for reading in run.host]
    clock = _Clock(min(starts, default=0))
    yield from _names(run)
    yield from _steps(run, clock)
    yield from _kept_steps(run, clock)
    yield from _spans(run, clock)
    yield from _host(run, clock)
    for device in run.devices:
        yield from _device_names(device.id, device.name)
    if run.devices:
        yield from _device_segments(run, clock)


class _Clock:
    def __init__(self, zero_ns: int) -> None:
        self._zero_ns = zero_ns

    def us(self, at_ns: int) -> float:
        return (int(at_ns) - self._zero_ns) / 1000


def _slice(clock: _Clock, track: tuple[int, int], name: str, start_ns: int, end_ns: int, **args: Any) -> Event:
    event: Event = {
        "ph": "X", "pid": track[0], "tid": track[1], "name": name or "?", "ts": clock.us(start_ns),
        "dur": (int(end_ns) - int(start_ns)) / 1000,
    }  # fmt: skip
    if args:
        event["args"] = args
    return event


def _track(pid: int, tid: int, name: str, order: int) -> Iterator[Event]:
    yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}}
    yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": order}}


def _process(pid: int, name: str, order: int) -> Iterator[Event]:
    yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
    yield {"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": order}}


def _kinds(run: Run) -> list[str]:
    from trainperf.runfile.schema import SPAN_KINDS

    return [kind for kind in SPAN_KINDS if run.spans(kind)]


def _names(run: Run) -> Iterator[Event]:
    thread = run.step_thread
    who = f" ({thread.name})" if thread is not None and thread.name else ""
    yield from _process(_HOST, f"host: step thread{who}", 0)
    yield from _track(_HOST, _STEPS, "steps", 0)
    yield from _track(_HOST, _PHASES, "phases (kept steps)", 1)
    yield from _track(_HOST, _WAITS, "GIL waits and collections", 2)
    for i, kind in enumerate(_kinds(run)):
        yield from _track(_HOST, _SPANS + i, _SPAN_NAMES.get(kind, kind), 10 + i)


def _steps(run: Run, clock: _Clock) -> Iterator[Event]:
    steps = run.steps
    for i in range(len(steps.index)):
        first, count = int(steps.index[i]), int(steps.count[i])
        name = f"step {first}" if count == 1 else f"steps {first}-{first + count - 1}"
        causes = {c: int(ns) / 1e6 for c, ns in zip(CAUSES, steps.causes_ns[i], strict=True) if ns}
        args: dict[str, Any] = {f"{c}_ms": ms for c, ms in sorted(causes.items(), key=lambda pair: -pair[1])}
        flags = [name for bit, name in enumerate(_FLAGS) if int(steps.flags[i]) >> bit & 1]
        if flags:
            args["flags"] = ", ".join(flags)
        # Rows of neighbours hold their summed wall time, and steps follow on one another.
        start = int(steps.start_ns[i])
        yield _slice(clock, (_HOST, _STEPS), name, start, start + int(steps.wall_ns[i]), **args)


def _kept_steps(run: Run, clock: _Clock) -> Iterator[Event]:
    for step in sorted(int(i) for i in run.kept_steps.index):
        phase, start, end = "", 0, 0
        for segment in run.segments(step):
            if segment.mechanism in ("gil_wait", "gc"):
                args: dict[str, Any] = {"step": step}
                if segment.mechanism == "gil_wait":
                    holder = segment.thread.name or str(segment.thread.native_tid) if segment.thread else "?"
                    args["holder"] = holder
                    if frames := run.stack(segment.stack):
                        args["holder_at"] = [f"{f.function} ({f.file}:{f.line})" for f in frames]
                name = f"GIL held by {args['holder']}" if "holder" in args else "gc"
                yield _slice(clock, (_HOST, _WAITS), name, segment.start_ns, segment.end_ns, **args)
            if segment.phase == phase and segment.start_ns == end:
                end = segment.end_ns
                continue
            if end > start:
                yield _slice(clock, (_HOST, _PHASES), phase, start, end, step=step)
            phase, start, end = segment.phase, segment.start_ns, segment.end_ns
        if end > start:
            yield _slice(clock, (_HOST, _PHASES), phase, start, end, step=step)


def _spans(run: Run, clock: _Clock) -> Iterator[Event]:
    for i, kind in enumerate(_kinds(run)):
        for span in run.spans(kind):
            args: dict[str, Any] = {"step": span.step}
            if span.object in run.objects:
                args["object"] = run.objects[span.object][0]
            if kind == "checkpoint" and span.value >= 0:
                args["bytes"] = span.value
            if span.thread is not None and span.thread.name:
                args["thread"] = span.thread.name
            yield _slice(clock, (_HOST, _SPANS + i), kind, span.start_ns, span.end_ns, **args)


def _host(run: Run, clock: _Clock) -> Iterator[Event]:
    """Counters: what the process and the machine were doing."""
    before = None
    for reading in run.host:
        values: dict[str, Mapping[str, float]] = {"RSS (MB)": {"value": reading.rss_bytes / 1e6}}
        if before is not None and reading.at_ns > before.at_ns:
            wall = reading.at_ns - before.at_ns
            values["CPUs used by the process"] = {"value": (reading.process_cpu_ns - before.process_cpu_ns) / wall}
        for name, value in values.items():
            yield {"ph": "C", "pid": _HOST, "name": name, "ts": clock.us(reading.at_ns), "args": value}
        before = reading


def _device_names(device: int, name: str) -> Iterator[Event]:
    pid = _DEVICE + device
    yield from _process(pid, f"device {device}{': ' + name if name else ''}", 1 + device)
    yield from _track(pid, 1, "runs", 0)
    yield from _track(pid, 2, "idle, and the host's cause", 1)


def _device_segments(run: Run, clock: _Clock) -> Iterator[Event]:
    for step in sorted(int(i) for i in run.kept_steps.index):
        for segment in run.device_segments(step):
            idle = segment.what == "idle"
            name = f"idle: {segment.cause or 'unknown'}" if idle else segment.name or segment.what
            yield _slice(
                clock, (_DEVICE + segment.device, 2 if idle else 1), name, segment.start_ns, segment.end_ns,
                step=step, what=segment.what,
            )  # fmt: skip
