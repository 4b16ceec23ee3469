"""TP503: the device idles while the loop waits for its next batch, and no finding about the loaders says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import loaders
from trainperf.findings.cpu_use import usable_cpus
from trainperf.findings.facts import ms, plural
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.rule import DeviceRule
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.gpu import Gpu


class GpuStarvedByData(DeviceRule):
    id = "TP503"
    slug = "gpu-starved-by-data"
    limits = Limits(limit("warn_share"), limit("critical_share"))

    def look(self, facts: Facts, device: Gpu) -> Outcome:
        idle = facts.ledger.idle(["data_wait"])
        cost = sum(idle.values())
        severity = facts.grade(cost, self.limits)
        if severity is None:
            return None
        cpus = usable_cpus(facts.run)
        spots = facts.spots(facts.samples(phases=["fetch"]))
        top = spots[0] if spots else None
        of_workers = [v for v in facts.run.loaders.values() if loaders.num_workers(v) > 0]
        ready, took = sum(map(loaders.ready_count, of_workers)), sum(map(loaders.ready_ns, of_workers))
        wont = "a faster GPU, mixed precision, torch.compile: it has no work"
        if ready > sum(map(loaders.starved_count, of_workers)):
            why = f"the next batch is ready when it is asked for, and taking it over takes {ms(took / ready)}"
            fix = f"# fewer, larger tensors per batch; or ask for the next batch before you wait for {device.name}"
            wont = f"more workers: batches are ready; {wont}"
        else:
            have = max((loaders.num_workers(v) for v in of_workers), default=0)
            workers = max(have + 1, min(8, cpus - 1) if cpus else 4, 2)
            why = "the next batch is asked for when the last one's work is done, and is not ready"
            if top is not None and not of_workers:
                why = f"{facts.label(top)} makes the batch while {device.name} waits"
            fix = f"DataLoader(..., num_workers={workers}, pin_memory=True, persistent_workers=True)"
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="data_wait",
            claims=facts.ledger.cells("data_wait"),
            idle=idle,
            title=f"{device.name} has no work while the loop waits for its next batch",
            affected=facts.affected_by(device.column(idle)),
            confidence=facts.confidence(doubts=device.doubts),
            evidence=(
                f"{device.name} idled {ms(cost / facts.steps)} a step for data: "
                f"{cost / device.idle_ns:.0%} of its idle time",
                f"the loop spends {facts.of_step(facts.cause_ns('data_wait'))} fetching",
                f"a step's first kernel starts {ms(device.device.totals.first_kernel_ns)} after the step does"
                if device.device.totals.first_kernel_ns
                else "",
                f"{plural(cpus, 'CPU')} usable" if cpus else "",
            ),
            who=(facts.step_thread_name,),
            where=facts.where(top),
            why=why,
            fix=fix,
            will_not_help=wont,
        )
