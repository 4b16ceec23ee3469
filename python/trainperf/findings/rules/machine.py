"""TP303, TP307, TP308, TP602 and TP604: the CPUs that the run gets, and Python's garbage collector."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trainperf.findings import children, cpus, frames, loaders
from trainperf.findings.model import Claim, Diagnosis, Limits, Outcome, Param, Params, Said, Saves, Sure, Unsure
from trainperf.findings.places import function_name
from trainperf.findings.rule import PURE_LOSS, rule
from trainperf.findings.text import Count, Names, Ns, Number, Share
from trainperf.findings.thresholds import limit
from trainperf.runfile.schema import described

if TYPE_CHECKING:
    from trainperf.findings.cpus import Narrowed
    from trainperf.findings.facts import Facts, Spot
    from trainperf.findings.model import Cell
    from trainperf.findings.places import Holder

_LIMITS: Final = Limits(limit("descheduled_warn_share"), limit("critical_share"))


# -- waiting for a CPU


@rule("TP307", "descheduled", _LIMITS, needs=("run_delay",))
def descheduled(facts: Facts, limits: Limits) -> Outcome:
    """The training thread is ready to run, and the CPUs are busy with others."""
    claims = facts.waits_for_cpu()  # stops are told in a note
    cost = sum(claims.values())
    # Our threads take CPU too, and where CPUs are short that is what the training thread waits for.
    if facts.grade(cost, limits, machine=True) is None or cost < facts.own_cpu_ns:
        return None
    wants, load = cpus.demand(facts), cpus.load_in_waits(facts)
    whose = cpus.whose(wants, load)
    if whose == "oversubscribed":
        return None  # a finding of its own
    found = _by(facts, whose, wants, load)
    shared = wants.threads > 1 and whose in ("children", "others")
    holder = found.holder
    return Diagnosis(
        variant=found.variant,
        claim=Claim("descheduled", claims),
        params={
            **_room_of(wants, load),
            **children.using_cpus(facts, led=whose == "children"),
            **found.params,
            "shared": Count(wants.threads) if shared else None,
            "led": found.led,
        },
        place=_where(facts, whose, load, holder),
        who=(facts.step_thread_name, *([holder.name] if holder is not None else [])),
        affected=facts.affected("descheduled"),
        sure=Sure(doubts=(found.unclear,) if found.unclear is not None else ()),
        saves=Saves(finds_out=found.unclear is not None, more=shared),
        by_others=found.led,
    )


def _where(facts: Facts, whose: cpus.Who, load: cpus.Load, holder: Holder | None) -> str:
    if whose == "children" or (whose == "both" and load.children > max(load.workers, load.ranks)):
        return children.where(facts, children.leader(facts))
    return facts.where(holder.spot) if holder is not None else ""


@dataclass(frozen=True, slots=True)
class _Found:
    """Who takes the CPUs."""

    variant: str
    params: Params
    led: bool = False  # mostly other programs
    holder: Holder | None = None  # the thread of this process that holds the GIL most, where own threads take them
    unclear: Said | None = None  # why it is not known


def _by(facts: Facts, whose: cpus.Who, wants: cpus.Demand, load: cpus.Load) -> _Found:
    if whose == "own threads":
        return _own_threads(facts, wants, load)
    if whose == "children":
        leads = children.leader(facts)
        if leads is not None and leads.starts:
            return _Found("children_start", {})
        few = 1 < wants.cpus <= wants.threads
        return _Found("children_and_threads" if few else "children", _fewer_threads(wants.cpus, load.children))
    if whose == "others":
        return _Found("others", _others(facts, wants, load), led=True)
    if whose == "both":
        return _both(wants, load)
    if load.known:
        return _Found("unclear", {}, unclear=Said("who_unclear"))
    return _Found("too_short", {}, unclear=Said("watch_short"))


def _room_of(wants: cpus.Demand, load: cpus.Load) -> Params:
    return {
        "load": load.said,
        "cpus": Count(wants.cpus) if wants.cpus else None,
        "machine": wants.cpus + load.elsewhere if load.elsewhere else None,
        "threads": wants.threads or None,
        "workers": Count(wants.workers),
        "children": Number(load.children),
        "elsewhere": bool(load.elsewhere),
    }


def _others(facts: Facts, wants: cpus.Demand, load: cpus.Load) -> Params:
    """Of other processes, and of the run's own what uses the CPUs too: it may be what training waits for in a part of
    the run."""
    own = load.threads + load.workers + load.children
    unknown = "" if "children_cpu_after_ns" in facts.run.meta else Said("beside_unknown")
    beside = unknown or Said("beside_nothing")
    if own >= cpus.SPEAKS_OF:
        python = load.threads >= limit("half_share") * own and not cpus.own_threads(facts).more_native
        holder = facts.busiest_other() if python else None
        named = {"holder": holder.said if holder is not None else None, "place": _place(facts, holder)}
        beside = Said("beside_own", {"own": Number(own), **named, "unknown": unknown})
    return {"others": Number(load.others), "beside": beside, "fix": _room(facts, wants, load.others)}


def _room(facts: Facts, wants: cpus.Demand, others: float) -> Said:
    """What leaves the others' CPUs to them, as far as this machine has CPUs to divide."""
    if 1 < wants.cpus <= wants.threads:
        return Said("room_threads", _fewer_threads(wants.cpus, others))
    if wants.cpus > 2:
        first = f"0-{min(4, wants.cpus - 1) - 1}"
        return Said("room_cpus", {"command": facts.command(f"taskset -c {first}")})
    return Said("room_none")


def _fewer_threads(usable: int, others: float) -> Params:
    return {"fewer": max(1, usable - math.ceil(others - 0.25))}


def _place(facts: Facts, holder: Holder | None) -> str | None:
    return facts.label(holder.spot) if holder is not None and holder.spot is not None else None


def _both(wants: cpus.Demand, load: cpus.Load) -> _Found:
    """Processes of the run, and others."""
    parts = {"workers": load.workers, "children": load.children, "ranks": load.ranks}
    most = max(parts.values())
    named = {name: used for name, used in parts.items() if used and used >= most * limit("half_share")}
    params: Params = {
        "named": tuple(Said(f"both_{name}") for name in named),
        "used": tuple(Said(f"used_by_{name}", {"used": Number(used)}) for name, used in named.items()),
        "others": Number(load.others),
    }
    # With fewer workers than CPUs the loop waits for its data.
    many = "workers" in named and wants.workers > wants.cpus
    return _Found("both_many_workers" if many else "both", params, led=load.others > load.started)


def _own_threads(facts: Facts, wants: cpus.Demand, load: cpus.Load) -> _Found:
    own, holder = cpus.own_threads(facts), facts.busiest_other()
    led = load.others > load.threads and not cpus.leave_room(wants, load)
    others = load.others >= limit("own_threads_cpus")
    used = (own.native_said,) if own.mostly_native else (own.python_said, own.native_said)
    params: dict[str, Param] = {
        "compete": Said("compete", {"led": led, "native": own.mostly_native, "others": others and not led}),
        "own": tuple(said for said in used if said is not None) or (Said("own_use", {"cpus": Number(load.threads)}),),
        "others": Number(load.others) if others else None,
        "holder": holder.said if holder is not None else None,
        "place": _place(facts, holder),
    }
    if own.mostly_native:
        params |= {"torch_more": facts.torch_threads == 1, "limits": _limits(facts, own.pools)}
        return _Found("own_native", params, led, holder)
    if holder is None:
        return _Found("own_threads", params, led)
    params["work"] = function_name(holder.spot) if holder.spot is not None else Said("its_work")
    params["gil"] = Share(facts.share(holder.ns))
    cpu_ns = next((t.cpus for t in own.python if t.name == holder.name), 0.0) * facts.run.watched_ns
    # Otherwise it computes without the GIL: not by polling.
    polls = holder.ns >= limit("warn_share") * cpu_ns
    return _Found("own_polling" if polls else "own_computing", params, led, holder)


def _limits(facts: Facts, pools: tuple[tuple[str, str], ...]) -> Said:
    """How each library is told: by a variable, before the program starts, or by a call."""
    if not pools:
        return Said("limit_any")
    variables = dict.fromkeys(setting for _, setting in pools if "(" not in setting)
    calls = [setting for _, setting in pools if "(" in setting]
    return Said(
        "limit_pools",
        {
            "names": Names(library for library, _ in pools),
            "command": facts.command(" ".join(variables)) if variables else None,
            "calls": "\n".join(calls) or None,
        },
    )


@rule("TP308", "throttled", PURE_LOSS, needs=("throttling",))
def throttled(facts: Facts, limits: Limits) -> Outcome:
    """The container's CPU quota stops the process."""
    claims = facts.cells("throttled")
    cost = sum(claims.values())
    if facts.grade(cost, limits, machine=True) is None:
        return None
    host = facts.run.host
    seconds = (host[-1].at_ns - host[0].at_ns) / 1e9 if len(host) > 1 else 0.0
    used = (host[-1].process_cpu_ns - host[0].process_cpu_ns) / 1e9 / seconds if seconds else 0.0
    quota = cpus.quota(facts.run)
    room = max(1, int(quota.cpus) if quota is not None else round(used))
    changed: Params = {}
    if quota is not None and quota.before is not None:
        since = Count(cpus.steps_before(facts.run, quota.at_ns))
        changed = {"since": since, "before": f"{quota.before:g}" if quota.before else Said("no_quota")}
    return Diagnosis(
        variant="quota",
        claim=Claim("throttled", claims),
        params={
            **changed,
            "used": Number(used) if used else None,
            "threads": facts.torch_threads or None,
            "quota": Said("quota_cpus", _quota(quota.cpus)) if quota is not None else None,
            "room": room,
            "threaded": not 0 < facts.torch_threads <= room,
        },
        affected=facts.affected("throttled"),
    )


def _quota(of: float) -> Params:
    return {"cpus": Number(of), "one": of == 1}


@rule("TP602", "cpu-oversubscription", _LIMITS)
def cpu_oversubscription(facts: Facts, limits: Limits) -> Outcome:
    """The run is set to use more CPUs than there are, and its threads and processes wait for each other."""
    wants = cpus.demand(facts)
    if not (wants.over_cpus or wants.over_quota):
        return None
    blind = facts.off("run_delay") if wants.over_cpus else facts.off("throttling")
    if blind is not None:
        return Unsure("probe_off", {"why": blind})
    in_waits = cpus.load_in_waits(facts)
    by_delay = wants.over_cpus and cpus.whose(wants, in_waits) == "oversubscribed"
    load = in_waits if by_delay else cpus.load(facts)
    claims: dict[Cell, int] = facts.waits_for_cpu() if by_delay else {}
    waited = sum(claims.values())
    if wants.over_quota:
        claims |= facts.cells("throttled")
    cost = sum(claims.values())
    # Our threads take CPU too, and where CPUs are short that is what the training thread waits for.
    if facts.grade(cost, limits, machine=True) is None or cost < facts.own_cpu_ns:
        return None
    cause = "descheduled" if waited >= cost - waited else "throttled"
    variant, params = _fewer(facts, wants)
    # Others that use CPUs meanwhile slow both sides of that, and not alike.
    quiet = variant == "threads" and by_delay and load.others < limit("competing_cpus")
    tried = cpus.FewerThreads.read(facts.run) if quiet else None
    saves = Saves()
    if tried is not None:
        saved, native = _saved_by_fewer(facts, tried, claims)
        saves = Saves(share=min(1.0, saved / cost), about=True)
        claims |= loaders.spread(native, saved - cost)
    return Diagnosis(
        variant=variant,
        claim=Claim(cause, claims),
        params={
            "each": Ns(waited / facts.steps) if waited else None,
            **_tried(tried),
            **params,
            "wanted": wants.wanted,
            "stopped": Ns((cost - waited) / facts.steps) if cost > waited else None,
            "ranks": Count(wants.ranks) if wants.ranks > 1 else None,
            "threads": Count(max(1, wants.threads)),
            "workers": Count(wants.workers) if wants.workers else None,
            "load": load.said,
            **children.using_cpus(facts),
        },
        affected=facts.affected(cause),
        saves=saves,
    )


def _tried(tried: cpus.FewerThreads | None) -> Params:
    if tried is None:
        return {"few": None, "many_took": None, "few_took": None}
    return {"few": Count(tried.threads), "many_took": Ns(tried.many_ns), "few_took": Ns(tried.few_ns)}


def _saved_by_fewer(facts: Facts, tried: cpus.FewerThreads, waits: dict[Cell, int]) -> tuple[int, dict[Cell, int]]:
    """What as many threads as CPUs save of forward and backward; and the time there in which threads computed, or spun
    for each other."""
    native = {(phase, "native"): facts.ledger.left((phase, "native")) for phase in ("forward", "backward")}
    whole = sum(native.values()) + sum(ns for (phase, _), ns in waits.items() if phase in ("forward", "backward"))
    return round(tried.saved * whole), native


def _fewer(facts: Facts, wants: cpus.Demand) -> tuple[str, Params]:
    room = wants.cpus if not wants.over_quota else min(wants.cpus or math.inf, wants.quota)
    of_quota = wants.over_quota and room == wants.quota
    have = Said("have_quota", _quota(wants.quota)) if of_quota else Said("have_cpus", {"cpus": Count(wants.cpus)})
    each = max(1, int(room / wants.ranks))
    # Where the loop waits for its workers, fewer make it slower.
    needs_workers = facts.share(facts.cause_ns("data_wait")) >= limit("warn_share")
    variant = "threads"
    if wants.workers >= each and not needs_workers:
        variant = "workers"
    elif wants.workers >= each and wants.threads <= 1:
        variant = "cheaper_samples"
    return variant, {
        "have": have,
        "torchrun": wants.ranks > 1 and wants.threads > 1,
        "threaded": wants.threads > 1,
        "fewer": max(1, each - wants.workers),
        "fewer_workers": max(1, each - 1),
    }


# -- affinity


@rule("TP604", "pinned-cpus", _LIMITS)
def pinned_cpus(facts: Facts, limits: Limits) -> Outcome:
    """Threads and workers wait for a CPU, as the process' affinity leaves CPUs of the machine unused."""
    narrow = cpus.narrowed(facts.run)
    if narrow is None or facts.off("run_delay") is not None:
        return None
    wants, load = cpus.demand(facts), cpus.load_in_waits(facts)
    # On a busy machine too it is what narrowed them that threads and workers of the run share fewer CPUs.
    shares = narrow.during and wants.wanted > len(narrow.cpus)
    if _idle_cpus(facts) < limit("free_cpus") and not shares:
        return None
    # Of one that was started so, TP602 and TP307 know why its threads wait, unless that is not clear.
    started_so = not narrow.during and not _settings(facts)
    if started_so and cpus.whose(wants, load) != "unclear":
        return None
    waits = facts.waits_for_cpu()
    claims = {**waits, **_of_workers(facts, narrow)}
    cost, waited = sum(claims.values()), sum(waits.values())
    severity = facts.grade(cost, limits, machine=True)
    # Our threads take CPU too, and where CPUs are short that is what the training thread waits for.
    if severity is None or cost < facts.own_cpu_ns:
        return None
    cause = "descheduled" if waited >= cost - waited else "data_wait"
    call = narrow.call
    place = f"{frames.short_path(call.file, facts.base)}:{call.line}" if call is not None else ""
    return Diagnosis(
        variant=_narrowed_by(facts, narrow),
        severity=severity,
        claim=Claim(cause, claims),
        params={
            "each": Ns(waited / facts.steps) if waited else None,
            **_affinity(facts, narrow),
            "for_data": Ns((cost - waited) / facts.steps) if cost > waited else None,
            "inherited": Count(wants.workers) if wants.workers and narrow.workers_too else None,
            "load": load.said,
            "function": call.function if call is not None else None,
            "place": place or None,
        },
        place=place,
        affected=facts.affected(cause),
        saves=Saves(more=wants.threads > len(narrow.cpus)),
    )


def _narrowed_by(facts: Facts, narrow: Narrowed) -> str:
    if narrow.call is not None:
        return "call"
    return ("narrowed" if narrow.during else "started") + ("_by_settings" if _settings(facts) else "")


def _affinity(facts: Facts, narrow: Narrowed) -> Params:
    steps, settings = cpus.steps_before(facts.run, narrow.at_ns), _settings(facts)
    names = " ".join(f"-u {name.partition('=')[0]}" for name in settings)
    return {
        "have": Count(len(narrow.cpus)),
        "possible": narrow.possible,
        "allowed": Names(str(cpu) for cpu in sorted(narrow.cpus)[:8]),
        "dots": "..." if len(narrow.cpus) > 8 else None,
        "idle": Number(_idle_cpus(facts)),
        "when": Said("during_step", {"step": Count(steps)}) if steps else Said("before_first_step"),
        "settings": settings or None,
        "command": facts.command(f"env {names}") if settings else None,
        "widen": "os.sched_setaffinity(0, range(os.cpu_count()))",
        "with_workers": narrow.workers_too and bool(facts.run.loaders),
    }


def _of_workers(facts: Facts, narrow: Narrowed) -> dict[Cell, int]:
    """Waits for data, where workers are on the same CPUs, and these are full."""
    used = cpus.load(facts)
    workers = any(loaders.num_workers(v) for v in facts.run.loaders.values())
    full = used.known and used.own + used.workers >= limit("full_cpus") * len(narrow.cpus)
    if not (workers and narrow.workers_too and full):
        return {}
    return {cell: left for cell in facts.cells("data_wait") if (left := facts.ledger.left(cell)) > 0}


def _idle_cpus(facts: Facts) -> float:
    """Of the machine, on average while it was watched."""
    host = facts.run.host
    wall = host[-1].at_ns - host[0].at_ns if len(host) >= 2 else 0
    return (host[-1].machine_idle_ns - host[0].machine_idle_ns) / wall if wall > 0 else 0.0


def _settings(facts: Facts) -> Names:
    """Variables with which OpenMP libraries pin threads: "OMP_PROC_BIND=close"."""
    found = described(facts.run.meta, "affinity_settings")
    return Names(f"{name}={value}" for name, value in found.items())


# -- the garbage collector


@rule("TP303", "gc-pauses", PURE_LOSS, needs=("hook_gc",))
def gc_pauses(facts: Facts, limits: Limits) -> Outcome:
    """Python's garbage collector stops the training thread."""
    claims = facts.cells("gc")
    if facts.grade(sum(claims.values()), limits) is None:
        return None
    by_generation: dict[int, tuple[int, int]] = {}
    for d in facts.run.detail_totals("gc"):
        ns, count = by_generation.get(d.code, (0, 0))
        by_generation[d.code] = (ns + d.ns, count + d.count)
    longest = max((s.end_ns - s.start_ns for s in facts.run.spans("gc")), default=0)
    affected = facts.affected("gc")
    worst = max(by_generation, key=lambda g: by_generation[g][0], default=2)
    full, younger = (by_generation.get(g, (0, 0))[1] for g in (2, 1))
    incremental = _incremental(facts)
    # By themselves full collections are half as many as the younger at most; a call makes more, also a library's. In
    # increments none is full but where it is asked for: those count where they take most of it.
    often = worst == 2 if incremental else full >= limit("held_share") * younger
    asked = full >= limit("asked_collections") and often
    call = _collect_call(facts, claims) if asked else None
    variant = f"generation_{worst if worst in (0, 1) else 2}"
    if asked:
        variant = "asked" if call is not None else "asked_by_library"
    elif incremental and worst == 1:
        variant = "incremental"
    return Diagnosis(
        variant=variant,
        claim=Claim("gc", claims),
        params={
            "full": Count(full),
            "generations": tuple(
                {
                    "name": Said("gc_incremental") if incremental and g == 1 else Said("gc_generation", {"number": g}),
                    "count": Count(n),
                    "each": Ns(ns / max(1, n)),
                }
                for g, (ns, n) in sorted(by_generation.items(), key=lambda kv: -kv[1][0])
            ),
            "longest": Ns(longest) if longest else None,
            "place": facts.label(call),
        },
        place=facts.where(call),
        affected=affected,
        sure=Sure(None if call is None else call.samples),
    )


def _incremental(facts: Facts) -> bool:
    """CPython 3.14.0 to 3.14.4 collect in increments, as generation 1; 3.14.5 went back to three generations."""
    release = re.match(r"3\.14\.(\d+)", str(facts.run.meta.get("python") or ""))
    return release is not None and int(release[1]) < 5


def _collect_call(facts: Facts, claims: dict[Cell, int]) -> Spot | None:
    """The user's line that calls gc.collect()."""
    samples = facts.samples(phases={phase for phase, _ in claims}, states=["python"])
    spots = facts.spots(samples, keep=lambda stack: frames.is_users(stack[0], stack))
    if not spots or spots[0].ns < limit("half_share") * sum(claims.values()) or spots[0].samples < limit("min_samples"):
        return None
    return spots[0]
