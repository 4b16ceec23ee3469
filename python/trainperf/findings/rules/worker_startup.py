"""TP104: the loop waits for a loader to begin: worker processes start, or have an empty queue; or it begins again for
each batch."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings import frames, loaders
from trainperf.findings.facts import ms, plural
from trainperf.findings.model import Abstained, Limits, Outcome
from trainperf.findings.text import NOTHING
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.model import Cell, Finding
    from trainperf.findings.restarts import Outside, Restarts
    from trainperf.runfile import Loader
    from trainperf.runfile.records import Span


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
    left: Outside  # and where the loop left an epoch before
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

    def first_share(self, loaders: int) -> float:
        """Of all of it, what the first start of each of so many loaders takes, and to stop its workers."""
        stopping = self.stopping_ns * min(loaders, self.starts) // self.starts
        return min(1.0, (self.first_ns + stopping) / max(1, self.started_ns + self.stopping_ns))

    @property
    def workers(self) -> str:
        return plural(loaders.num_workers(self.main), "worker")

    @property
    def method(self) -> str:
        """ "fork", "spawn", "forkserver" or ""."""
        return str(self.main.description.get("multiprocessing_context") or "")

    @property
    def options(self) -> str:
        how = f", started by {self.method}" if self.method else ""
        return f"persistent_workers={bool(self.main.description.get('persistent_workers'))}{how}"


class WorkerStartup:
    id = "TP104"
    slug = "worker-startup"
    limits = Limits(limit("rare_warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("hook_dataloader",)

    def check(self, facts: Facts) -> Outcome:
        restarts = facts.restarts
        again = self._each_batch(facts, restarts) if restarts is not None else None
        if again is not None:
            return again
        waits = _waits(facts)
        if waits is None:
            return None
        if waits.again:
            return self._again(facts, waits)
        if waits.refilled_ns > waits.started_ns:
            return self._empty_queue(facts, waits)
        return self._once(facts, waits)

    def _each_batch(self, facts: Facts, restarts: Restarts) -> Finding | None:
        claims, main, left = restarts.claims, restarts.main, restarts.left
        severity = facts.grade(sum(claims.values()), self.limits)
        if severity is None:
            return None
        workers = loaders.num_workers(main)
        each = ms(sum(claims.values()) / restarts.starts)
        which = "each" if restarts.batches < 1.5 * restarts.starts else "every second"
        samples = facts.samples(phases=["fetch"])
        begins = [d for d in samples if frames.begins_loader(facts.run.stack(d.stack))] or samples
        called = facts.spots(begins, seen_from=lambda stack: stack[frames.in_loaders(stack) :])
        drawn = sum(d.count for d in samples if frames.in_sampler(facts.run.stack(d.stack))) if not workers else None
        if workers and main.description.get("persistent_workers"):
            does = "begins with an empty prefetch queue, and throws away what is in it"
            wont = "more workers, a larger prefetch_factor: no batch is made ahead of an iterator that is thrown away"
        elif workers:
            does = f"starts {plural(workers, 'worker')}, to be stopped again after {which} batch"
            wont = "more workers, persistent_workers alone: each start would still wait for its first batch"
        else:
            does = f"draws all of an epoch's indices again ({_sampler(main)})"
            wont = "more workers, persistent_workers alone: the training process draws the indices, again at each start"
        same = "" if _shuffles(main) else "a loader that does not shuffle begins with the same batch each time"
        return facts.finding(
            (self.id, "loader-restarts"),
            severity=severity,
            cause="data_wait",
            claims=claims,
            title=f"the DataLoader begins again for {which} batch ({restarts.starts:,} times in "
            f"{plural(facts.steps, 'step')})",
            confidence=facts.confidence(samples=drawn, tier="" if workers else "sampled"),
            evidence=(
                f"{plural(restarts.starts, 'start')} for {plural(restarts.batches, 'batch', 'es')}, {each} each",
                f"{ms(restarts.sampled_ns / restarts.starts)} of it to draw the indices, on the training thread"
                if restarts.sampled_ns
                else "",
                f"{ms(left.ns / restarts.starts)} of it {'to stop the workers' if workers else 'to free the indices'}"
                if left.ns > sum(claims.values()) / 20
                else "",
                f"num_workers={workers}"
                + (f", persistent_workers={bool(main.description.get('persistent_workers'))}" if workers else ""),
                same,
            ),
            who=_who(facts, workers),
            where=facts.where(called[0] if called else None) or loaders.dataset_place(main, facts),
            why=f"each iter(loader) {does}: {plural(restarts.starts, 'time')}, {each} each",
            fix=("# make the loader once, too\n" if restarts.anew else "")
            + "batches = iter(loader)  # once, before the loop\n"
            "batch = next(batches)  # at StopIteration: batches = iter(loader)",
            will_not_help=wont,
        )

    def _again(self, facts: Facts, waits: _Waits) -> Outcome:
        claims = _claims(facts, waits)
        # A first start may be most of it: that of a fork server, which imports the program once.
        again = 1 - waits.first_share(1 if waits.anew else len(loaders.with_workers_of(facts)))
        severity = facts.grade(int(_waited(facts, claims) * again), self.limits)
        if severity is None:
            return self._once(facts, waits)
        count, workers, anew = len(waits.started), waits.workers, waits.anew
        starts = plural(waits.starts, "start")
        each = ms(sum(claims.values()) / waits.starts)
        return facts.finding(
            (self.id, self.slug),
            role="once",
            severity=severity,
            cause="data_wait",
            claims=claims,
            title="worker processes start again at every epoch",
            affected=count,
            confidence=facts.confidence(),
            evidence=(
                f"{count:,} of {facts.steps:,} steps wait for {workers} to start: {starts}, {each} each",
                f"{'each time of a new loader; ' if anew else ''}{waits.options}",
                f"the first took {_took(waits.first_ns)}, as the fork server imports the program then"
                if waits.method == "forkserver" and not waits.imports
                else "",
                f"{ms(waits.stopping_ns / waits.starts)} of it to stop them at an epoch's end" if waits.stops else "",
                f"the other {facts.steps - count:,} steps do not wait for it",
            ),
            who=_who(facts, loaders.num_workers(waits.main)),
            where=loaders.dataset_place(waits.main, facts),
            why=f"each {'new DataLoader' if anew else 'iter(loader)'} starts {workers}: "
            f"{plural(waits.starts, 'time')}, {each} each",
            fix=("# make the loader once, before the epochs:\n" if anew else "")
            + f"DataLoader(..., persistent_workers=True, num_workers={loaders.num_workers(waits.main)})"
            + _faster_starts(waits),
            fix_share=again,
            will_not_help="more workers: each one makes the start longer",
        )

    def _once(self, facts: Facts, waits: _Waits) -> Outcome:
        claims = _claims(facts, waits)
        cost = sum(claims.values())
        if facts.grade(_waited(facts, claims), self.limits) is None:
            return None
        if facts.steps < limit("critical_min_steps"):
            why = f"one worker start-up in {plural(facts.steps, 'step')}: run longer to tell"
            return Abstained(self.id, self.slug, why)
        first = _took(waits.first_ns)
        stop = " and stop" if waits.stops else ""
        return facts.finding(
            (self.id, self.slug),
            role="once",
            severity="info",
            cause="data_wait",
            claims=claims,
            title=f"worker start-up{stop} took {_took(cost)} of this short run (longer runs pay it once)",
            affected=len(waits.started) + waits.stops,  # it stops in the last step
            confidence=facts.confidence(),
            evidence=(
                f"{first} until the first batch: {waits.workers} start, import, and make it",
                f"{_took(waits.stopping_ns)} to stop them at the epoch's end" if waits.stops else "",
                waits.options,
                f"the other {facts.steps - len(waits.started) - waits.stops:,} steps do not wait for it",
            ),
            who=_who(facts, loaders.num_workers(waits.main)),
            where=loaders.dataset_place(waits.main, facts),
            why=f"the first batch came after {first}, which {waits.workers} took to start and make it",
            fix=NOTHING,
            fix_share=0.0,
            will_not_help="more workers: each one makes the start longer",
        )

    def _empty_queue(self, facts: Facts, waits: _Waits) -> Outcome:
        claims = loaders.spread(facts.cells("data_wait", ["fetch"]), waits.refilled_ns)
        if facts.grade(sum(claims.values()), self.limits) is None:
            return None
        count, epochs = len(waits.refilled), plural(waits.refills, "time")
        each = ms(sum(claims.values()) / waits.refills)
        if loaders.is_stream(waits.main):
            fix = "# fewer and longer epochs, where they need not be short: __iter__ reads the data several times"
        else:
            fix = (
                "# fewer and longer epochs, where they need not be short; four passes in one:\n"
                "DataLoader(..., sampler=torch.utils.data.RandomSampler(dataset, num_samples=4 * len(dataset)))"
            )
        return facts.finding(
            (self.id, "first-batches"),
            severity="info",
            cause="data_wait",
            claims=claims,
            title="the first batch of each epoch waits, as the prefetch queue starts empty",
            affected=count,
            confidence=facts.confidence(),
            evidence=(
                f"{count:,} of {facts.steps:,} steps wait for an epoch's first batch: {epochs}, {each} each",
                f"persistent_workers=True: the same {waits.workers} in each epoch",
                f"the other {facts.steps - count:,} steps do not wait for it",
            ),
            who=_who(facts, loaders.num_workers(waits.main)),
            where=loaders.dataset_place(waits.main, facts),
            why=f"each epoch begins with an empty prefetch queue: {epochs}, {each} each",
            fix=fix,
            will_not_help="more workers, or a larger prefetch_factor: one worker makes the first batch",
        )


def _faster_starts(waits: _Waits) -> str:
    """Where each start imports what the program has imported: another way to start, as long as workers start again."""
    if waits.method not in ("spawn", "forkserver") or not waits.imports:
        return ""
    use = '\nDataLoader(..., multiprocessing_context="forkserver")' if waits.method == "spawn" else ""
    return (
        "\n# or, where workers must start again: import once, in the fork server, before the first loader\n"
        f'multiprocessing.set_forkserver_preload(["__main__", "torch"]){use}'
    )


def _belongs(time: Sequence[Span], s: Span) -> bool:
    """Whether it is of that time too: each start has its first fetch, and zip(loader, loader) starts a loader twice."""
    fetched = sum(t.kind == "first_fetch" for t in time)
    return fetched == 0 if s.kind == "loader_start" else fetched < len(time) - fetched


def _waits(facts: Facts) -> _Waits | None:
    trained = {k: v for k, v in facts.run.loaders.items() if not loaders.only_validates(v)}
    with_workers = {k: v for k, v in trained.items() if loaders.num_workers(v) > 0}
    first: dict[int, list[list[Span]]] = {}  # by loader: of each time that it began
    # A first fetch lies beside its start, never in it, so the two add up.
    spans = (*facts.run.spans("loader_start"), *facts.run.spans("first_fetch"))
    for s in sorted(spans, key=lambda s: s.start_ns):
        if s.object in with_workers and s.step >= 0:
            began = first.setdefault(s.object, [])
            if began and _belongs(began[-1], s):
                began[-1].append(s)
            else:
                began.append([s])
    if not first:
        return None
    started: Counter[int] = Counter()
    refilled: Counter[int] = Counter()
    starts = {k: loaders.worker_starts(with_workers[k], len(times)) for k, times in first.items()}
    for k, times in first.items():
        for i, time in enumerate(times):
            for s in time:
                (started if i < starts[k] else refilled)[s.step] += s.end_ns - s.start_ns
    stopping = 0
    if len(with_workers) == len(trained):
        # What no fetch has: the last next() of an epoch, which stops the workers and waits for their end.
        fetched = sum(v.fetches.wall_ns for v in with_workers.values())
        # Walls, as these are: with what kept the thread off the CPU meanwhile.
        whole = facts.run.phase_ns("fetch")
        stopping = max(0, whole - sum(started.values()) - sum(refilled.values()) - fetched)
    # Each loader once: what would persist are the workers of a loader that is not used again.
    once_each = all(len(times) == 1 for times in first.values())
    anew = once_each and len({times[0][0].step for times in first.values()}) > 1
    # What each start took: by loader, in the order in which they began.
    took = [[sum(s.end_ns - s.start_ns for s in time) for time in times[: starts[k]]] for k, times in first.items()]
    if anew:
        took = [[times[0] for times in took]]
    firsts, later = [times[0] for times in took], [ns for times in took for ns in times[1:]]
    return _Waits(
        main=with_workers[max(first, key=lambda k: sum(s.end_ns - s.start_ns for time in first[k] for s in time))],
        starts=sum(starts.values()),
        refills=sum(len(times) - starts[k] for k, times in first.items()),
        started=started,
        refilled=refilled,
        first_ns=sum(firsts),
        imports=bool(later) and statistics.median(later) > limit("half_share") * statistics.median(firsts),
        ended_ns=stopping,
        left=facts.loaders_end,
        again=anew or max(starts.values()) > 1,
        anew=anew,
    )


def _claims(facts: Facts, waits: _Waits) -> dict[Cell, int]:
    """Of starting the workers, and stopping them: with the waits for a CPU, which the same processes compete for."""
    cells = facts.cells("data_wait", ["fetch"]) | facts.cells("descheduled", ["fetch"])
    fetched = loaders.spread(cells, waits.started_ns + waits.ended_ns)
    return fetched | waits.left.claims


def _waited(facts: Facts, claims: Mapping[Cell, int]) -> int:
    """Of these: without waits for a CPU. A warning is measured by what the machine left to the run."""
    return sum(ns for cell, ns in claims.items() if facts.cause_of(cell) != "descheduled")


def _sampler(loader: Loader) -> str:
    """ "RandomSampler of 3,000,000"."""
    named = loader.description.get("batch_sampler")
    named = loader.description.get("sampler") if named in (None, "", "BatchSampler") else named
    length = loader.description.get("dataset_length")
    return f"{named or 'its sampler'}{f' of {length:,}' if isinstance(length, int) else ''}"


def _shuffles(loader: Loader) -> bool:
    """Or is not known to do otherwise."""
    return loader.description.get("sampler") != "SequentialSampler"


def _who(facts: Facts, workers: int) -> tuple[str, str]:
    return facts.step_thread_name, plural(workers, "worker process", "es") if workers else ""


def _took(ns: int) -> str:
    return ms(ns) if ns < 10**9 else f"{ns / 1e9:,.1f} s"
