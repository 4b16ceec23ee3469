"""The charts of a report: each turns a panel's numbers into a picture and the words that go with it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from trainperf.ranks import Rank, Ranks
from trainperf.report.details import Details
from trainperf.report.details.bins import Bins
from trainperf.report.details.devices import DevicePanel
from trainperf.report.details.distribution import Distribution
from trainperf.report.details.flames import Flame
from trainperf.report.details.host import CpuLane
from trainperf.report.details.loader import LoaderPanel
from trainperf.report.details.worst import Piece, WorstStep
from trainperf.report.model import ReportModel, phase_words
from trainperf.report.svg import bars, distribution, flame, heat, spark, stack, steps
from trainperf.report.svg.base import duration, num, ticks
from trainperf.report.svg.palette import CAUSE_LOOKS, DEVICE_LOOKS, OTHERS, PHASE_LOOKS, Look, look

_HOVERS = 60
_MARKED = 3


@dataclass(frozen=True, slots=True)
class Legend:
    name: str
    look: Look
    ms: float
    share: float
    words: str


def mean_step(model: ReportModel) -> str:
    """The mean step as one bar, in the order of its legend."""
    shown = model.shown_causes
    parts = [
        bars.Part(p.name, look(p.name), p.ns, f"{p.name}: {duration(p.ms_per_step)} per step, {p.share:.1%}")
        for p in shown
    ]
    words = ", ".join(f"{p.name} {p.share:.0%}" for p in shown[:6])
    return bars.bar(parts, whole=model.wall_ns, label="The mean step by cause", description=words, height=44)


def mean_phases(model: ReportModel) -> str:
    """The same by what the loop was doing."""
    order = list(PHASE_LOOKS)
    shown = sorted((p for p in model.phases if p.ns > 0), key=lambda p: order.index(p.name))
    names = {p.name: phase_words(model, p.name) for p in shown}
    parts = [
        bars.Part(
            names[p.name].partition(" (")[0],
            PHASE_LOOKS[p.name],
            p.ns,
            f"{names[p.name]}: {duration(p.ms_per_step)} per step, {p.share:.1%}",
        )
        for p in shown
    ]
    words = ", ".join(f"{names[p.name]} {p.share:.0%}" for p in sorted(shown, key=lambda p: -p.ns)[:6])
    return bars.bar(parts, whole=model.wall_ns, label="The mean step by phase", description=words, height=26)


def legend(model: ReportModel) -> list[Legend]:
    """Costliest first; what is under half a percent is one entry, and none where that would say 0.0 %."""
    parts = model.shown_causes
    shown = [p for p in parts if p.share >= 0.005]
    rest = parts[len(shown) :] if sum(p.share for p in parts[len(shown) :]) >= 0.0005 else []
    out = [Legend(p.name, look(p.name), p.ms_per_step, p.share, look(p.name).words) for p in shown]
    if len(rest) == 1:
        p = rest[0]
        out.append(Legend(p.name, look(p.name), p.ms_per_step, p.share, look(p.name).words))
    elif rest:
        names = ", ".join(p.name for p in rest)
        out.append(
            Legend(f"{len(rest)} others", OTHERS, sum(p.ms_per_step for p in rest), sum(p.share for p in rest), names)
        )
    return out


def step_timeline(details: Details, model: ReportModel) -> stack.Chart | None:
    b = details.bins
    if b is None:
        return None
    levels = details.trend.levels
    lines = [stack.Level(b.edge(v.first), b.edge(v.last) + (1 if b.each_step else 0), v.median_ms) for v in levels]
    return stack.timeline(
        [(name or "others", look(name) if name else OTHERS, values) for name, values in b.layers],
        top_ms=b.top_ms,
        highest=None if b.each_step else b.max_ms,
        levels=lines if len(lines) > 1 else (),
        marks=_worst_marks(details, b),
        hover=_hovers(b),
        label="Step time by cause, over the run",
        description=" ".join(details.trend.sentences),
    )


def _worst_marks(details: Details, b: Bins) -> list[stack.Mark]:
    """The longest steps, as far as they stand out; those whose words would lie on another's have none."""
    out: list[stack.Mark] = []
    longest = details.worst[0].wall_ms if details.worst else 0.0
    for w in details.worst:
        if w.wall_ms < min(b.top_ms, 0.9 * longest):
            break
        mark = stack.Mark(b.at(w.index), w.wall_ms, f"step {w.index:,}: {duration(w.wall_ms)}", f"step-{w.index}")
        first, end = mark.extent(len(b.steps))
        near = [m for m in out if (other := m.extent(len(b.steps)))[0] < end and first < other[1]]
        apart = all(abs(min(m.ms, b.top_ms) - min(mark.ms, b.top_ms)) > 0.09 * b.top_ms for m in near)
        if w.why == "worst" and apart and len(out) < _MARKED:
            out.append(mark)
    return out


def _hovers(b: Bins) -> list[tuple[int, int, str]]:
    n = len(b.steps)
    size = max(1, -(-n // _HOVERS))
    out = []
    for first in range(0, n, size):
        end = min(n, first + size)
        weights = b.steps[first:end]
        count = int(weights.sum())
        low, high = int(b.first[first]), int(b.first[end - 1] + b.steps[end - 1] - 1)
        mean = float((b.mean_ms[first:end] * weights).sum() / count)
        parts = sorted(
            ((float((values[first:end] * weights).sum() / count), name or "others") for name, values in b.layers),
            reverse=True,
        )
        causes = ", ".join(f"{name} {num(ms, 1 if ms >= 1 else 2)}" for ms, name in parts[:4] if ms >= 0.01 * mean)
        steps_ = f"step {low:,}" if low == high else f"steps {low:,} to {high:,}"
        out.append((first, end, f"{steps_}: {duration(mean)} ({causes})"))
    return out


def timeline_table(b: Bins, parts: int = 12) -> tuple[list[str], list[tuple[str, str, str, list[str]]]]:
    """The same in numbers: headings of the causes, and rows of (steps, mean, longest, ms by cause)."""
    n = len(b.steps)
    names = [name or "others" for name, _ in b.layers]
    rows = []
    edges = sorted({round(i * n / min(parts, n)) for i in range(min(parts, n) + 1)})
    for first, end in itertools.pairwise(edges):
        weights = b.steps[first:end]
        count = int(weights.sum())
        low, high = int(b.first[first]), int(b.first[end - 1] + b.steps[end - 1] - 1)
        rows.append(
            (
                f"{low:,} – {high:,}" if low != high else f"{low:,}",
                duration(float((b.mean_ms[first:end] * weights).sum() / count)),
                duration(float(b.max_ms[first:end].max())),
                [num(float((values[first:end] * weights).sum() / count), 2) for _, values in b.layers],
            )
        )
    return names, rows


@dataclass(frozen=True, slots=True)
class Histogram:
    svg: str
    ticks: tuple[tuple[float, str], ...]  # share of the width, label
    quantiles: tuple[tuple[str, float, str], ...]  # name, share of the width, label
    beyond: str
    tallest: tuple[float, str]  # the highest bar: share of the height, steps


def histogram(d: Distribution) -> Histogram:
    # The last twentieth of the width is for what lies beyond the axis.
    room = 0.94 if d.beyond else 1.0
    span = d.high_ms - d.low_ms

    def at(ms: float) -> float:
        return room * min(1.0, max(0.0, (ms - d.low_ms) / span))

    shown = [
        distribution.Bar(at(a), at(b), n, f"{num(a)} to {num(b)} ms: {n:,} step{'s' if n != 1 else ''}")
        for a, b, n in d.bars
    ]
    beyond = ""
    if d.beyond:
        beyond = f"{d.beyond:,} longer, up to {duration(d.longest_ms)}"
        shown.append(distribution.Bar(room + 0.02, 1.0, d.beyond, beyond, beyond=True))
    marks = tuple((name, at(ms), duration(ms)) for name, ms in d.quantiles)
    svg = distribution.histogram(
        shown,
        [(name, x) for name, x, _ in marks],
        description="; ".join(f"{name} {text}" for name, _, text in marks) + (f"; {beyond}" if beyond else ""),
    )
    axis = tuple((at(t), num(t)) for t in ticks(d.high_ms, 6, low=d.low_ms))
    return Histogram(svg, axis, marks, beyond, (distribution.TALLEST, f"{max(bar.count for bar in shown):,}"))


def worst_step(step: WorstStep) -> str:
    lanes = [steps.Lane("phases", [_phase(p) for p in step.phases])]
    if step.waits:
        lanes.append(steps.Lane("waits", [_wait(p) for p in step.waits]))
    lanes += [steps.Lane(name, [_device(p) for p in pieces]) for name, pieces in step.devices]
    causes = ", ".join(f"{name} {duration(ms)}" for name, ms, _ in step.causes[:5])
    return steps.timeline(lanes, label=f"Step {step.index}, {duration(step.wall_ms)}", description=f"Causes: {causes}")


def phase_sums(step: WorstStep) -> list[tuple[str, float]]:
    """In the order of the vocabulary."""
    sums: dict[str, float] = {}
    for piece in step.phases:
        sums[piece.what] = sums.get(piece.what, 0.0) + piece.ms
    return [(name, sums[name]) for name in PHASE_LOOKS if name in sums]


def worst_lanes(step: WorstStep) -> list[str]:
    only_waits = all(p.what in ("gil_wait", "stop_the_world", "object_lock", "gc") for p in step.waits)
    second = [] if not step.waits else ["waits" if only_waits else "cause"]
    return ["phase", *second, *(name for name, _ in step.devices)]


def worst_bar(step: WorstStep, longest_ms: float) -> str:
    parts = [bars.Part(name, look(name), ms, f"{name}: {duration(ms)}, {share:.0%}") for name, ms, share in step.causes]
    words = ", ".join(f"{name} {share:.0%}" for name, _, share in step.causes[:4])
    return bars.bar(
        parts, whole=longest_ms, label=f"Step {step.index} by cause", description=words, height=20, wide=360
    )


def _phase(p: Piece) -> steps.Piece:
    found = PHASE_LOOKS.get(p.what, OTHERS)
    return steps.Piece(p.start, p.end, p.what, found, f"{p.what}: {duration(p.ms)}")


def _wait(p: Piece) -> steps.Piece:
    held = {
        "gil_wait": f"waits for the GIL, held by {p.who}",
        "stop_the_world": f"all threads are stopped by {p.who}",
    }.get(p.what, p.what)
    return steps.Piece(p.start, p.end, p.who or p.what, look(p.what), f"{held}: {duration(p.ms)}")


def _device(p: Piece) -> steps.Piece:
    busy = DEVICE_LOOKS.get(p.what)
    if busy is not None:
        return steps.Piece(p.start, p.end, p.who or p.what, busy, f"{p.who or p.what}: {duration(p.ms)}")
    return steps.Piece(p.start, p.end, f"idle: {p.what}", look(p.what), f"idle, because of {p.what}: {duration(p.ms)}")


def device_bar(panel: DevicePanel) -> str:
    busy = bars.Part(
        "busy", DEVICE_LOOKS["kernel"], panel.busy_ms, f"busy: {duration(panel.busy_ms)}, {panel.busy_share:.0%}"
    )
    idle = [
        bars.Part(f"idle: {cause}", look(cause), ms, f"idle because of {cause}: {duration(ms)}, {share:.1%}")
        for cause, ms, share in panel.idle
    ]
    words = f"busy {panel.busy_share:.0%}, " + ", ".join(f"idle through {c} {s:.0%}" for c, _, s in panel.idle[:4])
    return bars.bar(
        [busy, *idle],
        whole=panel.busy_ms + panel.idle_ms,
        label=f"{panel.name}, per step",
        description=words,
        height=36,
    )


def ready_bars(panel: LoaderPanel) -> str:
    """How many batches were ready when one was asked for."""
    whole = sum(n for _, n, _ in panel.ready)
    looks = (CAUSE_LOOKS["data_wait"], CAUSE_LOOKS["compute"])
    parts = [
        bars.Part(
            "none ready" if ready == 0 else ("64 or more" if ready == 64 else str(ready)),
            looks[0] if ready == 0 else looks[1],
            n,
            f"{'none' if ready == 0 else ready} ready: {n:,} fetches, {duration(mean)} each",
        )
        for ready, n, mean in panel.ready
    ]
    words = ", ".join(f"{r} ready at {n / whole:.0%}" for r, n, _ in panel.ready[:5]) if whole else ""
    return bars.bar(
        parts, whole=whole, label="Batches ready when one was asked for", description=words, height=26, wide=480
    )


def fetch_bar(panel: LoaderPanel) -> str:
    """What the wait for batches was made of."""
    cpu = "reading and collating" if panel.in_process else "unpacking"
    parts = [
        bars.Part("blocked", CAUSE_LOOKS["blocked_io"], panel.blocked_ms, f"blocked: {duration(panel.blocked_ms)}"),
        bars.Part(cpu, CAUSE_LOOKS["compute"], panel.cpu_ms, f"{cpu}, on the CPU: {duration(panel.cpu_ms)}"),
        bars.Part("GIL", CAUSE_LOOKS["gil_wait"], panel.gil_ms, f"waiting for the GIL: {duration(panel.gil_ms)}"),
    ]
    words = ", ".join(p.text for p in parts)
    whole = panel.blocked_ms + panel.cpu_ms + panel.gil_ms
    return bars.bar(parts, whole=whole, label="What fetching took", description=words, height=26, wide=480)


def rank_bar(rank: Rank, longest_ms: float) -> str:
    order = list(CAUSE_LOOKS)
    parts = [
        bars.Part(name, look(name), ms, f"{name}: {duration(ms)} per step")
        for name, ms in sorted(rank.causes, key=lambda c: order.index(c[0]))
    ]
    words = ", ".join(p.text for p in sorted(parts, key=lambda p: -p.value)[:4])
    return bars.bar(parts, whole=longest_ms, label=f"Rank {rank.rank}", description=words, height=24, wide=420)


def longest_rank(found: Ranks) -> float:
    return max(r.mean_ms for r in found.ranks)


def flame_graph(found: Flame, label: str) -> str:
    words = "; ".join(f.text for f in sorted(found.frames, key=lambda f: (f.depth, -f.share)) if f.depth == 1)
    return flame.flame(found.frames, label=label, description=words) + flame.callers(found.callers)


def sparkline(values: Sequence[float], top: float, name: str) -> str:
    words = f"from {num(values[0])} to {num(values[-1])}, highest {num(max(values))}" if values else ""
    return spark.spark(values, top=top, label=name, description=words)


def cpu_lane(lane: CpuLane) -> str:
    of = [f"CPU {number} {share:.0%}" for number, share in zip(lane.numbers, lane.shares.mean(axis=1), strict=True)]
    return heat.heat(lane.shares, label="How busy each CPU was over the run", description=f"on average {', '.join(of)}")
