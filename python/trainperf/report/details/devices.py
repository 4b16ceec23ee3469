"""The devices: how busy, and when idle, for which cause of the host's; the costliest kernels, copies and calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trainperf.findings import frames
from trainperf.findings.gpu import short_kernel
from trainperf.report.model import traced_text
from trainperf.runfile.device_estimate import scaled

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.run import Run

KERNELS: Final = 12
_COPIES: Final = 30
_DEVICES: Final = 16
_KINDS: Final = {"tensor_core": "tensor cores", "no_tensor_core": "no tensor cores", "collective": "collective"}
_BLOCKING: Final = 8


@dataclass(frozen=True, slots=True)
class KernelRow:
    name: str  # short
    full_name: str
    kind: str
    eligible: bool  # could have used tensor cores
    count: int
    ms: float
    share: float  # of the device's busy time
    max_ms: float
    mean_us: float


@dataclass(frozen=True, slots=True)
class CopyRow:
    what: str  # "h2d, pageable -> device"
    count: int
    bytes: int
    ms: float
    exposed_ms: float
    pageable: bool


@dataclass(frozen=True, slots=True)
class CallRow:
    call: str
    thread: str
    count: int
    failed: int
    ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class LineRow:
    """A line of the user's from which a call was made (sampled)."""

    call: str
    line: str
    ms: float
    samples: int


@dataclass(frozen=True, slots=True)
class DevicePanel:
    id: int
    name: str
    busy_ms: float  # per step
    idle_ms: float
    busy_share: float
    idle: tuple[tuple[str, float, float], ...]  # cause, ms per step, share of the device's time; costliest first
    facts: tuple[tuple[str, str], ...]  # word, value
    kernels: tuple[KernelRow, ...]
    kernels_left_out: int
    copies: tuple[CopyRow, ...]
    copies_left_out: int
    incomplete: bool
    estimate: str  # "from 700 of 12,000 steps: ..."; "" where all were traced


@dataclass(frozen=True, slots=True)
class Devices:
    panels: tuple[DevicePanel, ...]  # the least busy, by their numbers
    left_out: int
    calls: tuple[CallRow, ...]
    lines: tuple[LineRow, ...]
    idle_holders: tuple[tuple[str, str, float], ...]  # holder of the GIL, place, ms that a device idled for it


def devices(run: Run, facts: Facts) -> Devices | None:
    """None where no device was seen."""
    if not run.devices:
        return None
    steps = max(1, facts.steps)
    panels = []
    idlest = sorted(run.devices, key=lambda d: -d.totals.idle_ns)[:_DEVICES]
    for device in sorted(idlest, key=lambda d: d.id):
        t = device.totals
        whole = t.busy_ns + t.idle_ns
        idle = sorted(
            ((c, ns / steps / 1e6, ns / whole) for c, ns in t.idle_causes_ns.items() if ns > 0 and whole),
            key=lambda i: -i[1],
        )
        kernels = scaled(run.kernels(device.id), device.scale)
        copies = scaled(run.copies(device.id), device.scale)
        panels.append(
            DevicePanel(
                id=device.id,
                name=device.name or f"device {device.id}",
                busy_ms=t.busy_ns / steps / 1e6,
                idle_ms=t.idle_ns / steps / 1e6,
                busy_share=t.busy_ns / whole if whole else 0.0,
                idle=tuple(idle),
                facts=_facts(t, steps),
                kernels=tuple(
                    KernelRow(
                        name=short_kernel(k.name) or k.name,
                        full_name=k.name,
                        kind=_KINDS.get(k.kind, ""),
                        eligible=k.eligible,
                        count=k.count,
                        ms=k.ns / 1e6,
                        share=k.ns / t.busy_ns if t.busy_ns else 0.0,
                        max_ms=k.max_ns / 1e6,
                        mean_us=k.ns / k.count / 1e3 if k.count else 0.0,
                    )
                    for k in kernels[:KERNELS]
                ),
                kernels_left_out=max(0, len(kernels) - KERNELS),
                copies=tuple(
                    CopyRow(
                        what=f"{c.direction}, {c.src} to {c.dst}",
                        count=c.count,
                        bytes=c.bytes,
                        ms=c.ns / 1e6,
                        exposed_ms=c.exposed_ns / 1e6,
                        pageable="pageable" in (c.src, c.dst),
                    )
                    for c in copies[:_COPIES]
                ),
                copies_left_out=max(0, len(copies) - _COPIES),
                incomplete=bool(t.incomplete),
                estimate=traced_text(device.traced, facts.steps) if device.traced is not None else "",
            )
        )
    left_out = len(run.devices) - len(panels)
    return Devices(tuple(panels), left_out, _calls(run, facts), _lines(run, facts), _idle_holders(run, facts))


def _facts(t: object, steps: int) -> tuple[tuple[str, str], ...]:
    """What the totals say besides; a field that is 0 says nothing."""
    from trainperf.report.svg.base import duration, num

    def of(name: str) -> float:
        return float(getattr(t, name, 0) or 0)

    rows = [
        ("kernels a step", f"{of('kernels') / steps:,.0f}" if of("kernels") else ""),
        ("launches a step", f"{of('launches') / steps:,.0f}" if of("launches") else ""),
        ("tiny kernels", f"{of('tiny_kernels') / of('kernels'):.0%}" if of("tiny_kernels") and of("kernels") else ""),
        ("first kernel", f"{duration(of('first_kernel_ns') / 1e6)} into the step" if of("first_kernel_ns") else ""),
        ("queue at a step's end", f"{num(of('queue_depth'), 1)} kernels" if of("queue_depth") else ""),
        ("launched ahead by", f"{duration(of('lead_ns_median') / 1e6)} (median)" if of("lead_ns_median") else ""),
        ("exposed copies", f"{duration(of('exposed_copy_ns') / steps / 1e6)} a step" if of("exposed_copy_ns") else ""),
        (
            "exposed collectives",
            f"{duration(of('exposed_collective_ns') / steps / 1e6)} a step" if of("exposed_collective_ns") else "",
        ),
        ("idle for a cause of the host's", f"{of('critical_host_share'):.0%}" if of("critical_host_share") else ""),
    ]
    return tuple((name, value) for name, value in rows if value)


def _calls(run: Run, facts: Facts) -> tuple[CallRow, ...]:
    rows = sorted(run.calls(), key=lambda c: -c.ns)[:10]
    return tuple(
        CallRow(c.call, facts.thread_name(c.thread), c.count, c.failed, c.ns / 1e6, c.max_ns / 1e6) for c in rows
    )


def _lines(run: Run, facts: Facts) -> tuple[LineRow, ...]:
    """The user's lines from which the step thread's calls were made."""
    sums: dict[tuple[str, str], list[float]] = {}
    for d in run.detail_totals("call"):
        at = frames.user_frame(run.stack(d.stack))
        if at is not None:
            entry = sums.setdefault((d.state, frames.label(at, facts.base)), [0.0, 0])
            entry[0] += d.ns / 1e6
            entry[1] += d.count
    rows = [LineRow(call, line, ms, int(n)) for (call, line), (ms, n) in sums.items()]
    return tuple(sorted(rows, key=lambda r: -r.ms)[:_BLOCKING])


def _idle_holders(run: Run, facts: Facts) -> tuple[tuple[str, str, float], ...]:
    sums: dict[tuple[str, str], float] = {}
    for d in run.detail_totals("idle_gil_wait"):
        at = frames.shown_frame(run.stack(d.stack))
        key = (facts.thread_name(d.thread), frames.label(at, facts.base) if at else "place not known")
        sums[key] = sums.get(key, 0.0) + d.ns / 1e6
    return tuple((who, where, ms) for (who, where), ms in sorted(sums.items(), key=lambda s: -s[1])[:_BLOCKING])
