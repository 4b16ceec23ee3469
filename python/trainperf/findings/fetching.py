"""What the training thread does in the fetches whose batches it makes itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings import cpus, frames, loaders
from trainperf.findings.facts import plural
from trainperf.findings.handovers import Wait, awaited, handover, in_event_loop, told_beside
from trainperf.findings.syscalls import call_of, waiting_kind
from trainperf.findings.thresholds import limit
from trainperf.findings.weights import weighed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trainperf.findings.facts import Facts, Spot
    from trainperf.findings.handovers import Handover
    from trainperf.findings.model import Cell, Confidence
    from trainperf.runfile import Detail


@dataclass(frozen=True, slots=True)
class Fetching(Wait):
    """Where its time goes, as samples tell; and whom it waits for, as they stand meanwhile."""

    blocked: float  # of the time
    waits: bool  # in the costliest place
    call: str  # in which it waits: "sleep: nanosleep"; "" where it does not, or where it is not known
    # CPUs that other threads used, at least, while it waited for a lock; None: none, or not asked.
    busy_threads: float | None

    @classmethod
    def of(cls, facts: Facts, cells: Mapping[Cell, int], *, without_sampler: bool) -> Fetching:
        """`cells`: the fetches' time."""
        samples = facts.samples(phases=["fetch"], states=["python", "native", "parallel", "blocked"])
        if without_sampler:
            samples = [d for d in samples if not frames.in_sampler(facts.run.stack(d.stack))]
        samples = weighed(samples, cells)
        # A look that took a moment may show what was before the fetch, such as `loss.backward()`.
        spots = facts.spots(samples)
        if all(v.description.get("is_dataloader", True) for v in facts.run.loaders.values()):
            spots = facts.spots(samples, keep=frames.in_loader) or facts.spots(samples, keep=frames.without_torch)
        top = spots[0] if spots else None
        of_top = [d for d in samples if top is not None and facts.is_at(d, top)]
        blocked = cells.get(("fetch", "blocked"), 0) / max(1, sum(cells.values()))
        waits = (loaders.blocked_share(of_top) if of_top else blocked) >= limit("half_share")
        call = _waits_in(facts, top, of_top or samples) if waits else ""
        if not call.startswith("lock"):
            return cls(spots=spots, beside=(), timed=False, blocked=blocked, waits=waits, call=call, busy_threads=None)
        beside = facts.beside(["fetch"])
        timed = top is not None and facts.timed(samples, top)
        return cls(
            spots=spots,
            beside=beside,
            timed=timed,
            blocked=blocked,
            waits=waits,
            call=call,
            busy_threads=None if awaited(beside, timed=timed) else _busy_threads(facts),
        )

    @property
    def in_lock(self) -> bool:
        return self.call.startswith("lock")

    @property
    def overlaps(self) -> bool:
        """Most of it is waiting, of which workers could do several at once."""
        return self.waits and not self.in_lock and self.blocked >= limit("half_share")

    @property
    def for_threads(self) -> bool:
        """It waits for threads that compute."""
        return self.busy_threads is not None and self.busy_threads >= limit("own_threads_cpus")

    @property
    def handover(self) -> Handover | None:
        """What it waits at for other threads."""
        return handover(self.top.frames) if self.in_lock and self.top is not None else None

    def holder(self, facts: Facts) -> str:
        """Where the one is that it waits for; "" where that is not known."""
        return facts.label(self.waited_for.spot) if self.waited_for is not None else ""

    def why(self, facts: Facts, name: str) -> str:
        """What it does, and where. `name`: of the data."""
        doing = "computes"
        if facts.of_trace:
            doing = "is read"
        elif self.waits:
            doing = f"waits ({self.call})" if self.call else "waits"
        at = facts.label_with_caller(self.top) if self.top is not None and _is_of_users(self.top) else name
        why = f"{at} {doing} on the training thread"
        if self.top is not None and not _is_of_users(self.top):
            why += f": most of it library code, called by {frames.label(self.top.frame, facts.base)}"
        if self.waited_for is not None:
            why = f"{self.waited_for.name} is in {self.holder(facts)} while {why}"
        return f"{why}, while other threads of this process compute" if self.for_threads else why

    def evidence(self, facts: Facts) -> Iterator[str]:
        """Where it is, and what others do meanwhile."""
        for spot in self.spots[:2]:
            if spot is self.top or spot.share >= limit("felt_share"):
                at = facts.label(spot) if _is_of_users(spot) else "library code"
                yield f"{spot.share:.0%} of its {plural(self.samples, 'sample')} are in {at}"
        if self.for_threads:
            yield f"other threads of this process use {self.busy_threads:.1f} CPUs or more, beside torch's"
        for other in self.beside[:3]:
            yield told_beside(facts, other)

    def confidence(self, facts: Facts) -> tuple[Confidence, str]:
        level, why = facts.confidence() if facts.of_trace else facts.confidence(samples=self.samples)
        if not self.for_threads:
            return level, why
        return "low" if level == "low" else "medium", f"{why}; that it waits for those threads is inferred"


def _is_of_users(spot: Spot) -> bool:
    """Code that the loader calls, or a loop that makes its batches without one; else the loop's line that fetches."""
    at = next((i for i, f in enumerate(spot.frames) if frames.is_users(f, spot.frames)), 0)
    return at < frames.in_loaders(spot.frames)


def _busy_threads(facts: Facts) -> float | None:
    """CPUs that other threads use, at least, such as a library's, which may make the data. None: they are known to use
    none."""
    between = cpus.threads_beside(facts)
    if between is None:
        return 0.0
    least, most = between
    return None if most < limit("own_threads_cpus") else least


def _waits_in(facts: Facts, top: Spot | None, samples: Sequence[Detail]) -> str:
    if top is not None and in_event_loop(top.frames):
        return "asyncio's event loop"
    name = call_of(samples, facts.machine)
    kind = waiting_kind(name)
    return f"{kind}: {name}" if kind != "other" else name
