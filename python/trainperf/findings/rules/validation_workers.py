"""TP705: the validation loader's workers start anew at each validation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import loaders
from trainperf.findings.facts import ms, plural
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts


class ValidationWorkers:
    id = "TP705"
    slug = "validation-workers"
    limits = Limits(limit("framework_part_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("hook_dataloader",)

    def check(self, facts: Facts) -> Outcome:
        mine = {k: v for k, v in facts.run.loaders.items() if loaders.only_validates(v) and loaders.num_workers(v) > 0}
        starts = [s for s in facts.run.spans("loader_start") if s.object in mine and s.step >= 0]
        spans = [*starts, *(s for s in facts.run.spans("first_fetch") if s.object in mine and s.step >= 0)]
        if len({s.step for s in starts}) < 2:
            return None  # one start is no habit
        lost = sum(s.end_ns - s.start_ns for s in spans)
        claims = loaders.spread(facts.cells("validation"), lost)
        severity = facts.grade(sum(claims.values()), self.limits)
        if severity is None:
            return None
        main = max(mine.values(), key=lambda v: sum(s.end_ns - s.start_ns for s in spans if s.object == v.id))
        if main.description.get("persistent_workers"):
            return None
        workers = loaders.num_workers(main)
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="validation",
            claims=claims,
            by_device=False,
            title="the validation loader starts its worker processes again each time",
            affected=len({s.step for s in starts}),
            confidence=facts.confidence(),
            evidence=(
                f"{plural(len(starts), 'start')} of {plural(workers, 'worker')}, {ms(lost / len(starts))} each with the"
                " first batch",
                "persistent_workers=False",
            ),
            who=(facts.step_thread_name, plural(workers, "worker process", "es")),
            where=loaders.dataset_place(main, facts),
            why=f"each validation begins with iter(loader), which starts {plural(workers, 'worker')}",
            fix=f"DataLoader(..., num_workers={workers}, persistent_workers=True)  # of the validation data",
            will_not_help="more workers: each one makes the start longer",
        )
