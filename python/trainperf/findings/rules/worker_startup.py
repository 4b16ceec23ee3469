"""TP104: worker processes are started anew at every epoch, and the loop waits for their first batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import loaders
from trainperf.findings.facts import ms, plural
from trainperf.findings.model import Abstained, Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts


class WorkerStartup:
    id = "TP104"
    slug = "worker-startup"
    limits = Limits(limit("rare_warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("hook_dataloader",)

    def check(self, facts: Facts) -> Outcome:
        with_workers = {
            k: v for k, v in facts.run.loaders.items() if loaders.num_workers(v) > 0 and not loaders.only_validates(v)
        }
        if not with_workers:
            return None
        spans = [
            s
            for kind in ("loader_start", "first_fetch")
            for s in facts.run.spans(kind)
            if s.object in with_workers and s.step >= 0
        ]
        # A first fetch lies beside its start, never in it, so the two add up.
        lost = sum(s.end_ns - s.start_ns for s in spans)
        steps = {s.step for s in spans}
        cells = facts.cells("data_wait", ["fetch"])
        stopping = 0
        if len(with_workers) == sum(not loaders.only_validates(v) for v in facts.run.loaders.values()):
            # What no fetch has: the last next() of an epoch, which stops the workers and waits for their end.
            fetched = sum(v.fetches.wall_ns for v in with_workers.values())
            stopping = max(0, sum(cells.values()) - lost - fetched) if steps else 0
        claims = loaders.spread(cells, lost + stopping)
        severity = facts.grade(sum(claims.values()), self.limits)
        if severity is None:
            return None
        main = max(with_workers.values(), key=lambda v: sum(s.end_ns - s.start_ns for s in spans if s.object == v.id))
        workers = loaders.num_workers(main)
        # Each loader once: what would persist are the workers of a loader that is not used again.
        anew = len(steps) > 1 and all(len({s.step for s in spans if s.object == k}) < 2 for k in with_workers)
        persistent = bool(main.description.get("persistent_workers")) and not anew
        if len(steps) < 2 or persistent:
            if not persistent and facts.steps < limit("critical_min_steps"):
                return Abstained(
                    self.id, self.slug, f"one worker start-up in {plural(facts.steps, 'step')}: run longer to tell"
                )
            severity = "info"
        method = str(main.description.get("multiprocessing_context") or "")
        each = sum(claims.values()) / max(1, len(steps))
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="data_wait",
            claims=claims,
            title="worker processes start again at every epoch" if len(steps) > 1 else "worker processes start up",
            affected=len(steps),
            confidence=facts.confidence(),
            evidence=(
                f"{len(steps):,} of {facts.steps:,} steps wait{'s' if len(steps) == 1 else ''} {ms(each)} each "
                f"for {plural(workers, 'worker')} to start",
                ("each time of a new loader; " if anew else "")
                + f"persistent_workers={bool(main.description.get('persistent_workers'))}"
                + (f", started by {method}" if method else ""),
                f"{ms(stopping / len(steps))} of it to stop them at an epoch's end" if stopping > lost / 20 else "",
                f"the other {facts.steps - len(steps):,} steps do not wait for it",
            ),
            who=(facts.step_thread_name, plural(workers, "worker process", "es")),
            where=loaders.dataset_place(main, facts),
            why=f"each {'new DataLoader' if anew else 'iter(loader)'} starts {plural(workers, 'worker')}: "
            f"{plural(len(steps), 'time')}, {ms(each)} each",
            fix=(
                "# nothing, in a longer run"
                if len(steps) < 2
                else "longer epochs; fewer workers"
                if persistent
                else ("# make the loader once, before the epochs:\n" if anew else "")
                + f"DataLoader(..., num_workers={workers}, persistent_workers=True)"
            ),
            will_not_help="more workers: each one makes the start longer",
        )
