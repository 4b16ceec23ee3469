"""Builds run files by hand for tests, in the schema that the core writes.

    file = RunFile(tmp_path / "a.tpr")
    hog = file.thread("hog")
    line = file.stack("train.py:41 crunch", "threading.py:1012 run")     # innermost first
    file.steps(100, compute=8.0, gil_wait=3.0)                            # ms by cause
    file.detail("gil_wait", 300.0, thread=hog, stack=line, phase="forward")
    with file.open() as run: ...

All times given are milliseconds, kept in whole nanoseconds; each step's causes and phases sum to its wall time.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runfiles_causes import DEFAULT_CELL, by_cause, step_row
from runfiles_devices import DeviceParts, device_step
from trainperf.opened import OpenedRun
from trainperf.runfile import WARM_UP
from trainperf.runfile.schema import MECHANISMS, PHASES, TABLES

if TYPE_CHECKING:
    from typing_extensions import Self

SCHEMA_SQL = Path(__file__).resolve().parents[1] / "cpp" / "trainperf" / "run" / "schema.sql"
MAX_SECTIONS = 64


def _ns(ms: float) -> int:
    return round(ms * 1e6)


@functools.cache
def _empty() -> bytes:
    """A run file without rows: to make its tables takes about as long as to fill them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.tpr"
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.executescript(f"BEGIN; {SCHEMA_SQL.read_text()}; COMMIT")
        return path.read_bytes()


class RunFile(DeviceParts):
    """A run file in the making. build() writes it; open() does too, and reads it."""

    def __init__(self, path: Path, *, ended: str = "normally", tiers: bool = True, **meta: str) -> None:
        self.path = path
        self._meta = {
            "trainperf": "0.1.0",
            "started": "2026-01-02T03:04:05Z",
            "host": "box",
            "python": "3.11.7",
            "torch": "2.13.0",
            "cpus": "2",
            "torch_threads": "2",
            "argv": '["/home/user/train.py"]',
            "lead_ns": "0",
            "incomplete_steps": "0",
        } | meta
        if ended != "killed":
            self._meta["ended"] = ended
        self._rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self._steps: list[tuple[dict[tuple[str, str], int], dict[str, int]]] = []
        self._details: list[dict[str, Any]] = []
        self._totals: dict[str, dict[str, int]] = {}
        self._sites: dict[tuple[str, str, int], int] = {}
        self._stacks: dict[tuple[int, int], int] = {}
        self._device_steps: defaultdict[int, dict[int, dict[str, int]]] = defaultdict(dict)
        self._now = 1_000_000_000_000
        self._kept: list[tuple[int, str]] = []
        self._merge = 1
        self._section_steps = 0
        self.step_thread = self.thread("MainThread", role="step")
        self._meta["step_thread"] = str(self.step_thread)
        if tiers:
            for probe, tier in (
                ("gil_waits", "exact"),
                ("gil_holds", "sampled"),
                ("stacks", "sampled"),
                ("throttling", "cgroup"),
                ("run_delay", "schedstat"),
            ):
                self.tier(probe, tier)

    # Who is who.

    def meta(self, **values: str) -> RunFile:
        self._meta |= values
        return self

    def thread(self, name: str, *, role: str = "", gil_wait: float = 0, gil_waits: int = 0, native_tid: int = 0) -> int:
        id = len(self._rows["thread"]) + 1
        self._add(
            "thread",
            id=id,
            native_tid=native_tid or 1000 + id,
            name=name,
            role=role,
            gil_wait_ns=_ns(gil_wait),
            gil_waits=gil_waits,
        )
        return id

    def stack(self, *frames: str) -> int:
        """Frames as "file:line function", innermost first."""
        node = 0
        for frame in reversed(frames):
            place, _, function = frame.partition(" ")
            file, _, line = place.rpartition(":")
            key = (file, function, int(line))
            if key not in self._sites:
                self._sites[key] = len(self._sites) + 1
                self._add("site", id=self._sites[key], file=file, function=function, line=int(line))
            edge = (node, self._sites[key])
            if edge not in self._stacks:
                self._stacks[edge] = len(self._stacks) + 1
                self._add("stack", id=self._stacks[edge], parent=node, site=self._sites[key])
            node = self._stacks[edge]
        return node

    def asleep(self, phase: str, ms: float, *frames: str) -> RunFile:
        """Samples of the step thread that say where it slept, `ms` in all."""
        where = self.stack(*frames)
        return self.detail("sample", ms, phase=phase, state="blocked", thread=self.step_thread, stack=where)

    def object(self, id: int, kind: str, /, **description: Any) -> RunFile:
        return self._add("object", id=id, kind=kind, description=json.dumps(description))

    # Steps.

    def step(
        self,
        cells: Mapping[tuple[str, str], float] | None = None,
        *,
        flags: int = 0,
        fetches: int = 1,
        backwards: int = 1,
        optimizer_steps: int = 1,
        compile: float = 0,
        devices: Mapping[int, Mapping[str, Any]] | None = None,
        **causes: float,
    ) -> int:
        """One step, `cells` by (phase, mechanism), `causes` by cause; gives its index. None is a warm-up by itself.

        `devices`: by id, columns of table device_step without their _ns, in ms (busy=8.0, exposed_copy=1.0) or counts
        (kernels=40), and idle={"data_wait": 3.0}; the rest of the step is idle for an unknown cause.
        """
        matrix: defaultdict[tuple[str, str], int] = defaultdict(int)
        for cell, ms in (dict(cells or {}) | {DEFAULT_CELL[cause]: ms for cause, ms in causes.items()}).items():
            assert cell[0] in PHASES and cell[1] in MECHANISMS, cell
            matrix[cell] += _ns(ms)
        facts = {"flags": flags, "fetches": fetches, "backwards": backwards, "optimizer_steps": optimizer_steps}
        wall = sum(matrix.values())
        facts |= {
            "compile_ns": _ns(compile),
            "start_ns": self._now,
            "wall_ns": wall,
            "wall_min_ns": wall,
            "wall_max_ns": wall,
        }
        for id, of_device in (devices or {}).items():
            if not any(row["id"] == id for row in self._rows["device"]):
                self.device(id)
            self._device_steps[len(self._steps)][id] = device_step(wall, of_device)
        self._steps.append((dict(matrix), facts))
        self._now += wall
        return len(self._steps) - 1

    def steps(self, count: int, cells: Mapping[tuple[str, str], float] | None = None, **options: Any) -> RunFile:
        for _ in range(count):
            self.step(cells, **options)
        return self

    def merge_steps(self, width: int) -> RunFile:
        """As in a long run: each step row stands for `width` steps."""
        self._merge = width
        return self

    def sections(self, steps: int) -> RunFile:
        """Length of a section; by default the smallest power of two that makes at most 64 of them."""
        self._section_steps = steps
        return self

    def keep(
        self, step: int, why: str = "worst", *segments: tuple[str, str, float], thread: int = 0, stack: int = 0
    ) -> RunFile:
        """The step keeps its row and its segments, as (phase, mechanism, ms). `thread` held the GIL in waits, there."""
        facts = self._steps[step][1]
        self._kept.append((step, why))
        at = facts["start_ns"]
        for seq, (phase, mechanism, ms) in enumerate(segments):
            self._add(
                "segment",
                step=step,
                seq=seq,
                start_ns=at,
                end_ns=at + _ns(ms),
                phase=phase,
                mechanism=mechanism,
                thread=thread if mechanism == "gil_wait" else 0,
                stack=stack if mechanism == "gil_wait" else 0,
            )
            at += _ns(ms)
        return self

    # What hangs below.

    def detail(
        self,
        kind: str,
        ms: float,
        *,
        phase: str = "forward",
        state: str = "",
        thread: int = 0,
        stack: int = 0,
        code: int = 0,
        count: int | None = None,
        steps: int | None = None,
        section: int | None = None,
        folded: int = 0,
    ) -> RunFile:
        """`ms` in all, spread evenly over the sections, or all in `section`. count: one per 4 ms by default."""
        self._details.append(
            {
                "kind": kind,
                "ns": _ns(ms),
                "phase": phase,
                "state": state or ("python" if kind == "sample" else ""),
                "thread": thread,
                "stack": stack,
                "code": code,
                "count": max(1, round(ms / 4)) if count is None else count,
                "steps": steps,
                "section": section,
                "folded": folded,
            }
        )
        return self

    def span(
        self,
        kind: str,
        ms: float,
        *,
        step: int = -1,
        cpu: float = 0,
        object: int = 0,
        value: int = 0,
        thread: int | None = None,
    ) -> RunFile:
        start = self._steps[step][1]["start_ns"] if 0 <= step < len(self._steps) else self._now
        total = self._totals.setdefault(kind, {"count": 0, "ns": 0, "steps": 0, "value": 0})
        new = step >= 0 and all(row["step"] != step for row in self._rows["span"] if row["kind"] == kind)
        for field, more in (("count", 1), ("ns", _ns(ms)), ("steps", int(new)), ("value", value)):
            total[field] += more
        return self._add(
            "span",
            id=len(self._rows["span"]) + 1,
            kind=kind,
            step=step,
            start_ns=start,
            end_ns=start + _ns(ms),
            cpu_ns=_ns(cpu),
            object=object,
            value=value,
            thread=self.step_thread if thread is None else thread,
        )

    def loader(
        self,
        id: int,
        *,
        fetches: int = 0,
        wait: float = 0,
        cpu: float = 0,
        gil_wait: float = 0,
        longest: float = 0,
        ready: Mapping[int, tuple[int, float]] | None = None,
        first: tuple[int, float] = (0, 0),
        off_thread: tuple[int, float] = (0, 0),
        validation: tuple[int, float] = (0, 0),
        exhausted: int = 0,
        **description: Any,
    ) -> int:
        """A DataLoader and its fetches; `wait` in all. `ready`: batches ready -> (fetches, ms in all)."""
        self.object(id, "loader", **({"dataset": "Digits", "num_workers": 0, "batch_size": 8} | description))
        self._add(
            "fetch",
            loader=id,
            count=fetches,
            wall_ns=_ns(wait),
            cpu_ns=_ns(cpu),
            gil_wait_ns=_ns(gil_wait),
            max_ns=_ns(longest or wait / max(1, fetches)),
            first_count=first[0],
            first_wall_ns=_ns(first[1]),
            off_thread_count=off_thread[0],
            off_thread_wall_ns=_ns(off_thread[1]),
            validation_count=validation[0],
            validation_wall_ns=_ns(validation[1]),
            exhausted_count=exhausted,
            exhausted_wall_ns=0,
        )
        for batches, (count, ms) in (ready or {-1: (fetches, wait)}).items():
            self._add("fetch_ready", loader=id, ready=batches, count=count, wall_ns=_ns(ms))
        return id

    def awaited(self, loader: int, worker: int, reading: int, count: int, wait: float) -> RunFile:
        """Fetches that waited `wait` ms in all: for this worker alone (-1: for several), as so many still read."""
        row = {"reading": reading, "count": count, "wait_ns": _ns(wait)}
        return self._add("fetch_awaited", loader=loader, worker=worker, **row)

    def worker(
        self,
        loader: int,
        pid: int,
        *,
        cpu_share: float,
        seconds: float,
        states: Mapping[str, int],
        waits: Mapping[tuple[int, bool], int] | None = None,
    ) -> RunFile:
        """`waits`: looks at it at work, by the call it waits in and whether that is for a lock of several processes."""
        id = len(self._rows["worker"]) + 1
        length = round(seconds * 1e9)
        self._add(
            "worker",
            id=id,
            loader=loader,
            pid=pid,
            first_ns=1,
            last_ns=1 + length,
            first_cpu_ns=0,
            last_cpu_ns=round(cpu_share * length),
            readings=sum(states.values()),
            at_work_ns=1,
            at_work_cpu_ns=0,
        )
        for state, readings in states.items():
            self._add("worker_state", worker=id, state=state, readings=readings)
        for (call, shared), looks in (waits or {}).items():
            self._add("worker_wait", worker=id, call=call, shared=int(shared), looks=looks)
        return self

    def inside(self, loader: int, samples: int, *frames: str, state: str = "native", call: int = 0) -> RunFile:
        """Samples of its workers; frames as `stack` takes them."""
        self._add("worker_stack", loader=loader, stack=self.stack(*frames), state=state, call=call, samples=samples)
        return self

    def child(
        self, pid: int, *, cpus: float, seconds: float, name: str = "", command: str = "python", first: float = 0
    ) -> int:
        """A process that it started, beside workers, from second `first` on. Its id, for `within`."""
        id, begin = len(self._rows["child"]) + 1, 1_000_000_000_000 + round(first * 1e9)
        length = round(seconds * 1e9)
        used = {"first_ns": begin, "last_ns": begin + length, "cpu_ns": round(cpus * length)}
        self._add("child", id=id, pid=pid, name=name, command=command, **used)
        return id

    def within(self, child: int, samples: int, *frames: str, state: str = "native", call: int = 0) -> RunFile:
        """Samples of such a process; frames as `stack` takes them."""
        self._add("child_stack", child=child, stack=self.stack(*frames), state=state, call=call, samples=samples)
        return self

    def tier(self, probe: str, tier: str, why: str = "") -> RunFile:
        self._rows["tier"] = [row for row in self._rows["tier"] if row["probe"] != probe]
        return self._add("tier", probe=probe, tier=tier, why=why)

    def overhead(self, **ms: float) -> RunFile:
        for place, value in ms.items():
            self._add("overhead", place=place, ns=_ns(value))
        return self

    def dropped(self, **counts: int) -> RunFile:
        for what, count in counts.items():
            self._add("dropped", what=what, count=count)
        return self

    def note(self, text: str, count: int = 1) -> RunFile:
        return self._add("note", id=len(self._rows["note"]) + 1, text=text, count=count)

    def host(
        self,
        seconds: int,
        *,
        first: float = 0,
        every: float = 1,
        process_cpus: float | Callable[[float], float],
        other_cpus: float | Callable[[float], float] = 0,
        idle_cpus: float = 0,
        throttled: float = -1,
        rss_bytes: int | Callable[[int], int] = 10**9,
        threads: int = 8,
        runnable: int = 2,
        faults: Callable[[int], int] | None = None,
        system: float = -1,
        returned_bytes: int = -1,
        machine: Mapping[str, float | Sequence[int]] | None = None,
    ) -> RunFile:
        """`seconds` + 1 readings, `every` s apart from second `first` on, in which so many CPUs were busy.

        `process_cpus`, `other_cpus`: as functions, the CPU seconds so far. `throttled`, `system`: ms per second;
        -1: not known. `faults`: so far, by reading; None: not known. `machine`: what its counters grow by a second,
        or what they say at each reading.
        """
        for i, name in enumerate(machine or {}):
            self._add("counter", id=i + 1, name=name)
        for reading in range(seconds + 1):
            second = first + reading * every
            process = process_cpus(second) if callable(process_cpus) else second * process_cpus
            others = other_cpus(second) if callable(other_cpus) else second * other_cpus
            self._add(
                "host",
                at_ns=1_000_000_000_000 + round(second * 10**9),
                process_cpu_ns=round(process * 1e9),
                machine_busy_ns=round((process + others) * 1e9),
                machine_idle_ns=round(second * idle_cpus * 1e9),
                throttled_ns=-1 if throttled < 0 else _ns(second * throttled),
                rss_bytes=rss_bytes(reading) if callable(rss_bytes) else rss_bytes,
                threads=threads,
                runnable=runnable,
                faults=-1 if faults is None else faults(reading),
                system_ns=-1 if system < 0 else _ns(second * system),
                returned_bytes=returned_bytes,
            )
            for i, each in enumerate((machine or {}).values()):
                if reading == 0 or each:
                    at_ns = 1_000_000_000_000 + round(second * 10**9)
                    so_far = each[reading] if isinstance(each, Sequence) else round(10**9 + second * each)
                    self._add("machine", counter=i + 1, at_ns=at_ns, so_far=so_far)
        return self

    # Writing.

    def build(self) -> Path:
        self.path.unlink(missing_ok=True)
        wall = sum(facts["wall_ns"] for _, facts in self._steps)
        rows = dict(self._rows)
        feeds = self._meta.get("feeds_device") == "1"
        rows["meta"] = [{"key": key, "value": value} for key, value in ({"wall_ns": str(wall)} | self._meta).items()]
        rows["step"] = [
            step_row(first, self._steps[first : first + self._merge], feeds)
            for first in range(0, len(self._steps), self._merge)
        ]
        rows["kept_step"] = [{**step_row(step, [self._steps[step]], feeds), "why": why} for step, why in self._kept]
        rows["device_step"] = self._device_rows()
        rows["span_total"] = [{"kind": kind, **total} for kind, total in self._totals.items()]
        self._build_sections(rows)
        self._build_distributions(rows, feeds)
        self.path.write_bytes(_empty())
        connection = sqlite3.connect(self.path)
        try:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("PRAGMA journal_mode = OFF")
            for table, entries in rows.items():
                columns = TABLES[table]
                marks = ", ".join(f":{column}" for column in columns)
                connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", entries)
            connection.commit()
        finally:
            connection.close()
        return self.path

    def open(self) -> OpenedRun:
        return OpenedRun(self.build())

    def _add(self, table: str, **row: Any) -> Self:
        assert set(row) == set(TABLES[table]), (table, set(row) ^ set(TABLES[table]))
        self._rows[table].append(row)
        return self

    def _build_sections(self, rows: dict[str, list[dict[str, Any]]]) -> None:
        width = self._section_steps or 1
        while not self._section_steps and width * MAX_SECTIONS < len(self._steps):
            width *= 2
        rows["section"], rows["phase_mechanism"], rows["detail"] = [], [], []
        for id, first in enumerate(range(0, len(self._steps), width)):
            part = self._steps[first : first + width]
            wall = sum(facts["wall_ns"] for _, facts in part)
            rows["section"].append({"id": id, "first_step": first, "steps": len(part), "wall_ns": wall})
            sums: defaultdict[tuple[str, str], int] = defaultdict(int)
            for matrix, _ in part:
                for cell, ns in matrix.items():
                    sums[cell] += ns
            for (phase, mechanism), ns in sums.items():
                rows["phase_mechanism"].append({"section": id, "phase": phase, "mechanism": mechanism, "ns": ns})
        sections = len(rows["section"])
        for detail in self._details:
            where = range(sections) if detail["section"] is None else [detail["section"]]
            for position, section in enumerate(where):
                steps = rows["section"][section]["steps"] if section >= 0 else 0
                share = {
                    field: detail[field] * (position + 1) // len(where) - detail[field] * position // len(where)
                    for field in ("ns", "count")
                }
                share["steps"] = (
                    min(steps, max(1, share["count"]))
                    if detail["steps"] is None
                    else detail["steps"] * (position + 1) // len(where) - detail["steps"] * position // len(where)
                )
                rows["detail"].append(detail | share | {"section": section, "id": len(rows["detail"]) + 1})

    def _build_distributions(self, rows: dict[str, list[dict[str, Any]]], feeds: bool) -> None:
        bins: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
        shares: defaultdict[tuple[str, int], int] = defaultdict(int)
        for matrix, facts in self._steps:
            wall = facts["wall_ns"]
            shift = max(0, wall.bit_length() - 7)
            lower = (wall >> shift) << shift
            bins[int(bool(facts["flags"] & WARM_UP)), lower, lower + (1 << shift)].append(wall)
            for cause, ns in by_cause(matrix, feeds).items():
                if wall and ns * 100 // wall:
                    shares[cause, ns * 100 // wall] += 1
        rows["wall_histogram"] = [
            {"warm_up": warm_up, "lower_ns": lower, "upper_ns": upper, "steps": len(walls), "wall_ns": sum(walls)}
            for (warm_up, lower, upper), walls in bins.items()
        ]
        rows["cause_share"] = [{"cause": c, "percent": percent, "steps": n} for (c, percent), n in shares.items()]
