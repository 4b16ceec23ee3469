"""TP505: batches are copied to the device from pageable memory: slower, and the host waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings.facts import ms, size
from trainperf.findings.model import Abstained, Limits, Outcome
from trainperf.findings.rule import DeviceRule
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.gpu import Gpu


class PageableCopies(DeviceRule):
    id = "TP505"
    slug = "pageable-copies"
    limits = Limits(limit("rare_warn_share"), limit("critical_share"))

    def look(self, facts: Facts, device: Gpu) -> Outcome:
        copies = [c for c in device.copies if c.direction == "h2d"]
        whole = sum(c.bytes for c in copies)
        pageable = [c for c in copies if c.src == "pageable"]
        paged = sum(c.bytes for c in pageable)
        idle = facts.ledger.idle(["h2d_copy"])
        exposed = sum(c.exposed_ns for c in pageable)
        # Idleness is of all copies; as much of it as the bytes say is these ones'.
        idle = {cause: ns * paged // whole for cause, ns in idle.items()} if whole else {}
        severity = facts.grade(sum(idle.values()) + exposed, self.limits)
        if severity is None:
            if not copies or any(c.src != "unknown" for c in copies):
                return None
            exposed = sum(c.exposed_ns for c in copies)
            if facts.grade(exposed + sum(facts.ledger.idle(["h2d_copy"]).values()), self.limits) is None:
                return None
            return Abstained(self.id, self.slug, "whether copies come from pinned memory was not recorded")
        count = sum(c.count for c in pageable)
        ns = sum(c.ns for c in pageable)
        spots = facts.call_spots("memcpy")
        top = spots[0] if spots else None
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="h2d_copy",
            claims=facts.ledger.cells("h2d_copy"),
            idle=idle,
            exposed_ns=exposed,
            title="batches are copied from pageable memory",
            affected=facts.affected_by(device.column(["h2d_copy"]) + device.device.steps.exposed_copy_ns),
            confidence=facts.confidence(doubts=device.doubts),
            evidence=(
                f"{device.name} lost {ms((sum(idle.values()) + exposed) / facts.steps)} a step: "
                f"{ms(exposed / facts.steps)} of copying with nothing else to do, "
                f"{ms(sum(idle.values()) / facts.steps)} idle while the host copied",
                f"{count / facts.steps:.3g} copies a step, {size(paged / facts.steps)}, at {size(paged / ns * 1e9)}/s"
                if ns
                else "",
                f"{paged / whole:.0%} of the bytes to the device come from pageable memory",
            ),
            who=(facts.step_thread_name,),
            where=facts.where(top),
            why="the driver copies pageable memory through a buffer of its own, and the host waits meanwhile",
            fix="DataLoader(..., pin_memory=True)\nx = x.to(device, non_blocking=True)",
            will_not_help="non_blocking=True alone: without pinned memory the host waits all the same",
        )
