"""What every view shows, made once from a run and its findings."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trainperf.findings import engine
from trainperf.findings.device_memory import DeviceMemory, devices_memory
from trainperf.findings.model import Abstained, Finding, Standing
from trainperf.findings.rules.growth import looks
from trainperf.findings.text import plural, size
from trainperf.findings.thresholds import limit
from trainperf.findings.verdict import Unsplit
from trainperf.runfile.schema import CAUSES, PHASES

if TYPE_CHECKING:
    from trainperf.findings.triage import Triage
    from trainperf.run import Run
    from trainperf.runfile import Device, Traced

LOOKS_LESS: Final = "trainperf looks less often"  # begins a note of the core's (collect/gil_probes.cc)
SAMPLES_LESS: Final = "trainperf samples less often"  # as it is shown
# Beside a verdict that says no more than that the steps compute.
COMPUTE: Final = "torch.profiler shows which operators compute: whether these could be faster is not judged here"
_CALMING = re.compile(rf"{LOOKS_LESS}, to stay below (\S+ %): in one second it cost more; .*")
_SAMPLES_LESS_NOTE = (
    rf"{SAMPLES_LESS} to keep its own cost below \1: no action needed; times stay exact, places are coarser"
)


@dataclass(frozen=True, slots=True)
class Part:
    """A cause or a phase of the mean step."""

    name: str
    ns: int  # of the whole run
    ms_per_step: float
    share: float  # 0 .. 1


@dataclass(frozen=True, slots=True)
class DevicePart:
    """How a device spent the steps."""

    id: int
    name: str
    busy_ns: int  # of the whole run
    idle_ns: int
    busy_share: float  # of the steps' wall time
    idle_ms_per_step: float
    idle_causes: tuple[Part, ...]  # all, in the order of the vocabulary; their ns sum to idle_ns, shares are of that
    incomplete: int  # steps of which records were lost
    traced: Traced | None  # what all of this is an estimate from; None: every step was traced


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportModel:
    path: str
    trainperf: str
    started: str
    host: str
    python: str
    torch: str
    ended: str
    still_runs: bool
    exception: str  # the type's name, when that ended the run; "" when it is not known
    name: str
    verdict: engine.Verdict
    triage: Triage | None  # None: too little was measured
    findings: tuple[Finding, ...]
    abstained: tuple[Abstained, ...]
    steps: int
    incomplete: int
    wall_ns: int
    mean_ms: float
    median_ms: float | None  # warm-up steps left out; None: no other step was seen
    p95_ms: float | None
    causes: tuple[Part, ...]  # all, in the order of the vocabulary; their ns sum to wall_ns
    shown_causes: tuple[Part, ...]  # those that took time, the costliest first; two that were not separated are one
    phases: tuple[Part, ...]
    devices: tuple[DevicePart, ...]  # () when none was seen
    device_memory: tuple[DeviceMemory, ...]  # () when PyTorch's allocator was not asked
    source: str = "watch"  # or "trace": trainperf did not run beside it
    tiers: Mapping[str, str]  # probe -> "exact", "off: why", "procfs: why not exact"
    overhead_ns: int  # of the whole watch
    overhead_ms_per_step: float  # a mean step's part of it
    overhead_share: float  # of the whole watch
    dropped: Mapping[str, int]
    notes: tuple[str, ...]
    urgent_notes: int  # the first so many are never left out


def phase_words(model: ReportModel, phase: str) -> str:
    """A phase as views name it: the stretch that ends with a backward begins before the model is called, and without a
    backward it is all that lies between two fetches."""
    if phase != "forward":
        return phase
    trains = any(p.ns for p in model.phases if p.name in ("backward", "optimizer"))
    return "forward (with what runs before it)" if trains else "between fetches"


def build(run: Run, *, notes: Sequence[str] = (), standing: Standing = "") -> ReportModel:
    """`notes` stand before the run's own. `standing`: of the run among the ranks of its job.

    Raises RunFileError when the file turns out to be damaged.
    """
    found = engine.find(run, standing=standing) if standing else run.judged
    steps, wall = int(run.step_count), int(run.wall_ns)
    overhead = sum(run.overhead_ns.values())
    device_memory = devices_memory(run)
    urgent = (*notes, *_out_of_memory(run, device_memory), *_slow_modes(run, {f.slug for f in found.findings}))
    # It is of the whole watch, so its share is too: model building and what comes after the loop were watched as well.
    overhead_share = overhead / run.watched_ns if run.watched_ns else 0.0
    mean_ms = wall / steps / 1e6 if steps else 0.0

    def part(name: str, ns: int) -> Part:
        return Part(name, ns, ns / steps / 1e6 if steps else 0.0, ns / wall if wall else 0.0)

    causes = tuple(part(c, run.cause_ns(c)) for c in CAUSES)
    return ReportModel(
        path=str(run.path),
        trainperf=run.meta.get("trainperf", ""),
        started=run.meta.get("started", ""),
        host=run.meta.get("host", ""),
        python=run.meta.get("python", ""),
        torch=run.meta.get("torch", ""),
        ended=run.ended,
        still_runs=run.still_runs,
        exception=run.meta.get("exception", "") if run.ended == "exception" else "",
        name=run.meta.get("name", ""),
        verdict=found.verdict,
        triage=found.triage,
        findings=found.findings,
        abstained=found.abstained,
        steps=steps,
        incomplete=int(run.incomplete),
        wall_ns=wall,
        mean_ms=mean_ms,
        median_ms=_quantile(run, 0.5) if steps else None,
        p95_ms=_quantile(run, 0.95) if steps else None,
        causes=causes,
        shown_causes=_shown(causes, found.unsplit),
        phases=tuple(part(p, run.phase_ns(p)) for p in PHASES),
        source=run.meta.get("source", "watch"),
        devices=tuple(_device(device, steps, wall) for device in run.devices),
        device_memory=device_memory,
        tiers={t.probe: f"{t.tier}: {t.why}" if t.why else t.tier for t in run.tiers.values()},
        overhead_ns=overhead,
        overhead_ms_per_step=overhead_share * mean_ms,
        overhead_share=overhead_share,
        dropped=dict(run.dropped),
        notes=(*urgent, *_unseen(run), *_stopped(run), *_told(run), *_before(run), *_told(run, calming=True)),
        urgent_notes=len(urgent),
    )


def _shown(causes: Sequence[Part], unsplit: Unsplit | None) -> tuple[Part, ...]:
    shown = [p for p in causes if p.ns > 0]
    if unsplit is not None:
        both = [p for p in shown if p.name in unsplit.causes]
        sums = sum(p.ns for p in both), sum(p.ms_per_step for p in both), sum(p.share for p in both)
        one = Part(unsplit.name, *sums)
        shown = [p for p in shown if p not in both] + [one]
    return tuple(sorted(shown, key=lambda p: -p.ns))


def _told(run: Run, *, calming: bool = False) -> tuple[str, ...]:
    """The run's own notes: those to know of, or those after which nothing needs to be done."""
    told = (note for note in run.notes if note.startswith(LOOKS_LESS) == calming)
    return tuple(_CALMING.sub(_SAMPLES_LESS_NOTE, note) for note in told)


def _unseen(run: Run) -> tuple[str, ...]:
    if run.step_count or not run.meta.get("torch") or run.ended == "killed":
        return ()
    return ("torch.func.grad and torch.autograd.grad(create_graph=True) are not seen",)


def _before(run: Run) -> tuple[str, ...]:
    """What the steps do not show: a long time before the first, and how much of it was compiling."""
    lead = run.lead_ns
    if not run.step_count or lead < limit("lead_s") * 1e9 or lead < limit("lead_share") * run.watched_ns:
        return ()
    # Spans of compilations outside of steps: all of the lead, as the end of a run seldom compiles.
    compiling = sum(min(s.end_ns - s.start_ns, lead) for s in run.spans("compile") if s.step < 0)
    of_it = f", {compiling / 1e9:,.1f} s of it compiling" if compiling >= 0.05e9 else ""
    told = f"{lead / 1e9:,.1f} s passed before the first step{of_it}: no figure here includes them"
    # Nothing marks where the body of a plain loop begins.
    plain = not run.loaders and not {"framework", "source"} & run.meta.keys()
    if plain and run.step_count < limit("critical_min_steps"):
        told += "; without a DataLoader that step begins at its backward: what its body did before is in that time, and"
        told += f" missing from the means of {plural(run.step_count, 'step')}"
    return (told,)


def _slow_modes(run: Run, found: set[str]) -> tuple[str, ...]:
    told = []
    if run.anomaly_percent and "debug-mode" not in found:
        told.append(
            f"anomaly detection was on for {run.anomaly_percent} % of the time: it slows forward and backward; "
            "turn it off"
        )
    if run.profiled_percent >= 100 * limit("warn_share"):
        told.append(
            f"PyTorch's profiler was on for {run.profiled_percent} % of the time: it slows every operation, and the "
            "times here include it; turn it off"
        )
    return tuple(told)


def _out_of_memory(run: Run, memories: Sequence[DeviceMemory]) -> tuple[str, ...]:
    """What there was of the GPU whose memory ended the run, and what kept some of it."""
    if run.ended != "exception" or run.meta.get("exception") != "OutOfMemoryError" or not memories:
        return ()
    full = max(memories, key=lambda memory: (memory.last.ooms, memory.last.allocated))
    seen = looks(run)
    texts = [keeper.text for keeper in seen.keepers if keeper.on_gpu and keeper.text] if seen is not None else []
    kept = f"; `{texts[0]}` keeps tensors there" if texts else ""
    had = f"{size(full.last.allocated)} allocated, {size(full.last.reserved)} reserved"
    of = f" of {size(full.total)}" if full.total else ""
    most = f"at most {size(full.peak_allocated)} and {size(full.peak_reserved)}"
    return (f"out of GPU memory: at the end GPU {full.id} had {had}{of} ({most}){kept}",)


def _stopped(run: Run) -> tuple[str, ...]:
    if not run.stopped_ns:
        return ()
    how = "Ctrl-Z, a debugger, a paused container"
    return (f"the whole process was stopped for {run.stopped_ns / 1e9:,.1f} s ({how}): counted as descheduled",)


def traced_text(traced: Traced, steps: int) -> str:
    """What a device's figures rest on: "from 700 of 12,000 steps: idle 61% to 65% (95% interval)"."""
    text = f"from {traced.steps:,} of {steps:,} steps"
    if math.isnan(traced.idle_low):
        return text
    return f"{text}: idle {traced.idle_low:.0%} to {traced.idle_high:.0%} of the time (95% interval)"


def _device(device: Device, steps: int, wall: int) -> DevicePart:
    totals = device.totals
    idle = totals.idle_ns

    def part(cause: str, ns: int) -> Part:
        return Part(cause, ns, ns / steps / 1e6 if steps else 0.0, ns / idle if idle else 0.0)

    return DevicePart(
        id=device.id,
        name=device.name,
        busy_ns=totals.busy_ns,
        idle_ns=idle,
        busy_share=totals.busy_ns / wall if wall else 0.0,
        idle_ms_per_step=idle / steps / 1e6 if steps else 0.0,
        idle_causes=tuple(part(cause, totals.idle_causes_ns[cause]) for cause in CAUSES),
        incomplete=totals.incomplete,
        traced=device.traced,
    )


def _quantile(run: Run, q: float) -> float | None:
    value = run.wall_ms_quantile(q)
    return None if math.isnan(value) else value
