"""TP301: the training thread sleeps in the loop: a lock, a queue, a file, a socket, a child process, time.sleep."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from trainperf.findings import cpus, loaders
from trainperf.findings.cpu_use import usable_cpus
from trainperf.findings.framework import in_told_hook
from trainperf.findings.model import Affected, Claim, Diagnosis, Limits, Outcome, Params, Said, Saves, Severity, Sure
from trainperf.findings.rule import rule
from trainperf.findings.saving import beside_saves
from trainperf.findings.syscalls import writes
from trainperf.findings.text import Bytes, Count, Names, Ns, Number, Share
from trainperf.findings.thresholds import limit
from trainperf.findings.waits import RANKS, Asleep, asleep
from trainperf.runfile.schema import json_object

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.model import Cell
    from trainperf.runfile import Detail, Loader

_PRODUCED: Final = ("queue", "future", "pipe")  # by threads or processes, of which there may be more
_OF_RANKS: Final = tuple(RANKS.values())
_MANY_BUCKETS: Final = 8
_SMALL: Final = 4 << 20  # bytes of gradients: no buckets are worth it


@rule("TP301", "blocked", Limits(limit("warn_share"), limit("critical_share")))
def blocked(facts: Facts, limits: Limits) -> Outcome:
    claims = facts.ledger.cells("blocked_io")
    cost = sum(claims.values())
    severity = facts.grade(cost, limits)
    if severity is None:
        return None
    # Of a part of the cause it is not known which steps have it.
    whole = cost >= limit("held_share") * facts.cause_ns("blocked_io")
    affected = facts.affected("blocked_io") if whole else Affected(facts.steps, 1.0)
    sleep = asleep(facts, _unreported(facts, claims), claims)
    feeders = _feeders(facts, cost / affected.steps) if sleep.kind == "queue" else []
    in_all = affected.steps == facts.steps
    variant = "background_loader" if feeders else _variant(sleep, in_all=in_all)
    first = whole and facts.is_in_first_step("blocked_io")
    return Diagnosis(
        variant=variant,
        severity=_graded(severity, sleep, cost, in_all=in_all, first=first),
        claim=Claim("blocked_io", claims),
        params={
            "each": Ns(cost / facts.steps) if in_all else None,
            "step": Ns(facts.wall_ns / facts.steps),
            "few": None if in_all else Count(affected.steps),
            "few_each": Ns(cost * affected.share / affected.steps),
            "steps": Count(facts.steps),
            **_where(facts, sleep),
            **(_background(facts, feeders, cost) if feeders else {}),
            **(_more_producers(facts, sleep) if variant in _PRODUCED else {}),
            **(_exchange(facts, variant, affected, cost) if variant in (*_OF_RANKS, "collective") else {}),
        },
        place=facts.where(sleep.top) or (loaders.dataset_place(feeders[0], facts) if feeders else ""),
        who=(facts.step_thread_name, sleep.who),
        affected=affected,
        sure=_sure(facts, sleep),
        saves=Saves(
            share=sleep.spots[0].share if facts.second(sleep.spots) is not None else 1.0,
            finds_out=variant in _OF_RANKS or (variant == "collective" and not facts.standing),
        ),
    )


def _unreported(facts: Facts, claims: Mapping[Cell, int]) -> list[Detail]:
    """The samples asleep, without those of checkpoints, callbacks, and loaders that end."""
    theirs = {*facts.once(beside_saves).details, *loaders.reported_end(facts)}
    in_hook = facts.once(in_told_hook)
    every = facts.samples(phases={phase for phase, _ in claims}, states=["blocked"])
    return [d for d in every if d not in theirs and not in_hook(d.phase, facts.run.stack(d.stack))]


def _variant(sleep: Asleep, *, in_all: bool) -> str:
    if sleep.kind == "queue" and not in_all:
        return "queue_at_times"
    return "written_file" if sleep.kind == "file" and writes(sleep.call) else sleep.kind


def _graded(severity: Severity, sleep: Asleep, cost: int, *, in_all: bool, first: bool) -> Severity:
    """`first`: only the first step sleeps, which may read code from the disk: files, or in no call pages of them."""
    short = not in_all and cost < 1e9 * limit("now_and_then_min_s")
    if short or (first and (sleep.kind == "file" or not sleep.call)):
        return "info"
    if severity == "critical" and sleep.kind in _OF_RANKS and not in_all:
        return "warning"  # gradients are accumulated already: the exchange is in few of the steps
    return severity


def _where(facts: Facts, sleep: Asleep) -> Params:
    top = sleep.top
    return {
        "thread_name": facts.step_thread_name,
        "place": facts.label_with_caller(top) if top is not None else None,
        "share": Share(top.share) if top is not None and facts.second(sleep.spots) is not None else None,
        "unseen": None if top is not None else facts.off("stacks") or Said("no_sample_tells"),
        "call": sleep.call or None,
        "or_pipe": sleep.call in ("read", "write", "readv", "writev"),
        "opened": sleep.call in ("open", "openat"),
        "timed": sleep.timed,
        "samples": Count(sleep.samples),
        "spots": tuple({"share": Share(s.share), "place": facts.label_with_caller(s)} for s in sleep.spots[:2]),
        **sleep.others(facts),
    }


def _sure(facts: Facts, sleep: Asleep) -> Sure:
    """The time is exact."""
    without, unseen = facts.off("run_delay"), facts.off("gil_holds") if not sleep.spots else None
    doubts = (Said("maybe_no_cpu", {"off": without}),) if without else ()
    if unseen:
        return Sure(doubts=(Said("place_off", {"off": unseen}), *doubts), level="medium")
    return Sure(samples=sleep.samples, doubts=doubts)


# -- loaders that other threads read


def _feeders(facts: Facts, wait_ns: float) -> list[Loader]:
    """The slowest first; none where that is too short for such a wait."""
    found = [v for v in facts.run.loaders.values() if v.fetches.off_thread_count]
    longest = max((v.fetches.off_thread_wall_ns / v.fetches.off_thread_count for v in found), default=0)
    if longest < limit("half_share") * wait_ns:
        return []
    return sorted(found, key=lambda v: -v.fetches.off_thread_wall_ns)


def _background(facts: Facts, feeders: Sequence[Loader], cost: int) -> Params:
    main, have = feeders[0], loaders.num_workers(feeders[0])
    usable, computes = usable_cpus(facts.run), loaders.worker_view(main).computes
    need = max(have + 1, math.ceil(have * facts.wall_ns / max(facts.wall_ns - cost, facts.wall_ns // 20)))
    want = min(need, max(usable, have + 1)) if computes and usable else need
    slow = Said("background_slow", {"workers": Count(have)})
    todo = loaders.with_workers(main, want if have else 2 * len(feeders), notes=[slow])
    if have and computes and 0 < usable <= have:
        todo = Said("background_no_room")
    return {
        "todo": todo,
        "dataset": loaders.dataset_name(main),
        "dataset_at": loaders.dataset_place(main, facts) or None,
        "batch": Ns(main.fetches.off_thread_wall_ns / main.fetches.off_thread_count),
    }


# -- threads or processes that make what the loop waits for


def _more_producers(facts: Facts, sleep: Asleep) -> Params:
    """More of them only where there are CPUs for them."""
    wants, used, more = cpus.demand(facts), cpus.load(facts), Said(f"more_{sleep.kind}")
    least, most = cpus.free(wants, used)
    known = used.known and wants.cpus > 0
    if known and least >= limit("free_cpus"):
        return {"todo": Said("more_if_free", {"more": more, "threads": sleep.kind != "pipe"})}
    if not known or most >= limit("free_cpus"):
        return {"todo": Said("more_if_known", {"more": more})}
    quota = wants.room != wants.cpus
    room = Said("have_quota", {"cpus": wants.quota, "one": wants.quota == 1}) if quota else None
    params: Params = {"load": used.said, "room": room or Said("have_cpus", {"cpus": Count(wants.cpus)})}
    working, enough = [b for b in sleep.beside if b.works], limit("most_share") * wants.room
    if max(used.threads + used.children, len(working)) < enough:
        return {**params, "todo": Said("more_if_waiting", {"more": more})}
    parts = {"threads": used.threads, "child processes": used.children}
    own = {who: n for who, n in parts.items() if n >= limit("own_threads_cpus")} or {"threads": used.threads}
    libraries = "threads" in own and any(b.spot.leaf for b in working)
    return {
        **params,
        "computing": Said("computing", {"who": Names(own), "used": Number(sum(own.values()))}),
        "todo": Said("make_cheaper", {"libraries": libraries}),
        "no_room": True,
    }


# -- ranks that exchange gradients


def _exchange(facts: Facts, variant: str, affected: Affected, cost: int) -> Params:
    """What they exchange in each step, and how to exchange less."""
    ddp = json_object(facts.run.meta.get("ddp", "{}"))
    described = (_count(of.get("gradient_bytes")) for kind, of in facts.run.objects.values() if kind == "optimizer")
    gradients = _count(ddp.get("gradient_bytes")) or sum(described)
    buffers = _count(ddp.get("buffer_bytes")) if ddp.get("broadcast_buffers") is True else 0
    known = variant != "collective" or _count(ddp.get("bucket_bytes")) > 0  # that DistributedDataParallel does it
    less = Said("no_sync", {"at_times": affected.steps < facts.steps})
    return {
        "known": bool(facts.standing),
        "gradients": Bytes(gradients) if gradients else None,
        "buffers": Bytes(buffers) if buffers else None,
        "rate": Bytes(gradients * affected.steps / (cost / 1e9)),
        "ddp": (less, *_ddp_options(facts, ddp, gradients, buffers)) if known else None,
    }


def _ddp_options(facts: Facts, ddp: Mapping[str, object], gradients: int, buffers: int) -> Iterator[Said]:
    if not _count(ddp.get("hooks")):
        yield Said("compress", {"hook": "bf16_compress_hook" if facts.run.feeds_device else "fp16_compress_hook"})
    if buffers >= limit("half_share") * gradients > 0:
        new = ddp.get("buffers_option") == "forward_sync_buffers"
        yield Said("no_buffers", {"option": "forward_sync_buffers" if new else "broadcast_buffers"})
    bucket = _count(ddp.get("bucket_bytes"))
    buckets = math.ceil(gradients / bucket) if bucket else 0
    if buckets > _MANY_BUCKETS:
        yield Said("larger_buckets", {"mb": math.ceil(gradients / _MANY_BUCKETS / 2**20), "buckets": buckets})
    elif buckets == 1 and gradients > _SMALL:
        yield Said("smaller_buckets", {"mb": max(1, gradients // 4 // 2**20)})


def _count(value: object) -> int:
    """Of a description; 0 where it is not known."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
