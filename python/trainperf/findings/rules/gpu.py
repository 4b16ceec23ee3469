"""TP501 to TP515: what the device waits for, how it is used, and how it warmed up.

What most of them ask is the same: how long did the device idle for one cause? Those are rows of a table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from trainperf.findings import gpu, loaders
from trainperf.findings.cpus import usable_cpus
from trainperf.findings.model import (
    ALL,
    Cell,
    Claim,
    Diagnosis,
    Limits,
    Outcome,
    Params,
    Said,
    Saves,
    Sure,
    Unsure,
)
from trainperf.findings.rule import PURE_LOSS, WARNS, Rule, device_rule
from trainperf.findings.rules.waits import device_waits, holder_at, in_a_process
from trainperf.findings.text import Bytes, Count, Names, Ns, Number, Share
from trainperf.findings.thresholds import limit
from trainperf.runfile.schema import CAUSES

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts, Spot
    from trainperf.findings.gpu import Gpu
    from trainperf.runfile import Detail, Frame, Int64Array, Kernel


@dataclass(frozen=True, slots=True)
class _Loss:
    """What the device lost for some causes, as far as no rule before has told it."""

    idle: dict[str, int]
    exposed_ns: int = 0  # it copied, or exchanged gradients, with nothing else to do
    exposed: Int64Array | int = 0  # the same, by row of the step table

    @property
    def ns(self) -> int:
        return sum(self.idle.values()) + self.exposed_ns


@dataclass(frozen=True, slots=True)
class _Told:
    """What a row of the table adds to its loss."""

    variant: str
    params: Params = field(default_factory=dict)
    spot: Spot | None = None
    samples: int | None = None
    who: tuple[str, ...] = ()  # (): the step thread
    warm_up: bool = False  # an info: the run's second half has little of it
    saves: Saves = ALL


def _idleness(
    id: str,
    slug: str,
    limits: Limits,
    causes: tuple[str, ...],
    tell: Callable[[Facts, Gpu, _Loss], _Told | Unsure | None],
    *,
    needs_calls: bool = False,
    lost: Callable[[Facts, Gpu], _Loss] | None = None,
    small: Callable[[Facts, Gpu, Limits], Outcome] | None = None,
) -> Rule:
    """A row of the table: the device idles, or runs nothing but copies or collectives, for one of these causes; the
    first is the finding's. `lost`: how much, where it did not just idle. `small`: asked where that is too little to
    speak of."""

    @device_rule(id, slug, limits, needs_calls=needs_calls)
    def look(facts: Facts, device: Gpu, limits: Limits) -> Outcome:
        loss = lost(facts, device) if lost is not None else _Loss(facts.ledger.idle(causes))
        if facts.grade(loss.ns, limits) is None:
            return small(facts, device, limits) if small is not None else None
        told = tell(facts, device, loss)
        if not isinstance(told, _Told):
            return told
        cells = {cell: ns for cause in causes for cell, ns in facts.ledger.cells(cause).items()}
        of_idle = Share(loss.ns / max(1, device.idle_ns))
        return Diagnosis(
            variant=told.variant,
            severity="info" if told.warm_up else None,
            claim=Claim(causes[0], cells, loss.idle, loss.exposed_ns),
            params={"of_idle": of_idle, "place": facts.label(told.spot), **told.params},
            place=facts.where(told.spot),
            who=told.who or None,
            affected=facts.affected_by(device.column(loss.idle or causes) + loss.exposed),
            sure=Sure(told.samples, doubts=device.doubts),
            saves=told.saves,
            tells_idle=True,
        )

    return look


def _first(spots: Sequence[Spot]) -> Spot | None:
    return spots[0] if spots else None


# -- the table


def _gil(facts: Facts, device: Gpu, loss: _Loss) -> _Told | Unsure:
    why = facts.off("gil_waits")
    if why is not None:
        return Unsure("probe_off", {"why": why})
    holders = facts.holders(kind="idle_gil_wait")
    if not holders:
        return _Told("unread")
    top = holders[0]
    return _Told(
        "held",
        {"holder": top.said, "at": holder_at(facts, top), "fix": in_a_process(top), **device_waits(facts)},
        top.spot,
        samples=top.waits if top.spot is not None else None,
        who=tuple(h.name for h in holders[:3]),
    )


def _data(facts: Facts, device: Gpu, loss: _Loss) -> _Told:
    cpus = usable_cpus(facts.run)
    top = _first(facts.spots(facts.samples(phases=["fetch"])))
    of_workers = [v for v in facts.run.loaders.values() if loaders.num_workers(v) > 0]
    ready, took = sum(map(loaders.ready_count, of_workers)), sum(map(loaders.ready_ns, of_workers))
    slow = ready > sum(map(loaders.starved_count, of_workers))
    have = max((loaders.num_workers(v) for v in of_workers), default=0)
    wanted = max(have + 1, min(8, cpus - 1) if cpus else 4, 2)
    # More of them than CPUs help where they are known to wait.
    beyond = 0 < cpus < wanted
    waiting = beyond and loaders.worker_view(*of_workers).waits if of_workers else False
    first_kernel = device.device.totals.first_kernel_ns
    params: Params = {
        "host": Ns(facts.cause_ns("data_wait") / facts.steps),
        "first_kernel": Ns(first_kernel) if first_kernel else None,
        "cpus": Count(cpus) if cpus else None,
        "taking": Ns(took / ready) if ready else None,
        "have": have,
        "workers": wanted if waiting or not beyond else max(2, cpus),
        "waiting": waiting,
        "full": bool(0 < cpus <= have and not waiting),
    }
    in_the_loop = top is not None and not of_workers
    return _Told("handed_over_slowly" if slow else "in_the_loop" if in_the_loop else "not_ready", params, top)


def _sync(facts: Facts, device: Gpu, loss: _Loss) -> _Told:
    syncs = device.calls(*gpu.SYNCS)
    read = [c for c in device.copies if c.direction == "d2h"]
    small = sum(c.small for c in read)
    # A copy to pageable memory waits by itself: older PyTorch's .item() has no other wait.
    waiting = sum(c.count for c in read if "pageable" in (c.src, c.dst))
    spots = facts.call_spots(*gpu.SYNCS, "memcpy")
    params: Params = {
        "syncs": Count(syncs.count),
        "rate": Number(syncs.count / facts.steps),
        "often": _often(syncs.count / facts.steps),
        "small": Count(small) if small else None,
        "small_rate": Number(small / facts.steps),
        "spots": tuple(
            {"share": Share(s.share), "samples": Count(s.samples), "place": facts.label(s)} for s in spots[:2]
        ),
        "unplaced": not spots,
        "number": "x" if facts.inference else "loss",
    }
    numbers = small > 0 and 2 * small >= max(syncs.count, waiting)
    samples = sum(s.samples for s in spots) if spots else None
    return _Told("numbers" if numbers else "sync", params, _first(spots), samples)


def _often(rate: float) -> Said:
    """ "once", "2.5 times"."""
    return Said("once_each") if f"{Number(rate)}" == "1" else Said("times_each", {"rate": Number(rate)})


def _pageable(device: Gpu) -> tuple[float, int]:
    """How much of the bytes that went to it came from pageable memory; what of their copying nothing hid."""
    copies = [c for c in device.copies if c.direction == "h2d"]
    pageable = [c for c in copies if c.src == "pageable"]
    whole = sum(c.bytes for c in copies)
    return (sum(c.bytes for c in pageable) / whole if whole else 0.0), sum(c.exposed_ns for c in pageable)


def _copies_lost(facts: Facts, device: Gpu) -> _Loss:
    """Idleness is of all copies; as much of it as the bytes say is that of those from pageable memory."""
    share, exposed = _pageable(device)
    idle = {cause: int(ns * share) for cause, ns in facts.ledger.idle(["h2d_copy"]).items()} if share else {}
    return _Loss(idle, exposed, device.device.steps.exposed_copy_ns)


def _copies(facts: Facts, device: Gpu, loss: _Loss) -> _Told:
    pageable = [c for c in device.copies if c.direction == "h2d" and c.src == "pageable"]
    ns, paged = sum(c.ns for c in pageable), sum(c.bytes for c in pageable)
    copies = Number(sum(c.count for c in pageable) / facts.steps)
    params: Params = {
        "exposed": Ns(loss.exposed_ns / facts.steps),
        "idle": Ns(sum(loss.idle.values()) / facts.steps),
        "copies": copies,
        "one": f"{copies}" == "1",
        "bytes": Bytes(paged / facts.steps),
        "speed": Bytes(paged / ns * 1e9) if ns else None,
        "pageable": Share(_pageable(device)[0]),
    }
    return _Told("pageable", params, _first(facts.call_spots("memcpy")))


def _copies_unseen(facts: Facts, device: Gpu, limits: Limits) -> Outcome:
    copies = [c for c in device.copies if c.direction == "h2d"]
    if not copies or any(c.src != "unknown" for c in copies):
        return None
    exposed = sum(c.exposed_ns for c in copies)
    large = facts.grade(exposed + sum(facts.ledger.idle(["h2d_copy"]).values()), limits)
    return Unsure("memory_unseen") if large is not None else None


def _loading(facts: Facts, device: Gpu, loss: _Loss) -> _Told:
    lasts = device.late_share(device.column(["module_load"])) >= PURE_LOSS.warn
    loads, jits = device.calls("module_load"), device.calls("jit")
    variants = ("compiles", "compiled") if jits.ns > loads.ns else ("loads", "loaded")
    params: Params = {
        "loads": Count(loads.count), "load": Ns(loads.ns), "jits": Count(jits.count), "jit": Ns(jits.ns),
        "early": not lasts,
    }  # fmt: skip
    spot = _first(facts.call_spots("module_load", "jit"))
    saves = Saves(share=1.0 if lasts else 0.0)
    return _Told(variants[not lasts], params, spot, warm_up=not lasts, saves=saves)


def _collectives_lost(facts: Facts, device: Gpu) -> _Loss:
    exposed = int(device.device.totals.exposed_collective_ns)
    return _Loss(facts.ledger.idle(["collective"]), exposed, device.device.steps.exposed_collective_ns)


def _collectives(facts: Facts, device: Gpu, loss: _Loss) -> _Told:
    kernels = [k for k in device.kernels if k.kind == "collective"]
    top = kernels[0].name.lower() if kernels else ""
    gradients = not top or "allreduce" in top or "all_reduce" in top or "reducescatter" in top
    whole = int(device.device.totals.collective_ns)
    params: Params = {
        "whole": Ns(whole / facts.steps),
        "exposed": Ns(loss.exposed_ns / facts.steps),
        "hidden": Share(1 - loss.exposed_ns / whole if whole else 0.0),
        "kernels": _rows(facts, kernels[:2]),
        "kernel": gpu.short_kernel(kernels[0].name) if kernels else None,
    }
    names = tuple(gpu.short_kernel(k.name) for k in kernels[:1])
    return _Told("gradients" if gradients else "other", params, who=names or ("",))


def _rows(facts: Facts, kernels: Sequence[Kernel], *, whole_ns: int = 0) -> tuple[Params, ...]:
    """`whole_ns`: what each is given as a share of."""
    return tuple(
        {
            "name": gpu.short_kernel(k.name),
            "count": Count(k.count),  # in the whole run
            "each": Ns(k.ns / facts.steps),
            "share": Share(k.ns / whole_ns) if whole_ns else None,
        }
        for k in kernels
    )


# The host is on the CPU, about to launch.
_LAUNCHING: Final = ("launch", "python")


def _gap_us(device: Gpu) -> float:
    """A mean gap in which the device waited for a launch."""
    gaps = device.device.totals.starved_gaps
    return float(sum(device.idle_causes[cause] for cause in _LAUNCHING) / gaps / 1000) if gaps else 0.0


def _keeps_up(device: Gpu) -> bool:
    """The device starts what is launched at once, and waits often, or shortly: the queue is empty."""
    totals = device.device.totals
    often = totals.starved_gaps >= limit("starved_launches") * totals.launches
    soon = 0 < totals.lead_ns_median < limit("lead_us") * 1000
    return bool(soon and totals.starved_gaps > 0 and (often or _gap_us(device) <= limit("launch_gap_us")))


def _sizes(facts: Facts, device: Gpu) -> Params:
    totals = device.device.totals
    return {
        "kernels": Number(totals.kernels / facts.steps),
        "kernel_us": Number(totals.kernel_ns / totals.kernels / 1000),
        "tiny": Share(totals.tiny_kernels / totals.kernels),
    }


def _launching(facts: Facts, device: Gpu, loss: _Loss) -> _Told | Unsure | None:
    totals = device.device.totals
    if not totals.lead_ns_median:
        return Unsure("leads_unseen")
    if not _keeps_up(device):
        return None
    params: Params = {
        **_sizes(facts, device),
        # Of graphs: one of many kernels.
        "launches": Count(totals.launches / facts.steps) if 1.1 * totals.launches < totals.kernels else None,
        "gap_us": Number(_gap_us(device)),
        "lead_us": Number(totals.lead_ns_median / 1000),
    }
    return _Told("tiny" if totals.tiny_kernels / totals.kernels >= limit("tiny_share") else "large", params)


sync_in_loop = _idleness("TP504", "sync-in-loop", WARNS, ("gpu_wait",), _sync, needs_calls=True)
pageable_copies = _idleness(
    "TP505", "pageable-copies", PURE_LOSS, ("h2d_copy",), _copies, lost=_copies_lost, small=_copies_unseen
)
module_loading = _idleness("TP509", "module-loading", PURE_LOSS, ("module_load",), _loading, needs_calls=True)
exposed_communication = _idleness(
    "TP510", "exposed-communication", WARNS, ("collective",), _collectives, lost=_collectives_lost
)
gpu_starved_by_data = _idleness("TP503", "gpu-starved-by-data", WARNS, ("data_wait",), _data)
gpu_gil_wait = _idleness("TP502", "gpu-gil-wait", WARNS, ("gil_wait",), _gil)
launch_bound = _idleness("TP506", "launch-bound", WARNS, _LAUNCHING, _launching)

# -- other idleness


@device_rule("TP501", "gpu-idle", WARNS)
def gpu_idle(facts: Facts, device: Gpu, limits: Limits) -> Outcome:
    """What no other rule tells of."""
    left = facts.ledger.idle(cause for cause in CAUSES if cause != "unknown")
    cause = max(left, key=lambda c: left[c], default="")
    severity = facts.grade(left[cause], limits) if cause else None
    if severity is None:
        unseen = facts.share(device.unseen_ns)
        return Unsure("gpu_idle_unseen", {"share": Share(unseen)}) if unseen >= limit("unknown_share") else None
    cells = facts.ledger.cells(cause)
    spot = _first(facts.spots(facts.samples(phases={phase for phase, _ in cells})))
    if spot is not None and spot.samples < limit("min_samples"):
        spot = None
    others = sorted(((ns, c) for c, ns in left.items() if c != cause), reverse=True)
    host = facts.cause_ns(cause)
    return Diagnosis(
        variant=cause,
        severity=severity,
        claim=Claim(cause, cells, {cause: left[cause]}),
        params={
            "cause": cause,
            "of_idle": Share(left[cause] / device.idle_ns),
            "host": Ns(host / facts.steps) if host else None,
            "place": facts.label(spot),
            "place_share": Share(spot.share) if spot is not None else None,
            "others": Names(f"{c} {Ns(ns / facts.steps)}" for ns, c in others[:3]) if others else None,
        },
        place=facts.where(spot),
        affected=facts.affected_by(device.column([cause])),
        sure=Sure(doubts=device.doubts),
        tells_idle=True,
    )


@device_rule("TP507", "tiny-kernels", WARNS)
def tiny_kernels(facts: Facts, device: Gpu, limits: Limits) -> Outcome:
    """Most kernels are tiny, and the device keeps up with their launches: it is busy, but not well used."""
    totals = device.device.totals
    gaps = facts.ledger.idle([gpu.BETWEEN])
    ns = sum(gaps.values())
    severity = facts.grade(ns, limits)
    tiny = totals.tiny_kernels >= limit("tiny_share") * totals.kernels
    # Where the host cannot keep up, the finding about launching tells of the sizes.
    if severity is None and (not tiny or device.busy() < limit("half_share") or _keeps_up(device)):
        return None
    most = sorted((k for k in device.kernels if k.tiny and not k.folded), key=lambda k: -k.tiny)
    names = Names(list(dict.fromkeys(gpu.short_kernel(k.name) for k in most))[:3])
    return Diagnosis(
        variant="pauses" if severity is not None else "busy",
        severity=severity or "info",
        claim=Claim("launch", {}, gaps if severity is not None else {}),
        params={**_sizes(facts, device), "names": names or None},
        affected=facts.affected_by(device.column([gpu.BETWEEN])) if severity is not None else None,
        sure=Sure(doubts=device.doubts),
    )


_EXPANDABLE: Final = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
# An out-of-memory error that a program catches (to find its batch size) fails at first and after each making of room.
_OF_ONE_ERROR: Final = 3


@device_rule("TP508", "allocator-churn", PURE_LOSS, needs_calls=True)
def allocator_churn(facts: Facts, device: Gpu, limits: Limits) -> Outcome:
    """Memory is allocated and freed while steps run, or had to be freed to make room."""
    idle = facts.ledger.idle(["cuda_alloc"])
    ns = sum(idle.values())
    severity = facts.grade(ns, limits)
    allocs, frees = device.calls("alloc"), device.calls("free")
    pinned = device.calls("pinned_alloc", "pinned_free")
    full = allocs.failed > _OF_ONE_ERROR and allocs.steps > 1 and frees.count > 0
    if severity is None and (not full or facts.too_few):
        return None
    column = device.column(["cuda_alloc"])
    lasts = full or device.late_share(column) >= limits.warn
    spot = _first(facts.call_spots("alloc", "free", "pinned_alloc", "pinned_free"))
    emptied = spot is not None and "empty_cache" in spot.leaf
    return Diagnosis(
        variant="full" if full else "emptied" if emptied else "churn",
        severity=severity if severity is not None and lasts else "info",
        claim=Claim(
            "cuda_alloc",
            facts.ledger.cells("cuda_alloc") if severity is not None else {},
            idle if severity is not None else {},
        ),
        params={
            "allocs": Count(allocs.count),
            "failed": Count(allocs.failed),
            "frees": Count(frees.count),
            "pinned": Count(pinned.count) if pinned.count else None,
            "early": not lasts,
            "place": facts.label(spot),
            "command": facts.command(_EXPANDABLE),
        },
        place=facts.where(spot),
        affected=facts.affected_by(column),
        sure=Sure(doubts=device.doubts),
    )


# -- how it is used


@device_rule("TP511", "few-ops", Limits(limit("warn_share"), None))
def few_ops(facts: Facts, device: Gpu, limits: Limits) -> Outcome:
    """Few kernels make up most of the device's work. Said, never warned of."""
    kernels = [k for k in device.kernels if not k.folded and k.kind != "collective"]
    few = kernels[: int(limit("few_kernels"))]
    ns = sum(k.ns for k in few)
    # Of a handful of kernels a few are always most.
    of_many = len(kernels) >= 4 * len(few) and ns >= limit("most_share") * device.kernel_ns
    if not ns or not of_many or device.busy() < limit("half_share"):
        return None
    return Diagnosis(
        variant="few",
        severity="info",
        claim=Claim("compute"),
        params={
            "few": Count(len(few)),
            "all": Count(len(kernels)),
            "share": Share(ns / device.kernel_ns),
            "name": gpu.short_kernel(few[0].name),
            "each": Ns(few[0].ns / facts.steps),
            "kernels": _rows(facts, few, whole_ns=device.kernel_ns),
        },
        who=(),
        sure=Sure(doubts=device.doubts),
    )


@device_rule("TP512", "no-tensor-cores", Limits(limit("no_tensor_core_share"), None))
def no_tensor_cores(facts: Facts, device: Gpu, limits: Limits) -> Outcome:
    """Matrix products and convolutions run on kernels that leave the tensor cores idle."""
    major = device.compute_major
    if 0 < major < 7:
        return None  # it has none
    eligible = [k for k in device.kernels if k.eligible]
    without = [k for k in eligible if k.kind == "no_tensor_core"]
    ns, unclear = sum(k.ns for k in without), sum(k.ns for k in eligible if k.kind == "unknown")
    severity = facts.grade(ns, limits)
    if severity is None:
        return Unsure("names_unclear") if facts.grade(ns + unclear, limits) is not None else None
    return Diagnosis(
        variant="volta" if major == 7 else "tf32",  # Volta and Turing have neither TF32 nor bfloat16
        severity=severity,
        claim=Claim("compute"),
        params={
            "share": Share(facts.share(ns)),
            "kernels": _rows(facts, without[:3]),
            "device": device.device.name if major else None,
        },
        who=(),
        sure=Sure(doubts=device.doubts),
    )


@device_rule("TP516", "gpu-throttled", Limits(limit("warn_share"), None))
def gpu_throttled(facts: Facts, device: Gpu, limits: Limits) -> Outcome:
    """Heat or power holds the clocks down of a device that sets the pace."""
    why = facts.off("nvml")
    if why is not None:
        return Unsure("probe_off", {"why": why})
    clocks = gpu.clocks(facts.run, device.device.id)
    if clocks is None or device.busy() < limit("half_share"):
        return None
    slower_ns = round(device.busy_ns * clocks.lost)
    severity = facts.grade(slower_ns, limits)
    if severity is None:
        return None
    capped = clocks.by == "power_cap"  # what full load does to many a device
    return Diagnosis(
        variant=clocks.by,
        severity="info" if capped else severity,
        claim=Claim("gpu_wait"),
        params={
            "slower": Share(facts.share(slower_ns)),
            "held": Share(sum(clocks.held.values()) / clocks.readings),
            "readings": Count(clocks.readings),
            "mhz": Number(clocks.mhz),
            "free_mhz": Number(clocks.free_mhz),
            "celsius": clocks.celsius or None,
        },
        who=(),
        sure=Sure(doubts=(Said("by_clock"), *device.doubts)),
    )


@device_rule("TP513", "gpu-bound", Limits(limit("gpu_bound_share"), None))
def gpu_bound(facts: Facts, device: Gpu, limits: Limits) -> Outcome:
    """The device is busy all the time, and the host runs ahead of it: healthy. Said, never warned of."""
    totals = device.device.totals
    work = device.busy_ns - int(totals.exposed_collective_ns) - int(totals.exposed_copy_ns)
    if facts.grade(device.busy_ns, limits) is None or facts.share(work) < limit("gpu_bound_share"):
        return None
    full = device.calls("queue_full")
    waits_ns = full.ns + device.calls(*gpu.SYNCS).ns
    top = next((k for k in device.kernels if not k.folded), None)
    ahead = Ns(totals.lead_ns_median)
    return Diagnosis(
        variant="busy",
        severity="info",
        claim=Claim("gpu_wait"),
        params={
            "busy": Share(device.busy()),
            "ahead": ahead if ahead >= 1e5 else None,
            "full": Count(full.count) if full.count else None,
            "waits": Ns(waits_ns / facts.steps) if waits_ns >= 0.05 * facts.wall_ns else None,
            "kernel": gpu.short_kernel(top.name) if top is not None else None,
            "each": Ns(top.ns / facts.steps) if top is not None else None,
        },
        who=(),
        sure=Sure(doubts=device.doubts),
    )


# -- warming up


@device_rule("TP515", "gpu-warm-up", Limits(limit("compile_share"), None), role="once")
def gpu_warm_up(facts: Facts, device: Gpu, limits: Limits) -> Outcome:
    """The first steps wait for the device's own start: kernels are loaded and tuned, memory is taken."""
    warm_up = device.warm_up
    if warm_up is None:
        return None
    claims: dict[Cell, int] = {}
    for cause, ns in warm_up.host.items():
        # At most what nobody has told: torch.compile's own warm-up is in the same steps.
        claims |= loaders.spread(facts.ledger.cells(cause), ns)
    cost = sum(claims.values())
    if facts.share(cost) < limits.warn:
        return None
    least = limit("compile_share") * sum(warm_up.host.values())
    parts = {
        cause: ns
        for ns, cause in sorted(((ns, c) for c, ns in warm_up.host.items()), reverse=True)
        if ns >= max(1, least)
    }
    left, native = facts.ledger.idle(warm_up.host), warm_up.native_left_ns
    return Diagnosis(
        variant="tried_out" if "gpu_wait" in parts else "warm_up",
        severity="info",
        claim=Claim(
            facts.main_cause(claims),
            claims,
            {cause: min(ns, device.warm_up_idle([cause])) for cause, ns in left.items()},
            by_device=False,
        ),
        params={
            "first": Said("first_step") if warm_up.steps == 1 else Said("first_steps", {"steps": Count(warm_up.steps)}),
            "cost": Ns(cost),
            "took": Ns(warm_up.wall_ns),
            "as_later": Number(warm_up.wall_ns / warm_up.later_ns),
            "parts": tuple({"ns": Ns(ns), "said": Said(f"warm_up_{cause}")} for cause, ns in parts.items()),
            "native": Ns(native) if native >= limit("compile_share") * cost else None,
            "idled": Ns(device.warm_up_idle(CAUSES)),
        },
        affected=warm_up.steps,
        saves=Saves(share=0.0),
    )


# Functions that time candidates and do nothing else. Their callers also launch the kernel that was found, each step.
_TUNERS: Final = (
    (re.compile(r"triton[/\\]runtime[/\\]autotuner\.py$"), {"_bench", "benchmark"}, "Triton"),
    (re.compile(r"triton[/\\]testing\.py$"), {"do_bench", "do_bench_cudagraph"}, "Triton"),
    (
        re.compile(r"torch[/\\]_inductor[/\\]runtime[/\\]triton_heuristics\.py$"),
        {"bench", "benchmark_all_configs", "autotune_to_one_config", "coordinate_descent_tuning"},
        "Inductor",
    ),
    (
        re.compile(r"torch[/\\]_inductor[/\\]runtime[/\\]benchmarking\.py$"),
        {"benchmark", "benchmark_gpu", "benchmark_gpu_with_cuda_graph"},
        "Inductor",
    ),
    (
        re.compile(r"torch[/\\]_inductor[/\\]select_algorithm\.py$"),
        {"do_autotuning", "autotune", "benchmark_choices", "benchmark_in_current_process", "benchmark_in_sub_process"},
        "Inductor",
    ),
)
# A convolution waits for the device only to time its algorithms (or when device memory has run out).
_CONV: Final = re.compile(r"torch[/\\]nn[/\\]modules[/\\]conv\.py$")
_CONV_OPS: Final = re.compile(r"aten::(cudnn_convolution|convolution_backward)")
_MECHANISMS: Final = {  # what a sample or a call was, as the step's time is told
    "python": "python", "native": "native", "parallel": "native", "blocked": "blocked",
    "stream_sync": "gpu_wait", "event_sync": "gpu_wait", "device_sync": "gpu_wait", "queue_full": "gpu_wait",
    "launch_kernel": "launch", "launch_graph": "launch", "memset": "launch", "memcpy": "copy",
    "alloc": "cuda_alloc", "free": "cuda_alloc", "pinned_alloc": "cuda_alloc", "pinned_free": "cuda_alloc",
    "module_load": "module_load", "jit": "module_load",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Tuned:
    detail: Detail
    by: str


@device_rule("TP514", "autotuning", PURE_LOSS)
def autotuning(facts: Facts, device: Gpu, limits: Limits) -> Outcome:
    """Kernels are tuned by trial while steps run: cuDNN's benchmark mode, Triton's and Inductor's autotuners."""
    details = [d for kind in ("sample", "call") for d in facts.run.details(kind)]
    if not any(d.stack for d in details):
        return Unsure("tuner_unseen")
    found = list(_tuned(facts, details, retried=device.calls("alloc").failed > 0))
    claims = _claims(facts, found)
    if facts.grade(sum(claims.values()), limits) is None:
        return None
    # What only the first half has is a warm-up.
    sections = facts.run.sections
    late = {section.index for section in sections[len(sections) // 2 :]}
    late_ns = sum(t.detail.ns for t in found if t.detail.section in late)
    lasts = facts.share(2 * late_ns) >= limits.warn
    tuners = {t.by: sum(u.detail.ns for u in found if u.by == t.by) for t in found}
    by = max(tuners, key=lambda name: tuners[name])
    spot = _first(facts.spots(t.detail for t in found))
    most_steps = min(max(t.detail.steps for t in found), facts.steps)
    return Diagnosis(
        variant=by if lasts else "warm_up",
        severity=None if lasts else "info",
        claim=Claim("gpu_wait", claims, by_device=False),
        params={
            "by": by,
            "tuners": tuple({"ns": Ns(ns), "by": n} for n, ns in sorted(tuners.items(), key=lambda x: -x[1])),
            "late": Ns(late_ns),
            "place": facts.label(spot),
        },
        place=facts.where(spot),
        affected=facts.steps if lasts else most_steps,
        sure=Sure(sum(t.detail.count for t in found), doubts=device.doubts),
        saves=Saves(share=1.0 if lasts else 0.0),
    )


def _tuned(facts: Facts, details: Sequence[Detail], *, retried: bool) -> Iterator[_Tuned]:
    for detail in details:
        stack = facts.run.stack(detail.stack) if detail.stack else ()
        by = _tuner(stack)
        if not by and not retried and detail.kind == "call" and detail.state in gpu.SYNCS and _in_convolution(stack):
            by = "cuDNN"
        if by:
            yield _Tuned(detail, by)


def _tuner(stack: Sequence[Frame]) -> str:
    for frame in stack:
        for file, functions, by in _TUNERS:
            if frame.function in functions and file.search(frame.file):
                return by
    return ""


def _in_convolution(stack: Sequence[Frame]) -> bool:
    if not stack:
        return False
    return _CONV.search(stack[0].file) is not None or _CONV_OPS.match(stack[0].function) is not None


def _claims(facts: Facts, found: Sequence[_Tuned]) -> dict[Cell, int]:
    """Its time by (phase, mechanism), as far as nobody has told that."""
    claims: dict[Cell, int] = {}
    for tuned in found:
        cell = (tuned.detail.phase, _MECHANISMS.get(tuned.detail.state, "unknown"))
        claims[cell] = claims.get(cell, 0) + tuned.detail.ns
    return {cell: ns for cell, n in claims.items() if (ns := min(n, facts.ledger.left(cell))) > 0}
