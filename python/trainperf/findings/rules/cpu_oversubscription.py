"""TP602: the run is set to use more CPUs than there are, and its threads and processes wait for each other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainperf.findings import cpus
from trainperf.findings.facts import ms, plural
from trainperf.findings.model import Abstained, Cell, Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts


class CpuOversubscription:
    id = "TP602"
    slug = "cpu-oversubscription"
    limits = Limits(limit("descheduled_warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ()

    def check(self, facts: Facts) -> Outcome:
        wants = cpus.demand(facts)
        if not (wants.over_cpus or wants.over_quota):
            return None
        blind = facts.off("run_delay") if wants.over_cpus else facts.off("throttling")
        if blind is not None:
            return Abstained(self.id, self.slug, blind)
        in_waits = cpus.load_in_waits(facts)
        by_delay = wants.over_cpus and cpus.whose(wants, in_waits) == "oversubscribed"
        load = in_waits if by_delay else cpus.load(facts)
        claims: dict[Cell, int] = facts.waits_for_cpu() if by_delay else {}
        waited = sum(claims.values())
        if wants.over_quota:
            claims |= facts.cells("throttled")
        cost = sum(claims.values())
        severity = facts.grade(cost, self.limits, machine=True)
        # Our threads take CPU too, and where CPUs are short that is what the training thread waits for.
        if severity is None or cost < facts.own_cpu_ns:
            return None
        stopped = cost - waited
        room = wants.cpus if not wants.over_quota else min(wants.cpus or math.inf, wants.quota)
        have = plural(wants.cpus, "CPU")
        if wants.over_quota and room == wants.quota:
            have = f"a quota of {wants.quota:g} CPU{'' if wants.quota == 1 else 's'}"
        each = max(1, int(room / wants.ranks))
        ranks = f"{plural(wants.ranks, 'rank')} of " if wants.ranks > 1 else ""
        doing = plural(max(1, wants.threads), "torch thread")
        with_workers = f" and {plural(wants.workers, 'worker')}" if wants.workers else ""
        threads = max(1, each - wants.workers)
        # Where the loop waits for its workers, fewer make it slower.
        needs_workers = facts.share(facts.cause_ns("data_wait")) >= limit("warn_share")
        fix = f"torch.set_num_threads({threads})"
        if wants.workers >= each and needs_workers and wants.threads <= 1:
            fix = "# as the loop waits for its workers: more CPUs, or make their samples cheaper"
        elif wants.workers >= each and not needs_workers:
            fix = f"DataLoader(..., num_workers={max(1, each - 1)})" + (f"\n{fix}" if wants.threads > 1 else "")
        if wants.ranks > 1:
            fix = f"OMP_NUM_THREADS={threads} torchrun ...  # or {fix.removeprefix('# ')}"
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="descheduled" if waited >= stopped else "throttled",
            claims=claims,
            title=f"more threads and processes compute than there are CPUs: {wants.wanted} on {have}",
            affected=facts.affected("descheduled" if waited >= stopped else "throttled"),
            confidence=facts.confidence(),
            evidence=(
                f"{facts.of_step(waited)} the training thread is ready and waits for a CPU" if waited else "",
                f"{ms(stopped / facts.steps)} a step the container's quota stops it" if stopped else "",
                f"{ranks}{doing}{with_workers} on {have}",
                load.text,
            ),
            who=(facts.step_thread_name,),
            why=f"{ranks}{doing}{with_workers} share {have}",
            fix=fix,
            will_not_help="more threads or workers: they compete for the same CPUs",
        )
