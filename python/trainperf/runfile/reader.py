"""What a run file holds, read-only. Everything is read when it is first asked for, and kept."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import numpy as np

from trainperf.masking import masked
from trainperf.runfile.children import read_children
from trainperf.runfile.devices import read_calls, read_copies, read_devices, read_kernels, read_segments
from trainperf.runfile.loaders import read_loaders
from trainperf.runfile.records import (
    Call,
    Child,
    Copy,
    Detail,
    Device,
    DeviceSegment,
    Frame,
    HostReading,
    Int64Array,
    Kernel,
    Loader,
    Section,
    Segment,
    Span,
    SpanTotal,
    StepTable,
    Thread,
    Tier,
)
from trainperf.runfile.schema import (
    CAUSES,
    MECHANISMS,
    PHASES,
    SPAN_KINDS,
    TABLES,
    RunDatabase,
    json_object,
)
from trainperf.runfile.steps import MAX_NS, read_steps

if TYPE_CHECKING:
    from typing_extensions import Self

# StepFlag of cpp/trainperf/timeline/records.h
DATA_STARVED, GIL_CONTENDED, HOST_STALLED, INCOMPLETE = 1, 2, 4, 8
WARM_UP, HAS_VALIDATION, HAS_CHECKPOINT, HAS_LOADER_START = 16, 32, 64, 128

_KERNELS = ("ipykernel_launcher.py", "colab_kernel_launcher.py")

OUTSIDE_STEPS: Final = -1  # Detail.section, Span.step: before the first step, or on another thread
ALL_SECTIONS: Final = -2  # Detail.section of Run.detail_totals()


class RunReader:
    """One run file, read-only; a context manager. trainperf.open() makes it.

    Raises RunFileError when the file cannot be read as a run, here or when something is first asked for.
    """

    still_runs = False  # its watch is this process', and goes on

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: str = os.fspath(path)
        self._database = RunDatabase(Path(path))
        self._whole_stacks: dict[int, tuple[Frame, ...]] = {}
        self.schema_version: int = self._database.schema_version

    def check(self) -> None:
        """Reads all of the file. Raises RunFileError when some of it is damaged, though other parts can be read."""
        self._database.check()

    def close(self) -> None:
        """What was read stays; what was not cannot be any more. Idempotent."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<trainperf.Run {self.path!r}>"

    # What was run, and how it went.

    @cached_property
    def meta(self) -> Mapping[str, str]:
        """Facts about the process: "started", "host", "python", "torch", "cpus", "torch_threads", "argv", "name" ..."""
        return dict(self._database.rows("meta", "ss"))

    @cached_property
    def argv(self) -> tuple[str, ...]:
        """The program and its arguments, as in sys.argv; () where none are known."""
        return self._words("argv")

    @cached_property
    def command(self) -> tuple[str, ...]:
        """What started it, "python", "-m", "pkg.train"; () where that is not known."""
        return self._words("command")

    def _words(self, key: str) -> tuple[str, ...]:
        try:
            words = json.loads(self.meta.get(key, ""))
        except (ValueError, RecursionError):
            return ()
        return tuple(masked(list(map(str, words)))) if isinstance(words, list) else ()  # of older files, too

    @property
    def script(self) -> str:
        """ "train.py", without its folder; "" in a notebook, or where it is not known."""
        name = os.path.basename(self.argv[0]) if self.argv else ""
        return "" if name in _KERNELS else name

    @property
    def is_notebook(self) -> bool:
        return bool(self.argv) and os.path.basename(self.argv[0]) in _KERNELS

    @property
    def ended(self) -> Literal["normally", "exception", "killed"]:
        """ "killed": no end was written; the process died, or is still running."""
        ended = self.meta.get("ended", "killed")
        return cast(
            Literal["normally", "exception", "killed"], ended if ended in ("normally", "exception") else "killed"
        )

    @property
    def incomplete(self) -> int:
        """Batches that were fetched but never trained on."""
        return self._meta_int("incomplete_steps")

    @property
    def lead_ns(self) -> int:
        """From the start of the watch to the first step."""
        return self._meta_int("lead_ns")

    @property
    def stopped_ns(self) -> int:
        """How long the whole process stood still from its first step on, at least: Ctrl-Z, a debugger, a pause."""
        return self._meta_int("stopped_ns")

    @property
    def traced_percent(self) -> int:
        """Of its time a trace function of Python's was set on the training thread."""
        return self._meta_int("traced_percent")

    @property
    def anomaly_percent(self) -> int:
        """Of its time anomaly detection was on."""
        return self._meta_int("anomaly_percent")

    @property
    def profiled_percent(self) -> int:
        """Of its time a profiler of PyTorch's was on."""
        return self._meta_int("profiled_percent")

    def _meta_int(self, key: str) -> int:
        try:
            return int(self.meta.get(key, "0"))
        except ValueError as error:
            raise self._database.damaged(f"meta {key} is no number") from error

    @cached_property
    def watched_ns(self) -> int:
        """From the start of the watch to its end; of a run that was killed, to its last step."""
        return max(self._meta_int("wall_ns"), self.lead_ns + self.wall_ns)

    # Steps.

    @cached_property
    def steps(self) -> StepTable:
        return read_steps(self._database, "step")

    @cached_property
    def step_count(self) -> int:
        return int(self.steps.count.sum())

    @cached_property
    def wall_ns(self) -> int:
        """Sum of the steps."""
        return int(self.steps.wall_ns.sum())

    def cause_ns(self, cause: str) -> int:
        return int(self.steps.causes_ns[:, CAUSES.index(cause)].sum())

    def phase_ns(self, phase: str) -> int:
        return int(self.steps.phases_ns[:, PHASES.index(phase)].sum())

    @cached_property
    def matrix_ns(self) -> Int64Array:
        """(9 phases, 14 mechanisms) of the whole run, warm-up steps included."""
        total = np.zeros((len(PHASES), len(MECHANISMS)), dtype=np.int64)
        for section in self.sections:
            total += section.matrix_ns
        return total

    def wall_ms_quantile(self, q: float, *, warm_up: bool = False) -> float:
        """Wall time of a step that the fraction `q` (0 to 1) of steps do not exceed; nan when there are no such steps.

        Exact while every step has its row; from a histogram with bins of 1.6 % in longer runs. `warm_up`: warm-up steps
        count too.
        """
        if not 0 <= q <= 1:
            raise ValueError(f"q must lie between 0 and 1, not {q!r}")
        steps = self.steps
        if len(steps.count) and int(steps.count.max()) > 1:
            return self._histogram_quantile(q, warm_up)
        wall = steps.wall_ns if warm_up else steps.wall_ns[(steps.flags & WARM_UP) == 0]
        return float(np.quantile(wall, q)) / 1e6 if len(wall) else float("nan")

    def _histogram_quantile(self, q: float, warm_up: bool) -> float:
        bins = [row for row in self.wall_histogram if warm_up or row[0] == 0]
        total = sum(steps for *_, steps, _ in bins)
        seen = 0
        for _, _, _, steps, wall_ns in sorted(bins, key=lambda row: row[1]):
            seen += steps
            if seen > q * (total - 1):
                return float(wall_ns / steps / 1e6)
        return float("nan")

    @cached_property
    def wall_histogram(self) -> list[tuple[int, int, int, int, int]]:
        rows = self._database.rows("wall_histogram", "iiiii")
        if any(row[3] <= 0 for row in rows):
            raise self._database.damaged("wall_histogram has a bin without steps")
        return cast("list[tuple[int, int, int, int, int]]", rows)

    def steps_with(self, cause: str, *, share: float = 0.10) -> int:
        """In how many steps `cause` takes at least that share of the step (in long runs: to the whole percent)."""
        steps = self.steps
        column = steps.causes_ns[:, CAUSES.index(cause)]
        if len(steps.count) and int(steps.count.max()) > 1:
            rows = self._database.rows("cause_share", "sii")
            return sum(count for name, percent, count in rows if name == cause and percent >= round(share * 100, 6))
        return int(steps.count[(column >= share * steps.wall_ns) & (column > 0)].sum())

    @cached_property
    def kept_steps(self) -> StepTable:
        """The single steps that keep segments: the worst, some of the flagged, the first warm-up steps. In order."""
        return read_steps(self._database, "kept_step")

    @cached_property
    def worst_steps(self) -> Sequence[int]:
        """Indices of the longest steps (no warm-up steps), longest first."""
        rows = self._database.rows(
            "kept_step", "i", columns=("first_step",), order="WHERE why = 'worst' ORDER BY wall_ns DESC, first_step"
        )
        return tuple(row[0] for row in rows)

    def segments(self, step: int) -> Sequence[Segment]:
        """The step's own timeline, in order; () unless `step` is one of kept_steps."""
        return self._segments.get(step, ())

    @cached_property
    def _segments(self) -> Mapping[int, Sequence[Segment]]:
        steps: defaultdict[int, list[Segment]] = defaultdict(list)
        for step, _, start, end, phase, mechanism, thread, stack in self._database.rows(
            "segment", "iiiissii", order="ORDER BY step, seq"
        ):
            steps[step].append(Segment(start, end, phase, mechanism, self.threads.get(thread), stack))
        return dict(steps)

    @cached_property
    def sections(self) -> Sequence[Section]:
        """The run in at most 64 stretches of equal length in steps (the last may be shorter)."""
        matrices: defaultdict[int, Int64Array] = defaultdict(
            lambda: np.zeros((len(PHASES), len(MECHANISMS)), dtype=np.int64)
        )
        for section, phase, mechanism, ns in self._database.rows("phase_mechanism", "issi"):
            if phase not in PHASES or mechanism not in MECHANISMS or abs(ns) > MAX_NS:
                raise self._database.damaged(f"phase_mechanism holds {phase[:20]!r}, {mechanism[:20]!r}, {ns}")
            matrices[section][PHASES.index(phase), MECHANISMS.index(mechanism)] = ns
        rows = self._database.rows("section", "iiii", order="ORDER BY id")
        return tuple(Section(id, first, steps, wall_ns, matrices[id]) for id, first, steps, wall_ns in rows)

    # What hangs below the causes.

    def details(self, kind: str, *, phase: str | None = None, section: int | None = None) -> Sequence[Detail]:
        """Sums by section, costliest first; of all sections when `section` is None.

        What lies outside of steps is in section OUTSIDE_STEPS and comes only when that is asked for.
        """
        return tuple(
            detail
            for detail in self._details.get(kind, ())
            if (phase is None or detail.phase == phase)
            and (detail.section >= 0 if section is None else detail.section == section)
        )

    def detail_totals(self, kind: str, *, phase: str | None = None) -> Sequence[Detail]:
        """The same, summed over all sections (their `section` is ALL_SECTIONS), costliest first."""
        if kind not in self._detail_totals:
            self._detail_totals[kind] = self._sum_details(kind)
        return tuple(d for d in self._detail_totals[kind] if phase is None or d.phase == phase)

    @cached_property
    def _detail_totals(self) -> dict[str, Sequence[Detail]]:
        return {}  # by kind, as they are asked for

    def _sum_details(self, kind: str) -> Sequence[Detail]:
        sums: dict[tuple[object, ...], list[int]] = {}
        first: dict[tuple[object, ...], Detail] = {}
        for d in self.details(kind):
            key = (d.phase, d.state, d.thread.id if d.thread else 0, d.stack, d.code, d.folded > 0)
            known = sums.get(key)
            if known is None:
                sums[key], first[key] = [d.ns, d.count, d.steps, d.folded], d
            else:
                known[0] += d.ns
                known[1] += d.count
                known[2] += d.steps
                known[3] += d.folded
        totals = [
            replace(first[key], section=ALL_SECTIONS, ns=ns, count=count, steps=steps, folded=folded)
            for key, (ns, count, steps, folded) in sums.items()
        ]
        return tuple(sorted(totals, key=lambda d: -d.ns))

    @cached_property
    def _details(self) -> Mapping[str, Sequence[Detail]]:
        kinds: defaultdict[str, list[Detail]] = defaultdict(list)
        rows = self._database.rows(
            "detail", "sissiiiiiii", columns=_DETAIL_COLUMNS, order="ORDER BY ns DESC, section, id"
        )
        for kind, section, phase, state, thread, *rest in rows:
            kinds[kind].append(Detail(kind, section, phase, state, self.threads.get(thread), *rest))
        return dict(kinds)

    def spans(self, kind: str) -> Sequence[Span]:
        """The longest ones (at most 2048), in order of time."""
        return self._spans.get(kind, ())

    @cached_property
    def _spans(self) -> Mapping[str, Sequence[Span]]:
        kinds: defaultdict[str, list[Span]] = defaultdict(list)
        rows = self._database.rows("span", "siiiiiii", columns=TABLES["span"][1:], order="ORDER BY start_ns, id")
        for kind, step, start, end, cpu, object_, value, thread in rows:
            kinds[kind].append(Span(kind, step, start, end, cpu, object_, value, self.threads.get(thread)))
        return dict(kinds)

    def span_total(self, kind: str) -> SpanTotal:
        """All of them, also the ones too short to be kept."""
        return self._span_totals.get(kind, SpanTotal(kind, 0, 0, 0, 0))

    @cached_property
    def _span_totals(self) -> Mapping[str, SpanTotal]:
        return {row[0]: SpanTotal(*row) for row in self._database.rows("span_total", "siiii") if row[0] in SPAN_KINDS}

    # Devices.

    @property
    def feeds_device(self) -> bool:
        """The host feeds a device, so that its native time is named launch in this file, and never compute."""
        return self.schema_version >= 2 and self.meta.get("feeds_device") == "1"

    @cached_property
    def devices(self) -> Sequence[Device]:
        """Those that ran work of this process; () when none was seen, which may be for want of a tracer."""
        return read_devices(self._database, self.steps)

    def kernels(self, device_id: int) -> Sequence[Kernel]:
        """By name, costliest first; at last "(other)", the sum of those that were too many."""
        return read_kernels(self._database, device_id)

    def copies(self, device_id: int) -> Sequence[Copy]:
        """By direction and kinds of memory, costliest first."""
        return read_copies(self._database, device_id)

    @cached_property
    def _calls(self) -> Sequence[Call]:
        return read_calls(self._database, self.threads)

    def calls(self) -> Sequence[Call]:
        """The host's calls into the device's runtime by thread and sort, costliest first."""
        return self._calls

    def device_segments(self, step: int) -> Sequence[DeviceSegment]:
        """Each device's timeline of the step, in order; () unless `step` is one of kept_steps."""
        return self._device_segments.get(step, ())

    @cached_property
    def _device_segments(self) -> Mapping[int, Sequence[DeviceSegment]]:
        return read_segments(self._database)

    # Who is who.

    @cached_property
    def threads(self) -> Mapping[int, Thread]:
        step_thread = self._meta_int("step_thread")
        return {
            id: Thread(id, native_tid, name, role or ("step" if id == step_thread else ""), gil_wait_ns, gil_waits)
            for id, native_tid, name, role, gil_wait_ns, gil_waits in self._database.rows("thread", "iissii")
        }

    @property
    def step_thread(self) -> Thread | None:
        """The thread that ran backward; None while none did."""
        return self.threads.get(self._meta_int("step_thread"))

    def stack(self, stack_id: int) -> Sequence[Frame]:
        """Frames, innermost first; () for 0 and for a stack that was not kept."""
        whole = self._whole_stacks.get(stack_id)
        if whole is None:
            whole = self._whole_stacks[stack_id] = self._put_together(stack_id)
        return whole

    def _put_together(self, stack_id: int) -> tuple[Frame, ...]:
        frames: list[Frame] = []
        node = stack_id
        while node in self._stacks:
            parent, site = self._stacks[node]
            frames.append(self._sites.get(site, _UNKNOWN_FRAME))
            if parent >= node:  # parents are written first: anything else would go in circles
                raise self._database.damaged(f"stack {node} has a caller {parent} that was written after it")
            node = parent
        return tuple(frames)

    @cached_property
    def _stacks(self) -> Mapping[int, tuple[int, int]]:
        return {row[0]: (row[1], row[2]) for row in self._database.rows("stack", "iii")}

    @cached_property
    def _sites(self) -> Mapping[int, Frame]:
        cells = {file: f"In [{n}]" for file, n in json_object(self.meta.get("cells", "{}")).items()}
        return {
            id: Frame(cells.get(file, file), function, line)
            for id, file, function, line in self._database.rows("site", "issi")
        }

    @cached_property
    def objects(self) -> Mapping[int, tuple[str, Mapping[str, Any]]]:
        """Id -> kind ("loader", "optimizer", "module") and description."""
        return {row[0]: (row[1], json_object(row[2])) for row in self._database.rows("object", "iss")}

    @cached_property
    def loaders(self) -> Mapping[int, Loader]:
        return read_loaders(self._database, self.objects)

    @cached_property
    def children(self) -> Sequence[Child]:
        """Processes that the run started beside DataLoader workers; older runs have none."""
        return read_children(self._database)

    @property
    def batch_size(self) -> int | None:
        """Of the loader that was fetched from most; None: there was none, or it makes no batches."""
        loaders = [loader for loader in self.loaders.values() if loader.fetches.count or loader.fetches.first_count]
        if not loaders:
            return None
        size = max(loaders, key=lambda loader: loader.fetches.count).description.get("batch_size")
        return size if isinstance(size, int) and not isinstance(size, bool) else None

    # How well was it measured.

    @cached_property
    def tiers(self) -> Mapping[str, Tier]:
        return {row[0]: Tier(*row) for row in self._database.rows("tier", "sss")}

    @cached_property
    def overhead_ns(self) -> Mapping[str, int]:
        """Our own cost so far, by place: "collector", "sampler" (our threads), "marks", "gil_hook" (the user's);
        "figures": wall time of the user's loggers for ours."""
        return dict(self._database.rows("overhead", "si"))

    @cached_property
    def dropped(self) -> Mapping[str, int]:
        return dict(self._database.rows("dropped", "si"))

    @cached_property
    def notes(self) -> Sequence[str]:
        rows = self._database.rows("note", "isi", order="ORDER BY id")
        return tuple(text if count == 1 else f"{text} ({count} times)" for _, text, count in rows)

    @cached_property
    def host(self) -> Sequence[HostReading]:
        """Once a second, in order; in long runs every second, fourth ... of them."""
        return tuple(HostReading(*row) for row in self._database.rows("host", "i" * 11, order="ORDER BY at_ns"))

    @cached_property
    def machine(self) -> Mapping[str, Int64Array]:
        """What the machine did so far, by counter, an entry for each reading of host: {"disk_read_bytes:sda": ...}.
        Disks, networks, stalls (PSI), paging, and what this process and its workers read and wrote; "gpu_..." and
        "..._levels" are no counters, but as it was then. Empty in files before version 8."""
        names = dict(self._database.rows("counter", "is"))
        at = np.array([reading.at_ns for reading in self.host], dtype=np.int64)
        changes: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for counter, at_ns, so_far in self._database.rows("machine", "iii", order="ORDER BY at_ns"):
            if counter in names:
                changes[names[counter]].append((at_ns, so_far))
        told = {}
        for name, rows in sorted(changes.items()):
            times, values = np.array(rows, dtype=np.int64).T
            # No row: as at the reading before; before its first row it had counted nothing of the run.
            told[name] = values[np.maximum(np.searchsorted(times, at, side="right") - 1, 0)]
        return told


_UNKNOWN_FRAME: Final = Frame("", "", 0)
_DETAIL_COLUMNS: Final = (
    "kind",
    "section",
    "phase",
    "state",
    "thread",
    "stack",
    "code",
    "ns",
    "count",
    "steps",
    "folded",
)
