"""TP104: the loop waits for a loader to begin."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainperf.findings import frames, loaders
from trainperf.findings.model import Cell, Claim, Diagnosis, Limits, Outcome, Params, Said, Saves, Sure, Unsure
from trainperf.findings.rule import rule
from trainperf.findings.text import Count, Ns
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.loaders import Restarts
    from trainperf.findings.places import Part
    from trainperf.runfile import Loader
    from trainperf.runfile.records import Span

    _Times = list[list[Span]]  # of each time that a loader began, its spans

_NEEDS = ("hook_dataloader",)


@rule("TP104", "worker-startup", Limits(limit("rare_warn_share"), limit("critical_share")), needs=_NEEDS)
def worker_startup(facts: Facts, limits: Limits) -> Outcome:
    """Worker processes start, or have an empty queue; or a loader begins again for each batch."""
    restarts = facts.once(loaders.restarts)
    if restarts is not None and (found := _each_batch(facts, restarts, limits)) is not None:
        return found
    waits = _waits(facts)
    if waits is None:
        return None
    if waits.again:
        return _again(facts, waits, limits) or _once(facts, waits, limits)
    if waits.refilled_ns > waits.started_ns:
        return _empty_queue(facts, waits, limits)
    return _once(facts, waits, limits)


def _each_batch(facts: Facts, restarts: Restarts, limits: Limits) -> Diagnosis | None:
    claims, main = restarts.claims, restarts.main
    cost = sum(claims.values())
    severity = facts.grade(cost, limits)
    if severity is None:
        return None
    workers, persistent = loaders.num_workers(main), bool(main.description.get("persistent_workers"))
    samples = facts.samples(phases=["fetch"])
    begins = [d for d in samples if frames.begins_loader(facts.run.stack(d.stack))] or samples
    called = facts.spots(begins, seen_from=lambda stack: stack[frames.in_loaders(stack) :])
    drawn = sum(d.count for d in samples if frames.in_sampler(facts.run.stack(d.stack)))
    left = restarts.left.ns
    return Diagnosis(
        variant="each_batch_in_process" if not workers else "each_batch_kept" if persistent else "each_batch",
        severity=severity,
        claim=Claim("data_wait", claims),
        slug="loader-restarts",
        params={
            "starts": Count(restarts.starts),
            "steps": Count(facts.steps),
            "batches": Count(restarts.batches),
            "second": restarts.batches >= 1.5 * restarts.starts,
            "each": Ns(cost / restarts.starts),
            "drawing": Ns(restarts.sampled_ns / restarts.starts) if restarts.sampled_ns else None,
            "left": Ns(left / restarts.starts) if left > cost / 20 else None,
            "workers": Count(workers),
            "persistent": str(persistent),
            "shuffles": main.description.get("sampler") != "SequentialSampler",  # or is not known to do otherwise
            **_sampler(main),
            "anew": restarts.anew,
        },
        place=facts.where(called[0] if called else None) or loaders.dataset_place(main, facts),
        who=loaders.who(facts, workers),
        sure=Sure() if workers else Sure(drawn, "sampled"),
    )


def _sampler(loader: Loader) -> Params:
    named = loader.description.get("batch_sampler")
    named = loader.description.get("sampler") if named in (None, "", "BatchSampler") else named
    length = loader.description.get("dataset_length")
    return {
        "sampler": str(named) if named else Said("its_sampler"),
        "length": Count(length) if isinstance(length, int) else None,
    }


@dataclass(frozen=True, slots=True)
class _Waits:
    """What iter(loader) and the first batch after it took: ns by step."""

    main: Loader  # that took the most
    starts: int
    started: Mapping[int, int]  # worker processes started there: in one step, or in the last of an epoch and the next
    refills: int
    refilled: Mapping[int, int]  # those of an earlier epoch went on
    first_ns: int  # of started_ns: each loader's first start; where loaders are made anew, the first of all
    imports: bool  # later starts take as long: each imports the program again, or what a fork server has not imported
    ended_ns: int  # what stopping them took at the end of an epoch
    left: Part  # and where the loop left an epoch before
    again: bool  # workers of a loader started more than once, or each start was of a loader made anew
    anew: bool

    @property
    def started_ns(self) -> int:
        return sum(self.started.values())

    @property
    def refilled_ns(self) -> int:
        return sum(self.refilled.values())

    @property
    def stopping_ns(self) -> int:
        return self.ended_ns + self.left.ns

    @property
    def stops(self) -> bool:
        """Whether it takes notable time to stop them."""
        return self.stopping_ns > self.started_ns / 20

    @property
    def method(self) -> str:
        """ "fork", "spawn", "forkserver" or ""."""
        return str(self.main.description.get("multiprocessing_context") or "")

    def first_share(self, loaders: int) -> float:
        """Of all of it, what the first start of each of so many loaders takes, and to stop its workers."""
        stopping = self.stopping_ns * min(loaders, self.starts) // self.starts
        return min(1.0, (self.first_ns + stopping) / max(1, self.started_ns + self.stopping_ns))

    def claims(self, facts: Facts) -> dict[Cell, int]:
        """Of starting the workers, and stopping them: with the waits for a CPU, which the same processes compete
        for."""
        cells = facts.cells("data_wait", ["fetch"]) | facts.cells("descheduled", ["fetch"])
        return loaders.spread(cells, self.started_ns + self.ended_ns) | self.left.claims

    def diagnosis(self, facts: Facts, variant: str, claims: Mapping[Cell, int], **differs: Any) -> Diagnosis:
        """With what all variants say of the workers; `differs`: the rest of it."""
        workers = loaders.num_workers(self.main)
        params: Params = {
            "workers": Count(workers),
            "persistent": str(bool(self.main.description.get("persistent_workers"))),
            "method": self.method or None,
            "steps": Count(facts.steps),
            **differs.pop("params"),
        }
        return Diagnosis(
            variant=variant,
            claim=Claim("data_wait", claims),
            params=params,
            place=loaders.dataset_place(self.main, facts),
            who=loaders.who(facts, workers),
            **differs,
        )


def _again(facts: Facts, waits: _Waits, limits: Limits) -> Diagnosis | None:
    claims = waits.claims(facts)
    # A first start may be most of it: that of a fork server, which imports the program once.
    again = 1 - waits.first_share(1 if waits.anew else len(loaders.with_workers_of(facts)))
    severity = facts.grade(int(_waited(facts, claims) * again), limits)
    if severity is None:
        return None
    count = len(waits.started)
    # Where each start imports what the program has imported: another way to start, as long as workers start again.
    imports = waits.imports and waits.method in ("spawn", "forkserver")
    return waits.diagnosis(
        facts,
        "anew" if waits.anew else "each_epoch",
        claims,
        role="once",
        severity=severity,
        params={
            "count": Count(count),
            "others": Count(facts.steps - count),
            "starts": Count(waits.starts),
            "each": Ns(sum(claims.values()) / waits.starts),
            "first": Ns(waits.first_ns) if waits.method == "forkserver" and not waits.imports else None,
            "stopping": Ns(waits.stopping_ns / waits.starts) if waits.stops else None,
            "imports": imports,
            "by_spawn": imports and waits.method == "spawn",
        },
        affected=count,
        saves=Saves(share=again),
    )


def _once(facts: Facts, waits: _Waits, limits: Limits) -> Diagnosis | Unsure | None:
    claims = waits.claims(facts)
    if facts.grade(_waited(facts, claims), limits) is None:
        return None
    if facts.steps < limit("critical_min_steps"):
        return Unsure("one_start", {"steps": Count(facts.steps)})
    affected = len(waits.started) + waits.stops  # it stops in the last step
    return waits.diagnosis(
        facts,
        "once",
        claims,
        role="once",
        severity="info",
        params={
            "cost": Ns(sum(claims.values())),
            "first": Ns(waits.first_ns),
            "stopping": Ns(waits.stopping_ns) if waits.stops else None,
            "others": Count(facts.steps - affected),
        },
        affected=affected,
        saves=Saves(share=0.0),
    )


def _empty_queue(facts: Facts, waits: _Waits, limits: Limits) -> Diagnosis | None:
    claims = loaders.spread(facts.cells("data_wait", ["fetch"]), waits.refilled_ns)
    if facts.grade(sum(claims.values()), limits) is None:
        return None
    count = len(waits.refilled)
    return waits.diagnosis(
        facts,
        "empty_queue_of_stream" if loaders.is_stream(waits.main) else "empty_queue",
        claims,
        slug="first-batches",
        severity="info",
        params={
            "count": Count(count),
            "others": Count(facts.steps - count),
            "refills": Count(waits.refills),
            "each": Ns(sum(claims.values()) / waits.refills),
        },
        affected=count,
    )


def _waits(facts: Facts) -> _Waits | None:
    trained = {k: v for k, v in facts.run.loaders.items() if not loaders.only_validates(v)}
    with_workers = {k: v for k, v in trained.items() if loaders.num_workers(v) > 0}
    times = _times(facts, with_workers)
    if not times:
        return None
    starts = {k: loaders.worker_starts(with_workers[k], len(of)) for k, of in times.items()}
    started, refilled = Counter[int](), Counter[int]()
    for k, of in times.items():
        for i, s in ((i, s) for i, time in enumerate(of) for s in time):
            (started if i < starts[k] else refilled)[s.step] += s.end_ns - s.start_ns
    # What no fetch has: the last next() of an epoch, which stops the workers and waits for their end. Walls, as these
    # are: with what kept the thread off the CPU meanwhile.
    known = started.total() + refilled.total() + sum(v.fetches.wall_ns for v in with_workers.values())
    ended = max(0, facts.run.phase_ns("fetch") - known) if len(with_workers) == len(trained) else 0
    anew = _made_anew(times.values())
    # What each start took: by loader, in the order in which they began.
    took = [[_ns(time) for time in of[: starts[k]]] for k, of in times.items()]
    firsts, later = _firsts([[first for (first,) in took]] if anew else took)
    return _Waits(
        main=with_workers[max(times, key=lambda k: sum(map(_ns, times[k])))],
        starts=sum(starts.values()),
        refills=sum(len(of) - starts[k] for k, of in times.items()),
        started=started,
        refilled=refilled,
        first_ns=sum(firsts),
        imports=_as_long(firsts, later),
        ended_ns=ended,
        left=facts.once(loaders.loaders_end),
        again=anew or max(starts.values()) > 1,
        anew=anew,
    )


def _made_anew(times: Collection[_Times]) -> bool:
    """Each loader began once: what would persist are the workers of a loader that is not used again."""
    return all(len(of) == 1 for of in times) and len({of[0][0].step for of in times}) > 1


def _as_long(firsts: Sequence[int], later: Sequence[int]) -> bool:
    return bool(later) and statistics.median(later) > limit("half_share") * statistics.median(firsts)


def _firsts(took: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """And the later ones."""
    return [of[0] for of in took], [ns for of in took for ns in of[1:]]


def _times(facts: Facts, with_workers: Mapping[int, Loader]) -> dict[int, _Times]:
    """By loader."""
    times: dict[int, _Times] = {}
    # A first fetch lies beside its start, never in it, so the two add up.
    spans = itertools.chain(facts.run.spans("loader_start"), facts.run.spans("first_fetch"))
    for s in sorted(spans, key=lambda s: s.start_ns):
        if s.object in with_workers and s.step >= 0:
            began = times.setdefault(s.object, [])
            if began and _belongs(began[-1], s):
                began[-1].append(s)
            else:
                began.append([s])
    return times


def _belongs(time: Sequence[Span], s: Span) -> bool:
    """Whether it is of that time too: each start has its first fetch, and zip(loader, loader) starts a loader twice."""
    fetched = sum(t.kind == "first_fetch" for t in time)
    return fetched == 0 if s.kind == "loader_start" else fetched < len(time) - fetched


def _ns(spans: Sequence[Span]) -> int:
    return sum(s.end_ns - s.start_ns for s in spans)


def _waited(facts: Facts, claims: Mapping[Cell, int]) -> int:
    """Of these: without waits for a CPU. A warning is measured by what the machine left to the run."""
    return sum(ns for cell, ns in claims.items() if facts.cause_of(cell) != "descheduled")
