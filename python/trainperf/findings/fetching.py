"""What the training thread does in the fetches whose batches it makes itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings import cpus, frames, loaders
from trainperf.findings.model import Params, Said, Sure
from trainperf.findings.syscalls import call_of, waiting_kind
from trainperf.findings.text import Count, Share
from trainperf.findings.thresholds import limit
from trainperf.findings.waits import Wait, awaited, handover, in_event_loop
from trainperf.findings.weights import weighed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainperf.findings.facts import Facts, Spot
    from trainperf.findings.model import Cell
    from trainperf.findings.waits import Handover
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

    def params(self, facts: Facts, name: str | Said) -> Params:
        """What it does, where, and what others do meanwhile. `name`: of the data."""
        by_trace = facts.of_trace  # which tells no states of threads
        return {
            **self._place(facts, name),
            "doing": Said("is_read" if by_trace else "waits_in_call" if self.waits else "computes"),
            "call": None if by_trace else self.call or None,
            "on_cpu": None if by_trace else Share(1 - self.blocked),
            "blocked": Share(self.blocked),
            "busy": self.busy_threads if self.for_threads else None,  # CPUs
            "samples": Count(self.samples),
            "spots": tuple(
                {"share": Share(spot.share), "place": facts.label(spot) if _is_of_users(spot) else Said("library_code")}
                for spot in self.spots[:2]
                if spot is self.top or spot.share >= limit("felt_share")
            ),
            **self.others(facts),
        }

    def _place(self, facts: Facts, name: str | Said) -> Params:
        top = self.top
        users = top is not None and _is_of_users(top)
        return {
            "at": facts.label_with_caller(top) if top is not None and users else name,
            "library_by": frames.label(top.frame, facts.base) if top is not None and not users else None,
        }

    def sure(self, facts: Facts) -> Sure:
        return Sure(
            samples=None if facts.of_trace else self.samples,
            doubts=(Said("threads_inferred"),) if self.for_threads else (),
        )


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
