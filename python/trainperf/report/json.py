"""`trainperf show --json`: a contract, described in docs/show-json.md. SCHEMA_VERSION rises when it changes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from trainperf.report.model import DevicePart, Part, ReportModel
from trainperf.runfile.schema import CAUSES, PHASES

if TYPE_CHECKING:
    from trainperf.findings.device_memory import DeviceMemory
    from trainperf.findings.model import Finding
    from trainperf.findings.triage import Triage
    from trainperf.ranks import Ranks
    from trainperf.run import Run
    from trainperf.runfile import Device, Traced

SCHEMA_VERSION: Final = 1
FLAGS: Final = (
    "data_starved",
    "gil_contended",
    "host_stalled",
    "incomplete",
    "warm_up",
    "has_validation",
    "has_checkpoint",
    "has_loader_start",
)


def to_dict(model: ReportModel, *, ranks: Ranks | None = None) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "trainperf": model.trainperf,
        "run": {
            "started": model.started,
            "host": model.host,
            "python": model.python,
            "torch": model.torch,
            "ended": model.ended,
            "name": model.name,
        },
        "verdict": {
            "text": model.verdict.text,
            "finding": model.verdict.finding or None,
            "kind": model.verdict.kind,
        },
        "task": _task(model.triage),
        "steps": {
            "count": model.steps,
            "incomplete": model.incomplete,
            "median_ms": model.median_ms,
            "p95_ms": model.p95_ms,
        },
        "causes": {p.name: _part(p) for p in model.causes},
        "phases": {p.name: _part(p) for p in model.phases},
        **({"devices": [_device(d) for d in model.devices]} if model.devices else {}),
        **({"device_memory": [_device_memory(m) for m in model.device_memory]} if model.device_memory else {}),
        "findings": [_finding(f) for f in model.findings],
        "abstained": [{"id": a.id, "why": a.why} for a in model.abstained],
        "tiers": dict(model.tiers),
        "overhead": {"ms_per_step": model.overhead_ms_per_step, "share": model.overhead_share},
        "dropped": {"events": sum(model.dropped.get(k, 0) for k in ("marks", "samples")), **model.dropped},
        "notes": list(model.notes),
        **(_ranks(ranks) if ranks is not None else {}),
    }


def _task(triage: Triage | None) -> dict[str, Any] | None:
    if triage is None:
        return None
    return {"text": triage.text, "model": triage.model, "data": triage.data, "pace": triage.pace or None}


def _ranks(found: Ranks) -> dict[str, Any]:
    """Beside what the rest says of one of them."""
    return {
        "straggler": found.straggler,
        "stragglers": list(found.stragglers),
        "ranks": [
            {
                "rank": r.rank,
                "host": r.host,
                "file": r.file,
                "steps": r.steps,
                "mean_ms": r.mean_ms,
                "own_ms": r.own_ms,
                "unclear_ms": r.unclear_ms,
                "causes": dict(r.causes),
                "verdict": r.verdict,
                "ended": r.ended,
            }
            for r in found.ranks
        ],
    }


def per_step(run: Run) -> list[dict[str, Any]]:
    """One entry per row: a step, or in long runs `count` neighbouring ones, whose times are sums."""
    t = run.steps
    devices = [_device_steps(device) for device in run.devices]
    rows = [
        {
            "index": index,
            "count": count,
            "start_ns": start,
            "wall_ns": wall,
            "flags": [name for bit, name in enumerate(FLAGS) if flags >> bit & 1],
            "causes_ns": dict(zip(CAUSES, causes, strict=True)),
            "phases_ns": dict(zip(PHASES, phases, strict=True)),
        }
        for index, count, start, wall, flags, causes, phases in zip(
            t.index.tolist(),
            t.count.tolist(),
            t.start_ns.tolist(),
            t.wall_ns.tolist(),
            t.flags.tolist(),
            t.causes_ns.tolist(),
            t.phases_ns.tolist(),
            strict=True,
        )
    ]
    if devices:
        for row, of_devices in zip(rows, zip(*devices, strict=True), strict=True):
            row["devices"] = list(of_devices)
    return rows


def _device_steps(device: Device) -> list[dict[str, Any]]:
    t = device.steps
    return [
        {
            "id": device.id,
            "untraced": untraced,
            "busy_ns": busy,
            "idle_causes_ns": dict(zip(CAUSES, causes, strict=True)),
        }
        for untraced, busy, causes in zip(
            t.untraced.tolist(), t.busy_ns.tolist(), t.idle_causes_ns.tolist(), strict=True
        )
    ]


def _device(device: DevicePart) -> dict[str, Any]:
    return {
        "id": device.id,
        "name": device.name,
        "busy_share": device.busy_share,
        "idle_ms_per_step": device.idle_ms_per_step,
        "idle_causes": {p.name: {"ms_per_step": p.ms_per_step, "share_of_idle": p.share} for p in device.idle_causes},
        "incomplete_steps": device.incomplete,
        "traced": _traced(device.traced),
    }


def _device_memory(memory: DeviceMemory) -> dict[str, Any]:
    last = memory.last
    return {
        "id": memory.id,
        "total_bytes": memory.total or None,
        "peak_allocated_bytes": memory.peak_allocated,
        "peak_reserved_bytes": memory.peak_reserved,
        "peak_rose_steps": [memory.rose.first, memory.rose.last] if memory.rose is not None else None,
        "grows_bytes_per_step": memory.per_step if memory.growth is not None else None,
        "last": {
            "allocated_bytes": last.allocated,
            "reserved_bytes": last.reserved,
            "active_bytes": last.active,
            "inactive_split_bytes": last.inactive_split,
            "segments": last.segments,
        },
        "alloc_retries": last.retries,
        "ooms": last.ooms,
        "cache": memory.cache,
        "cache_text": memory.of_cache,
    }


def _traced(traced: Traced | None) -> dict[str, Any] | None:
    if traced is None:
        return None
    known = not math.isnan(traced.idle_low)
    interval = [traced.idle_low, traced.idle_high] if known else None
    return {"steps": traced.steps, "windows": traced.windows, "idle_share_95": interval}


def _part(part: Part) -> dict[str, float]:
    return {"ms_per_step": part.ms_per_step, "share": part.share}


def _finding(f: Finding) -> dict[str, Any]:
    return {
        "id": f.id,
        "slug": f.slug,
        "severity": f.severity,
        "cause": f.cause,
        "share": f.share,
        "cost_ms_per_step": f.cost_ms_per_step,
        "idle_ms_per_step": None if f.idle_ns is None else f.idle_ns / f.steps / 1e6,
        "steps_affected": f.steps_affected,
        "told_ms": f.told_ns / 1e6,
        "told_by": list(f.told_by),
        "confidence": f.confidence,
        "confidence_why": f.confidence_why,
        "title": f.title,
        "why": f.why,
        "evidence": list(f.evidence),
        "who": list(f.who),
        "where": f.where,
        "fix": f.fix,
        "will_not_help": f.will_not_help,
        "docs": f.docs,
    }
