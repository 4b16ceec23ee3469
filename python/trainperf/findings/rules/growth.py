"""TP404, TP601 and TP603: steps that grow, memory that grows, and memory that goes back to the OS in every step."""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from trainperf.findings import places
from trainperf.findings.cpus import Floats
from trainperf.findings.device_memory import devices_memory
from trainperf.findings.frames import FrameLike, below_users, function_of, is_user_file, label
from trainperf.findings.model import Claim, Diagnosis, Limits, Outcome, Param, Params, Said, Saves, Sure, Unsure
from trainperf.findings.rule import WARNS, rule
from trainperf.findings.text import Bytes, Count, Names, Ns, Number, Seconds, Share, Times
from trainperf.findings.thresholds import limit
from trainperf.findings.trends import still_rises, trend
from trainperf.runfile import WARM_UP
from trainperf.runfile.schema import CAUSES, MACHINE, MECHANISMS, PHASES, described, listed

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.model import Cell
    from trainperf.findings.places import Spot
    from trainperf.runfile import Detail, RunReader, Section
    from trainperf.runfile.records import HostReading

# -- whether a series of readings rises, and a phase of the steps with the number of steps done: how much, and where

_BINS, _FEWEST = 24, 10
_FELT = 0.05  # of the run's time: a phase that may be compared with another
_MODEL = ("forward", "backward")


@dataclass(frozen=True, slots=True)
class Growth:
    phase: str
    first_ns: float  # per step: the level that it starts from, and the last one
    last_ns: float
    per_step_ns: float  # the mean rise
    thirds_ns: tuple[float, float, float]
    excess_ns: int  # of the whole run, above the first level
    bends: bool  # its last third rises much faster than its first
    claims: dict[Cell, int]  # the excess, in the cells that grew
    steps: int  # that the first and the last level are measured in, each

    @property
    def by_work(self) -> bool:
        """Most of it is work in tensors, not Python and not a wait."""
        native = sum(ns for (_, mechanism), ns in self.claims.items() if mechanism not in ("python", "gc", "blocked"))
        return native >= limit("half_share") * self.excess_ns


@dataclass(frozen=True, slots=True)
class Grown:
    """All phases that grow, the costliest first."""

    phases: tuple[Growth, ...]
    inputs: bool  # forward and backward grow alike, in native work: so they do with larger inputs

    @property
    def excess_ns(self) -> int:
        return sum(g.excess_ns for g in self.phases)


@dataclass(frozen=True, slots=True)
class _Table:
    """The run's sections, without those that warm up or compile."""

    steps: Floats  # of each section
    ns: Floats  # (sections, phases), without what the machine made the thread wait

    def levels(self, phase: int, *, mean: bool = False) -> Floats:
        """Of up to 24 equal parts of the run, per step."""
        each = self.ns[:, phase] / self.steps
        parts = np.array_split(each, min(_BINS, max(len(each) // 2, min(len(each), _FEWEST))))
        return np.array([np.mean(part) if mean else median(part.tolist()) for part in parts])


def grown(facts: Facts) -> Grown | None:
    """None: no phase grows, or there are too few steps."""
    if facts.steps < limit("growth_min_steps"):
        return None
    table = _sections(facts)
    if table is None:
        return None
    found = []
    for i, phase in enumerate(PHASES):
        if table.ns[:, i].sum() >= limit("least_share") * facts.wall_ns:
            growth = _growth(facts, table, phase)
            if growth is not None:
                found.append(growth)
    found.sort(key=lambda g: -g.excess_ns)
    drift = _drift(table, {g.phase for g in found})
    found = [g for g in found if g.last_ns >= limit("growth_ratio") * drift * g.first_ns]
    return Grown(tuple(found), _like_inputs(facts, table, found)) if found else None


def _sections(facts: Facts) -> _Table | None:
    table = facts.run.steps
    others = (table.count == 1) & (((table.flags & WARM_UP) != 0) | (table.compile_ns > 0))
    left_out = table.index[others]
    of_loop = [m not in MACHINE for m in MECHANISMS]
    kept = [
        s
        for s in facts.run.sections
        if s.steps > 0 and not ((left_out >= s.first_step) & (left_out < s.first_step + s.steps)).any()
    ]
    if len(kept) < _FEWEST:
        return None
    ns = np.array([s.matrix_ns[:, of_loop].sum(axis=1) for s in kept], dtype=np.float64)
    return _Table(np.array([s.steps for s in kept], dtype=np.float64), ns)


def _ends(levels: Floats) -> tuple[float, float]:
    """The first level, and the last."""
    return float(levels[:2].min()), float(np.median(levels[-2:]))


def _growth(facts: Facts, table: _Table, phase: str) -> Growth | None:
    row = PHASES.index(phase)
    for mean in (False, True):  # of what only some of the steps do, medians are zero
        levels = table.levels(row, mean=mean)
        if still_rises(levels):
            break
    else:
        return None
    first, last = _ends(levels)
    excess = int((table.ns[:, row] - first * table.steps).sum())
    claims = _claims(facts, phase, excess)
    if excess <= 0 or not claims:
        return None
    thirds = tuple(float(np.mean(part)) for part in np.array_split(levels, 3))
    size = max(1, len(levels) // 3)
    early, late = levels[size - 1] - levels[0], levels[-1] - levels[-size]
    steps = int(table.steps.sum())
    return Growth(
        phase=phase,
        first_ns=first,
        last_ns=last,
        per_step_ns=(last - first) / steps / (1 - 1.5 / len(levels)),  # from the middle of a part to that of another
        thirds_ns=(thirds[0], thirds[1], thirds[2]),
        excess_ns=excess,
        bends=bool(late > 2 * max(0.0, early)),
        claims=claims,
        steps=steps // len(levels),
    )


def _thirds(facts: Facts) -> tuple[list[Section], list[Section]]:
    """The sections of the run's first third, and of its last."""
    sections = [s for s in facts.run.sections if s.steps > 0]
    third = facts.steps / 3
    first = [s for s in sections if s.first_step + s.steps / 2 <= third]
    return first, [s for s in sections if s.first_step + s.steps / 2 >= 2 * third]


def _claims(facts: Facts, phase: str, excess_ns: int) -> dict[Cell, int]:
    """The excess, laid on the phase's cells as they grew from the first third to the last."""
    first, last = _thirds(facts)
    if not first or not last:
        return {}
    row = PHASES.index(phase)

    def per_step(sections: list[Section]) -> Floats:
        ns = np.sum([s.matrix_ns[row] for s in sections], axis=0, dtype=np.float64)
        return np.asarray(ns / sum(s.steps for s in sections), dtype=np.float64)

    of_loop = np.array([m not in MACHINE for m in MECHANISMS])
    rise = (per_step(last) - per_step(first)).clip(min=0) * of_loop
    whole = float(rise.sum())
    if not whole:
        return {}
    parts = {
        (phase, m): min(int(excess_ns * rise[i] / whole), facts.matrix[phase, m]) for i, m in enumerate(MECHANISMS)
    }
    return {cell: ns for cell, ns in parts.items() if ns > 0}


def _drift(table: _Table, growing: set[str]) -> float:
    """How much slower the phase that slows down least gets, of those that can be compared: so much slower the machine
    may have become. 1 where nothing can be compared."""
    whole = float(table.ns.sum())
    ratios = []
    for i, phase in enumerate(PHASES):
        if phase in ("validation", "checkpoint") or table.ns[:, i].sum() < _FELT * whole:
            continue
        before, after = _ends(table.levels(i))
        if before > 0:
            ratios.append((phase, after / before))
    still = [ratio for phase, ratio in ratios if phase not in growing]
    # One that grows by itself proves nothing of the machine: two that do, the lesser may.
    of = still or ([ratio for _, ratio in ratios] if len(ratios) > 1 else [])
    return max(1.0, min(of, default=1.0))


def _like_inputs(facts: Facts, table: _Table, found: list[Growth]) -> bool:
    if not facts.run.phase_ns("backward"):  # nothing to compare with
        return bool(found) and found[0].phase == "forward" and found[0].by_work
    model = [g for g in found if g.phase in _MODEL and g.by_work]
    # A phase that grows less may not rise clearly enough to be found.
    ends = [_ends(table.levels(PHASES.index(phase))) for phase in _MODEL]
    rises = [last - first for first, last in ends]
    alike = min(rises) >= limit("growth_of_inputs") * max(rises)
    # What grows outside the model may be due to the same inputs, unless it grows far more than the model.
    of_model = sum(g.excess_ns for g in model)
    return bool(model) and alike and of_model >= limit("growth_of_inputs") * sum(g.excess_ns for g in found)


def grown_spots(facts: Facts, phase: str) -> list[tuple[Spot, float]]:
    """The user's functions that take more of each step in the last third of the run than in the first, with the part
    of the rise that each has, the largest first; their time is that of the last third."""
    first, last = _thirds(facts)
    before, after = _by_section(facts, phase, first), _by_section(facts, phase, last)
    if sum(d.count for d in after) < limit("min_samples"):
        return []
    early = {function_of(s.frame): s.ns for s in facts.spots(before)}
    scale = sum(s.steps for s in last) / max(1, sum(s.steps for s in first))
    rises = [(s, s.ns - scale * early.get(function_of(s.frame), 0)) for s in facts.spots(after)]
    whole = sum(ns for _, ns in rises if ns > 0)
    return sorted(((s, ns / whole) for s, ns in rises if ns > 0), key=lambda rise: -rise[1])


def _by_section(facts: Facts, phase: str, sections: list[Section]) -> list[Detail]:
    samples: defaultdict[int, list[Detail]] = defaultdict(list)
    for d in facts.run.details("sample", phase=phase):
        samples[d.section].append(d)
    return list(itertools.chain.from_iterable(samples[s.index] for s in sections))


# -- steps that grow

_NAMED = ("fetch", "transfer", "optimizer", "checkpoint", "forward", "other")  # phases that have a name in words
_FIXED = ("backward", "optimizer", "logging", "checkpoint", "validation", "fetch")  # and those with a fix of their own
# A call on a tensor that requires grad becomes a part of its graph: in each step one more.
_GRAPH_CALLS = re.compile(r"[/\\]torch[/\\](distributed[/\\]|utils[/\\]hooks\.py$)")


@rule("TP404", "growing-step", WARNS)
def growing_step(facts: Facts, limits: Limits) -> Outcome:
    """A phase of the step takes longer the more steps were done: something is added at each step."""
    if facts.steps < limit("growth_min_steps"):
        return Unsure("growth_few_steps", {"several": facts.steps > 1})
    mine = facts.once(grown)
    severity = facts.grade(mine.excess_ns, limits) if mine is not None else None
    if mine is None or severity is None:
        return None
    if facts.wall_ns < limit("growth_min_s") * 1e9:
        return Unsure("growth_short")
    if mine.inputs or _waits_for_gpu(mine):
        return _larger_inputs(facts, mine)
    top = mine.phases[0]
    rises = grown_spots(facts, top.phase)
    spot = _grown_most(facts, rises)
    suspect = _suspect(facts) if top.phase == "backward" and spot is None else None
    claims: dict[Cell, int] = {}
    for phase in mine.phases:
        claims |= phase.claims
    fix = f"growth_fix_{top.phase}" if top.phase in _FIXED else "growth_fix_other"
    grew = sum(top.claims.values())
    # All of it where one function is named: what samples lay on others is noise next to it.
    whose = [(spot, 1.0)] if spot is not None else rises
    told = {(function_of(s.frame), top.phase): int(part * grew) for s, part in whose}
    return Diagnosis(
        variant=_variant(facts, top, spot, suspect),
        severity=severity,
        claim=Claim(facts.main_cause(claims), claims, by_device=False, of_functions=told),
        params={
            **_growth_params(facts, mine),
            "phase": _in_words(top),
            "rise_ms": Number(top.per_step_ns / 1e6),
            "function": spot.frame.function if spot is not None else None,
            "place": facts.label(spot),
            "place_and_caller": facts.label(spot, with_caller=True),
            "suspect": label(suspect.frame, facts.base) if suspect is not None else None,
            "fix": Said(fix),
        },
        place=facts.where(spot or suspect),
        sure=Sure(spot.samples if spot is not None else None),
    )


def _variant(facts: Facts, top: Growth, spot: Spot | None, suspect: Spot | None) -> str:
    if spot is not None:
        if top.phase == "backward":
            return "function_in_backward"
        if places.rewrites(facts, spot):
            return "rewritten_log"
        if places.joins_to_itself(facts, spot):
            return "copied_to_grow"
        # Which of these phases it is tells little.
        return "function" if top.phase in ("forward", "other") else "function_in_phase"
    if top.phase == "backward":
        return "graph" if suspect is None else "suspect"
    return "phase"


def _larger_inputs(facts: Facts, grown: Grown) -> Diagnosis:
    """Nothing tells longer inputs from a kept history that the model itself works on."""
    return Diagnosis(
        variant="inputs",
        severity="info",
        claim=Claim(facts.main_cause(grown.phases[0].claims), by_device=False),
        params=_growth_params(facts, grown),
        sure=Sure(level="low", doubts=(Said("no_input_sizes"),)),
        saves=Saves(share=0.0, finds_out=True),
    )


def _growth_params(facts: Facts, grown: Grown) -> Params:
    growing = {g.phase for g in grown.phases}
    rest = facts.wall_ns - sum(ns for (phase, _), ns in facts.matrix.items() if phase in growing)
    rows: list[Params] = [
        {
            "name": _in_words(g),
            "first": Ns(g.first_ns),
            "last": Ns(g.last_ns),
            "thirds": Times(g.thirds_ns),
            "bends": g.bends,
        }
        for g in grown.phases
    ]
    return {
        "phases": tuple(rows),
        "rest": Ns(rest / facts.steps),
        "excess": Ns(grown.excess_ns),
        "excess_share": Share(facts.share(grown.excess_ns)),
    }


def _in_words(growing: Growth) -> Said | str:
    return Said(f"phase_{growing.phase}") if growing.phase in _NAMED else growing.phase


def _waits_for_gpu(grown: Grown) -> bool:
    """The GPU has more to do: what of, the host's phases do not tell."""
    waits = sum(ns for g in grown.phases for (_, mechanism), ns in g.claims.items() if mechanism == "gpu_wait")
    return waits >= limit("half_share") * grown.excess_ns


def _grown_most(facts: Facts, rises: Sequence[tuple[Spot, float]]) -> Spot | None:
    """The function that has most of the rise. Of one that writes all rows so far again it is known why it grows."""
    grew = [(s, part) for s, part in rises if not _calls_backward(facts, s)]
    mine = [s for s, part in grew if part >= limit("half_share")]
    return next(iter(mine), None) or next((s for s, _ in grew[:1] if places.rewrites(facts, s)), None)


def _calls_backward(facts: Facts, spot: Spot) -> bool:
    """It only calls backward: what grows is the graph, which other code made."""
    return any(re.search(r"[/\\]torch[/\\]autograd[/\\]", f.file) for f in below_users(spot.frames))


def _suspect(facts: Facts) -> Spot | None:
    """The user's function that calls what may add to the graph."""

    def adds(stack: Sequence[FrameLike]) -> bool:
        return any(_GRAPH_CALLS.search(f.file) for f in below_users(stack))

    outside = ("forward", "other", "optimizer")
    spots = facts.spots(facts.samples(phases=outside), keep=adds)
    return spots[0] if spots and spots[0].samples >= limit("min_samples") else None


# -- what keeps memory, as the run has it (hooks/kept_memory.py), and its words

_KINDS = {"container", "cache", "graph", "array"}
_HOLDS = {"graphs", "tensors", "arrays", "objects", "hooks"}
_MOST_KEEPERS = 3
_LONGEST = 200  # characters
_NUMBERS = ("line", "elements", "bytes", "inside")
_PLAIN = {"of", "name", "owner", "file", "text", "argument", "type"}


@dataclass(frozen=True, slots=True)
class Keeper:
    """Something that grew between the two looks."""

    kind: str
    holds: str
    type: str
    of: str  # local, global, attribute; "": it has no name
    name: str
    owner: str  # function, module or class
    inside: int
    file: str
    line: int  # 0: not known
    text: str  # of the line: names alone
    argument: str
    elements: int
    bytes: int  # of an element
    scalar: bool
    on_gpu: bool  # most of the bytes

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.line and is_user_file(self.file) else ""

    @property
    def function(self) -> str:
        """Of a cache: whose results it keeps."""
        return self.text.rpartition(" ")[2] if self.kind == "cache" else ""

    @property
    def known_bytes(self) -> int:
        """Between the two looks; 0: not known, as of graphs."""
        return 0 if self.holds == "graphs" else self.bytes * self.elements

    @property
    def sure(self) -> bool:
        """Nothing is kept so on purpose."""
        return self.holds in ("graphs", "hooks")

    @property
    def said(self) -> Said:
        if self.holds == "hooks":
            return Said("keeps_hooks")
        if self.function:
            return Said("keeps_cache", {"function": self.function})
        if self.text:
            return Said("keeps_line", {"text": self.text})
        return self.thing if self.name else Said("keeps_unnamed", {"type": self.type})

    @property
    def thing(self) -> Said:
        """The container by its name."""
        of = {"local": "keeps_local", "global": "keeps_global", "attribute": "keeps_attribute"}
        if self.function:
            return Said("keeps_cache", {"function": self.function})
        if not self.name:
            return Said("keeps_unnamed", {"type": self.type})
        shown = self.name + "[...]" * min(self.inside, 2)
        return Said(of[self.of], {"name": shown, "owner": self.owner, "type": self.type})

    @property
    def held(self) -> Said:
        if self.kind == "graph":
            return Said("holds_chain")
        if self.kind == "array":
            return Said("holds_array", {"type": self.type})
        return Said("holds_results" if self.kind == "cache" else f"holds_{self.holds}", {"type": self.type})


@dataclass(frozen=True, slots=True)
class Looks:
    """The two looks of a run."""

    seconds: float
    steps: int
    objects: int
    pauses_ms: tuple[float, ...]
    keepers: tuple[Keeper, ...]  # the one that keeps the most first


def looks(run: RunReader) -> Looks | None:
    """None: nobody looked, or the file does not have it as it should."""
    read = described(run.meta, "kept_memory")
    if not _is_number(read.get("seconds")) or not read["seconds"]:
        return None
    if not all(type(read.get(key)) is int and read[key] >= 0 for key in ("steps", "objects")):
        return None
    rows = read.get("kept")
    keepers = [k for row in (rows[:_MOST_KEEPERS] if isinstance(rows, list) else ()) if (k := _keeper(row)) is not None]
    pauses = listed(run.meta, "kept_memory_pauses")
    ms = tuple(float(p) for p in pauses[:8] if _is_number(p))
    return Looks(float(read["seconds"]), read["steps"], read["objects"], ms, tuple(keepers))


@dataclass(frozen=True, slots=True)
class WorkersMemory:
    """Of a run's DataLoader workers together, while the same ones ran."""

    workers: int
    seconds: tuple[float, ...]
    bytes: tuple[int, ...]
    dataset: str  # its class
    place: str  # of the only line of it that adds to what it has; "": not known
    text: str


def workers_memory(facts: Facts) -> WorkersMemory | None:
    read = described(facts.run.meta, "worker_memory")
    if type(read.get("workers")) is not int or read["workers"] < 1:
        return None
    readings = read.get("readings")
    rows: list[Any] = readings[:256] if isinstance(readings, list) else []
    if not all(isinstance(row, list) and len(row) == 2 and all(map(_is_number, row)) for row in rows):
        return None
    texts = {key: text for key in ("dataset", "file", "text") if isinstance(text := read.get(key), str)}
    words = {key: text for key, text in texts.items() if text.isprintable()}
    line, file = read.get("line"), words.get("file", "")
    place = f"{file}:{line}" if type(line) is int and 0 < line < 1 << 30 and is_user_file(file) else ""
    seconds, held = tuple(float(row[0]) for row in rows), tuple(int(row[1]) for row in rows)
    dataset, text = words.get("dataset", "")[:_LONGEST], words.get("text", "")[:_LONGEST] if place else ""
    return WorkersMemory(read["workers"], seconds, held, dataset, place, text)


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < 1e12  # type: ignore[operator]


def _keeper(row: object) -> Keeper | None:
    if not isinstance(row, Mapping) or row.get("kind") not in _KINDS or row.get("holds") not in _HOLDS:
        return None
    if not all(isinstance(row.get(key), str) and row[key].isprintable() for key in _PLAIN):
        return None
    if not all(
        type(row.get(key)) is int and 0 <= row[key] < 1 << 50 for key in ("line", "elements", "bytes", "inside")
    ):
        return None
    if row["of"] not in ("local", "global", "attribute", "") or bool(row["of"]) != bool(row["name"]):
        return None
    return Keeper(
        **{key: row[key][:_LONGEST] for key in _PLAIN - {"file"}},
        file=row["file"],
        **{key: row[key] for key in ("kind", "holds", *_NUMBERS)},
        scalar=row.get("scalar") is True,
        on_gpu=row.get("on_gpu") is True,
    )


# -- memory

_WORK = ("compute", "python", "gpu_wait", "launch")  # what a step makes is made by these


@rule("TP601", "memory-growth", Limits(limit("memory_growth_share"), None))  # of memory, not of time
def memory_growth(facts: Facts, limits: Limits) -> Outcome:
    """Memory grows steadily, step by step: something keeps what each step makes."""
    if facts.of_trace:
        return Unsure("memory_of_trace")
    readings = _of_the_steps(facts)
    if len(readings) < limit("memory_min_readings"):
        return Unsure("memory_few_readings", {"readings": Count(len(readings))})
    # Caches fill and allocators settle in the first steps.
    kept = readings[len(readings) // 4 :]
    resident = np.array([float(h.rss_bytes) for h in kept])
    of_process = _Held([h.at_ns for h in kept], resident, facts.number("memory_limit"), looks(facts.run))
    found = _grows(facts, limits, of_process) or _workers_grow(facts, limits) or _gpu_grows(facts, limits)
    if found is None and "hook_device_memory" in facts.run.tiers:  # it failed
        return Unsure("memory_of_gpu_off", {"why": facts.off("hook_device_memory")})
    return found


def _gpu_grows(facts: Facts, limits: Limits) -> Diagnosis | None:
    """Of the GPU whose allocated memory grows the most."""
    seen = looks(facts.run)
    if seen is not None:
        seen = replace(seen, keepers=tuple(keeper for keeper in seen.keepers if keeper.on_gpu))
    grown = [memory for memory in devices_memory(facts.run) if memory.growth is not None and memory.growth.rise > 0]
    for memory in sorted(grown, key=lambda memory: -memory.per_step):
        at_ns = [reading.at_ns for reading in memory.later]
        held = memory.later_bytes
        above = max(0.0, memory.peak_allocated - held[-1])
        found = _grows(facts, limits, _Held(at_ns, held, float(memory.total), seen, f"GPU {memory.id}", above))
        if found is not None:
            return found
    return None


@dataclass(frozen=True, slots=True)
class _Held:
    """Readings of the process's memory, or of a GPU's, without those of the run's first quarter."""

    at_ns: Sequence[int]
    bytes: Floats
    most: float  # that it may have; 0: not known
    seen: Looks | None
    gpu: str | None = None
    above: float = 0.0  # so much more is needed within a step


def _grows(facts: Facts, limits: Limits, memory: _Held) -> Diagnosis | None:
    at_ns, held, seen = memory.at_ns, memory.bytes, memory.seen
    seconds = (np.array(at_ns) - at_ns[0]) / 1e9
    grows = trend(seconds, held)
    base = max(1.0, float(np.median(held[: max(2, len(held) // 4)])))
    keeper = seen.keepers[0] if seen is not None and seen.keepers else None
    # What slows the steps down as well, as hooks do that pile up, grows ever more slowly.
    goes_on = grows.steady or (keeper is not None and keeper.sure and _still_grows(seconds, held, grows.rise))
    if not goes_on or grows.rise < max(limits.warn * base, limit("memory_growth_bytes")):
        return None
    left = max(0.0, memory.most - memory.above - held[-1]) / grows.per_second
    grown = float(np.median(held[-max(2, len(held) // 4) :])) / base - 1
    more_work = _works_more(facts, at_ns[0], at_ns[-1]) - 1
    variant, sure = _how_sure(facts, keeper, len(held), grown, more_work)
    each = grows.per_second * facts.wall_ns / facts.steps / 1e9
    params: dict[str, Param] = {
        "each": Bytes(each),
        "before": Bytes(held[0]),
        "after": Bytes(held[-1]),
        "seconds": Number(seconds[-1]),
        "minute": Bytes(grows.per_second * 60),
        "readings": Count(len(held)),
        "limit": Bytes(memory.most),
        "on_gpu": memory.gpu,
        "left": Seconds(left) if left and variant == "leak" else None,
        "early": variant == "early",
    }
    if seen is not None and keeper is not None:
        params |= _keeps(seen, keeper, each)
    return Diagnosis(
        variant=variant if keeper is None else _kept_variant(keeper),
        severity="info" if variant != "leak" else "critical" if 0 < left < _seconds(facts) else "warning",
        claim=Claim("", by_device=False),
        params=params,
        place=keeper.place if keeper is not None else "",
        sure=sure,
    )


def _of_the_steps(facts: Facts) -> list[HostReading]:
    """The readings of memory between the first step's start and the last one's end."""
    table = facts.run.steps
    start, end = int(table.start_ns[0]), int(table.start_ns[-1] + table.wall_ns[-1])
    return [h for h in facts.run.host if start <= h.at_ns <= end and h.rss_bytes > 0]


def _seconds(facts: Facts) -> float:
    """From the first step's start to the last one's end."""
    table = facts.run.steps
    return float(table.start_ns[-1] + table.wall_ns[-1] - table.start_ns[0]) / 1e9


def _how_sure(facts: Facts, keeper: Keeper | None, readings: int, grown: float, more_work: float) -> tuple[str, Sure]:
    """Which variant of a growth it is. `grown`, `more_work`: by which part memory and the work of a second rose."""
    count = Count(readings)
    doubt = Said("readings", {"readings": count})
    # What a step makes grows no faster than the work that makes it.
    if keeper is None and more_work >= limit("half_share") * grown:
        return "with_work", Sure(level="low", doubts=(Said("grows_with_work", {"works": Number(more_work + 1)}),))
    if readings >= limit("memory_good_readings") and facts.steps >= limit("critical_min_steps"):
        return "leak", Sure(level="high", doubts=(doubt,))
    if keeper is not None and keeper.sure:
        return "leak", Sure(level="medium", doubts=(doubt,))
    early = Said("grows_early", {"readings": count})
    return "early", Sure(level="low", doubts=(early,))


def _still_grows(seconds: Floats, held: Floats, rise: float) -> bool:
    """Whether the second half of the readings has a notable part of the rise."""
    half = len(held) // 2
    return rise > 0 and trend(seconds[half:], held[half:]).rise >= limit("half_share") * rise / 2


def _workers_grow(facts: Facts, limits: Limits) -> Diagnosis | None:
    """Of readings of the workers that ran to the end, the first quarter left out."""
    seen = workers_memory(facts)
    kept = len(seen.seconds) // 4 if seen is not None else 0
    if seen is None or len(seen.seconds) - kept < limit("memory_min_readings"):
        return None
    seconds, held = np.array(seen.seconds[kept:]), np.array(seen.bytes[kept:], dtype=np.float64)
    grows = trend(seconds, held)
    if not grows.steady or grows.rise < max(limits.warn * held[0], limit("memory_growth_bytes")):
        return None
    readings = Count(len(seconds))
    early = bool(seconds[-1] - seconds[0] < limit("memory_good_readings") - 1)
    doubt = Said("grows_early" if early else "readings", {"readings": readings})
    return Diagnosis(
        variant="workers",
        severity="info" if early else "warning",
        claim=Claim("", by_device=False),
        params={
            "each": Bytes(grows.per_second * facts.wall_ns / facts.steps / 1e9),
            "before": Bytes(held[0]),
            "after": Bytes(held[-1]),
            "seconds": Number(seconds[-1] - seconds[0]),
            "minute": Bytes(grows.per_second * 60),
            "readings": readings,
            "workers": Count(seen.workers),
            "dataset": seen.dataset or None,
            "text": seen.text or None,
            "early": early,
        },
        place=seen.place,
        sure=Sure(level="low" if early else "high", doubts=(doubt,)),
    )


def _kept_variant(keeper: Keeper) -> str:
    """By what is to be done."""
    if keeper.kind == "graph":
        return "kept_sum" if "=" in keeper.text and keeper.argument else "kept_chain"
    if keeper.kind == "container" and keeper.holds in ("graphs", "hooks"):
        return f"kept_{keeper.holds}"
    return {"cache": "kept_cache", "array": "kept_array"}.get(keeper.kind, "kept_elements")


def _keeps(seen: Looks, keeper: Keeper, each: float) -> dict[str, Param]:
    """`each`: bytes that memory grows by in a step."""
    short = keeper.argument and f"{keeper.argument}.{'item' if keeper.scalar else 'detach'}()"
    own = f"self.{keeper.name}" if keeper.of == "attribute" else keeper.name
    return {
        "keeper": keeper.said,
        "thing": keeper.thing,
        "kept": Bytes(min(each, keeper.known_bytes / max(1, seen.steps) or each)),
        "held": keeper.held,
        "more": Count(keeper.elements) if keeper.elements and keeper.kind != "array" else None,
        "in_steps": Count(seen.steps),
        "apart": Number(seen.seconds),
        "own": own or keeper.type,
        "function": keeper.function,
        "scalar": keeper.scalar,
        "instead": _replaced(keeper.text, keeper.argument, short) if short else None,
        "also": tuple({"what": other.said, "held": other.held} for other in seen.keepers[1:]),
        "objects": Count(seen.objects),
        "pauses": Names(f"{ms:.0f}" for ms in seen.pauses_ms),
    }


def _replaced(text: str, argument: str, by: str) -> str:
    """The last of the text that is the argument."""
    head, _, tail = text.rpartition(argument)
    return f"{head}{by}{tail}"


def _works_more(facts: Facts, start_ns: int, end_ns: int) -> float:
    """How many times as much work (waits left out) the median step of the last quarter of this time is, as of the
    first; 1 where a quarter has no step."""
    table = facts.run.steps
    work = table.causes_ns[:, [CAUSES.index(cause) for cause in _WORK]].sum(axis=1) / table.count
    quarter = (end_ns - start_ns) / 4
    early = work[(table.start_ns >= start_ns) & (table.start_ns < start_ns + quarter)]
    late = work[(table.start_ns >= end_ns - quarter) & (table.start_ns < end_ns)]
    before = float(np.median(early)) if len(early) else 0.0
    return float(np.median(late)) / before if len(late) and before else 1.0


_OLD = 3  # files before this version of the schema have no page faults
_NO_TRIM = 1 << 40  # bytes: more than any heap
_MOST_MMAP = 32 << 20  # bytes: the most that man mallopt allows for M_MMAP_THRESHOLD
_LEAST_PAD = 64 << 20


@dataclass(frozen=True, slots=True)
class _Churn:
    """What the training thread takes from the kernel, in the median second."""

    seconds: int  # that were read
    page_bytes: int
    faults_per_s: float  # but not those of memory that the process keeps from then on
    kernel_share: float  # of the training thread's time: all that the kernel does for it
    returned_bytes: float
    longest_s: float  # the time between two readings


@rule("TP603", "heap-churn", WARNS)
def heap_churn(facts: Facts, limits: Limits) -> Outcome:
    if facts.run.feeds_device:
        return None  # what the host loses is no loss while the device has work
    if facts.of_trace:
        return Unsure("heap_of_trace")
    seen = _churn(facts)
    if isinstance(seen, Unsure):
        return seen
    compute = facts.cells("compute")
    work = sum(compute.values())
    if facts.loop_share(work) < limit("half_share"):
        return None
    page_ns = facts.number("page_fault_ns")
    cost = min(round(min(seen.faults_per_s * page_ns / 1e9, seen.kernel_share) * facts.wall_ns), work)
    severity = facts.grade(cost, limits)
    if severity is None:
        return None
    step_s = facts.wall_ns / facts.steps / 1e9
    faults = seen.faults_per_s * step_s
    taken = faults * seen.page_bytes
    if seen.returned_bytes < limit("returned_share") * taken * min(1.0, seen.longest_s / step_s):
        return Unsure("heap_not_returned", {"faults": Count(round(faults))})
    pad = max(_LEAST_PAD, 1 << (round(taken) - 1).bit_length())
    settings = f"MALLOC_TRIM_THRESHOLD_={_NO_TRIM} MALLOC_MMAP_THRESHOLD_={_MOST_MMAP} MALLOC_TOP_PAD_={pad}"
    return Diagnosis(
        variant="returned",
        severity=severity,
        claim=Claim("compute", {cell: ns * cost // work for cell, ns in compute.items()}),
        params={
            "pages": Count(round(faults)),
            "taken": Bytes(taken),
            "page_us": Number(page_ns / 1000),
            "kernel": Share(seen.kernel_share),
            "returned": Bytes(seen.returned_bytes),
            "seconds": Count(seen.seconds),
            "pad": pad,
            "command": facts.command(settings),
        },
        sure=Sure(tier=Said("by_pages")),
    )


def _churn(facts: Facts) -> _Churn | Unsure:
    if facts.run.schema_version < _OLD:
        return Unsure("heap_old_file")
    page_bytes = int(facts.number("page_bytes"))
    if not facts.number("page_fault_ns") or not page_bytes:
        return Unsure("heap_no_cost")
    table = facts.run.steps
    start = int(table.start_ns[0]) + round(limit("heap_warm_up_s") * 1e9)
    end = int(table.start_ns[-1] + table.wall_ns[-1])
    within = [h for h in facts.run.host if start <= h.at_ns <= end]
    # After a change of the training thread its count starts anew.
    pairs = [(a, b) for a, b in pairwise(within) if _known(a) and _known(b) and b.faults - a.faults >= 0]
    if len(pairs) < limit("heap_min_seconds"):
        if len(within) > limit("heap_min_seconds") and not any(map(_known, within)):
            return Unsure("heap_no_faults")
        return Unsure("heap_few_seconds", {"seconds": Count(len(pairs))})
    kept = _kept_pages([h for h in within if _known(h)], page_bytes)
    seconds = [(b.at_ns - a.at_ns) / 1e9 for a, b in pairs]
    return _Churn(
        seconds=len(pairs),
        page_bytes=page_bytes,
        faults_per_s=median(
            max(0.0, b.faults - a.faults - (kept[b.at_ns] - kept[a.at_ns])) / s
            for (a, b), s in zip(pairs, seconds, strict=True)
        ),
        kernel_share=sum(max(0, b.system_ns - a.system_ns) for a, b in pairs) / 1e9 / sum(seconds),
        returned_bytes=median(b.returned_bytes for _, b in pairs),
        longest_s=max(seconds),
    )


def _kept_pages(readings: Sequence[HostReading], page_bytes: int) -> dict[int, float]:
    """By the time of a reading: what the process had then and in all readings after it."""
    kept: dict[int, float] = {}
    least = math.inf
    for reading in reversed(readings):
        least = min(least, reading.rss_bytes / page_bytes)
        kept[reading.at_ns] = least
    return kept


def _known(reading: HostReading) -> bool:
    return reading.faults >= 0 and reading.returned_bytes >= 0 and reading.rss_bytes >= 0
