"""TP502: the device idles because a thread that should feed it waits for the GIL, and no host finding says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import gil
from trainperf.findings.facts import ms
from trainperf.findings.model import Abstained, Limits, Outcome
from trainperf.findings.rule import DeviceRule
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.gpu import Gpu


class GpuGilWait(DeviceRule):
    id = "TP502"
    slug = "gpu-gil-wait"
    limits = Limits(limit("warn_share"), limit("critical_share"))

    def look(self, facts: Facts, device: Gpu) -> Outcome:
        why = facts.off("gil_waits")
        if why is not None:
            return Abstained(self.id, self.slug, why)
        idle = facts.ledger.idle(["gil_wait"])
        cost = sum(idle.values())
        severity = facts.grade(cost, self.limits)
        if severity is None:
            return None
        holders = facts.holders(kind="idle_gil_wait")
        spot = holders[0].spot if holders else None
        who = holders[0].name if holders else "another thread"
        at = f" in {facts.label(spot)}" if spot is not None else ""
        if spot is not None and holders[0].second is not None:
            at = f": {facts.label_of_two(spot, holders[0].second, 'in ')}"
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="gil_wait",
            claims=facts.ledger.cells("gil_wait"),
            idle=idle,
            title=f"{device.name} waits for {who}, which holds the GIL",
            affected=facts.affected_by(device.column(idle)),
            confidence=facts.confidence(samples=holders[0].waits if spot is not None else None, doubts=device.doubts),
            evidence=(
                gil.device_text(facts) or f"{device.name} waited {ms(cost / facts.steps)} a step for the GIL's holder",
                "the waits are those of threads that launch its work, the training thread's among them",
            ),
            who=[h.name for h in holders[:3]],
            where=facts.where(spot),
            why=f"{who} holds the GIL{at}, and nobody can launch work",
            fix=gil.in_a_process(holders[0] if holders else None),
            will_not_help=gil.WILL_NOT_HELP,
        )
