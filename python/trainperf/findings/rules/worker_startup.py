"""TP104: the loop waits for the first batch of an epoch: worker processes start, or begin with an empty queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings import loaders
from trainperf.findings.facts import ms, plural
from trainperf.findings.model import Abstained, Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.runfile import Loader


@dataclass(frozen=True, slots=True)
class _Waits:
    """What iter(loader) and the first batch after it took: ns by step."""

    main: Loader  # that took the most
    started: Mapping[int, int]  # worker processes started there
    refilled: Mapping[int, int]  # those of an earlier epoch went on
    stopping_ns: int
    again: bool  # workers of a loader started more than once, or each start was of a loader made anew
    anew: bool

    @property
    def started_ns(self) -> int:
        return sum(self.started.values())

    @property
    def refilled_ns(self) -> int:
        return sum(self.refilled.values())

    @property
    def stops(self) -> bool:
        """Whether it takes notable time to stop them."""
        return self.stopping_ns > self.started_ns / 20

    @property
    def workers(self) -> str:
        return plural(loaders.num_workers(self.main), "worker")

    @property
    def options(self) -> str:
        method = str(self.main.description.get("multiprocessing_context") or "")
        how = f", started by {method}" if method else ""
        return f"persistent_workers={bool(self.main.description.get('persistent_workers'))}{how}"


class WorkerStartup:
    id = "TP104"
    slug = "worker-startup"
    limits = Limits(limit("rare_warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("hook_dataloader",)

    def check(self, facts: Facts) -> Outcome:
        waits = _waits(facts)
        if waits is None:
            return None
        if waits.again:
            return self._again(facts, waits)
        if waits.refilled_ns > waits.started_ns:
            return self._empty_queue(facts, waits)
        return self._once(facts, waits)

    def _again(self, facts: Facts, waits: _Waits) -> Outcome:
        claims = loaders.spread(facts.cells("data_wait", ["fetch"]), waits.started_ns + waits.stopping_ns)
        severity = facts.grade(sum(claims.values()), self.limits)
        if severity is None:
            return None
        count, workers, anew = len(waits.started), waits.workers, waits.anew
        each = ms(sum(claims.values()) / count)
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="data_wait",
            claims=claims,
            title="worker processes start again at every epoch",
            affected=count,
            confidence=facts.confidence(),
            evidence=(
                f"{count:,} of {facts.steps:,} steps wait {each} each for {workers} to start",
                f"{'each time of a new loader; ' if anew else ''}{waits.options}",
                f"{ms(waits.stopping_ns / count)} of it to stop them at an epoch's end" if waits.stops else "",
                f"the other {facts.steps - count:,} steps do not wait for it",
            ),
            who=_who(facts, waits),
            where=loaders.dataset_place(waits.main, facts),
            why=f"each {'new DataLoader' if anew else 'iter(loader)'} starts {workers}: {plural(count, 'time')}, "
            f"{each} each",
            fix=("# make the loader once, before the epochs:\n" if anew else "")
            + f"DataLoader(..., num_workers={loaders.num_workers(waits.main)}, persistent_workers=True)",
            will_not_help="more workers: each one makes the start longer",
        )

    def _once(self, facts: Facts, waits: _Waits) -> Outcome:
        claims = loaders.spread(facts.cells("data_wait", ["fetch"]), waits.started_ns + waits.stopping_ns)
        cost = sum(claims.values())
        if facts.grade(cost, self.limits) is None:
            return None
        if facts.steps < limit("critical_min_steps"):
            why = f"one worker start-up in {plural(facts.steps, 'step')}: run longer to tell"
            return Abstained(self.id, self.slug, why)
        first = _took(waits.started_ns)
        stop = " and stop" if waits.stops else ""
        return facts.finding(
            (self.id, self.slug),
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
            who=_who(facts, waits),
            where=loaders.dataset_place(waits.main, facts),
            why=f"the first batch came after {first}, which {waits.workers} took to start and make it",
            fix="# nothing, in a longer run",
            will_not_help="more workers: each one makes the start longer",
        )

    def _empty_queue(self, facts: Facts, waits: _Waits) -> Outcome:
        claims = loaders.spread(facts.cells("data_wait", ["fetch"]), waits.refilled_ns)
        if facts.grade(sum(claims.values()), self.limits) is None:
            return None
        count, each = len(waits.refilled), ms(sum(claims.values()) / len(waits.refilled))
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
                f"{count:,} of {facts.steps:,} steps wait {each} each for an epoch's first batch",
                f"persistent_workers=True: the same {waits.workers} in each epoch",
                f"the other {facts.steps - count:,} steps do not wait for it",
            ),
            who=_who(facts, waits),
            where=loaders.dataset_place(waits.main, facts),
            why=f"each epoch begins with an empty prefetch queue: {plural(count, 'time')}, {each} each",
            fix=fix,
            will_not_help="more workers, or a larger prefetch_factor: one worker makes the first batch",
        )


def _waits(facts: Facts) -> _Waits | None:
    trained = {k: v for k, v in facts.run.loaders.items() if not loaders.only_validates(v)}
    with_workers = {k: v for k, v in trained.items() if loaders.num_workers(v) > 0}
    first: dict[int, Counter[int]] = {}
    # A first fetch lies beside its start, never in it, so the two add up.
    for s in (*facts.run.spans("loader_start"), *facts.run.spans("first_fetch")):
        if s.object in with_workers and s.step >= 0:
            first.setdefault(s.object, Counter())[s.step] += s.end_ns - s.start_ns
    if not first:
        return None
    started: Counter[int] = Counter()
    refilled: Counter[int] = Counter()
    starts = {k: loaders.worker_starts(with_workers[k], len(steps)) for k, steps in first.items()}
    for k, steps in first.items():
        for i, step in enumerate(sorted(steps)):
            (started if i < starts[k] else refilled)[step] += steps[step]
    stopping = 0
    if len(with_workers) == len(trained):
        # What no fetch has: the last next() of an epoch, which stops the workers and waits for their end.
        fetched = sum(v.fetches.wall_ns for v in with_workers.values())
        whole = sum(facts.cells("data_wait", ["fetch"]).values())
        stopping = max(0, whole - sum(started.values()) - sum(refilled.values()) - fetched)
    # Each loader once: what would persist are the workers of a loader that is not used again.
    anew = len(started) > 1 and all(len(steps) == 1 for steps in first.values())
    return _Waits(
        main=with_workers[max(first, key=lambda k: sum(first[k].values()))],
        started=started,
        refilled=refilled,
        stopping_ns=stopping,
        again=anew or max(starts.values()) > 1,
        anew=anew,
    )


def _who(facts: Facts, waits: _Waits) -> tuple[str, str]:
    return facts.step_thread_name, plural(loaders.num_workers(waits.main), "worker process", "es")


def _took(ns: int) -> str:
    return ms(ns) if ns < 10**9 else f"{ns / 1e9:,.1f} s"
