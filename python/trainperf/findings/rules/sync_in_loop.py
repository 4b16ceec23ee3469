"""TP504: the loop waits for the device to finish (`.item()`, `.cpu()`, `nonzero`), which then has nothing to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import gpu
from trainperf.findings.facts import ms, plural
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.rule import DeviceRule
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.gpu import Gpu


class SyncInLoop(DeviceRule):
    id = "TP504"
    slug = "sync-in-loop"
    limits = Limits(limit("warn_share"), limit("critical_share"))
    needs_calls = True

    def look(self, facts: Facts, device: Gpu) -> Outcome:
        idle = facts.ledger.idle(["gpu_wait"])
        cost = sum(idle.values())
        severity = facts.grade(cost, self.limits)
        if severity is None:
            return None
        syncs = device.calls(*gpu.SYNCS)
        read = [c for c in device.copies if c.direction == "d2h"]
        small = sum(c.small for c in read)
        # A copy to pageable memory waits by itself: older PyTorch's .item() has no other wait.
        waiting = sum(c.count for c in read if "pageable" in (c.src, c.dst))
        spots = facts.call_spots(*gpu.SYNCS, "memcpy")
        top = spots[0] if spots else None
        rate = f"{syncs.count / facts.steps:.3g}"
        numbers = small > 0 and 2 * small >= max(syncs.count, waiting)
        call = ".item() or the like" if numbers else "a synchronization"
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="gpu_wait",
            claims=facts.ledger.cells("gpu_wait"),
            idle=idle,
            title=f"the loop waits for {device.name} ({call}), which then runs dry",
            affected=facts.affected_by(device.column(idle)),
            confidence=facts.confidence(samples=sum(s.samples for s in spots) if spots else None, doubts=device.doubts),
            evidence=(
                f"{device.name} idled {ms(cost / facts.steps)} a step after the host had waited for it: nothing new "
                "was launched meanwhile",
                f"{plural(syncs.count, 'synchronization')} in {facts.steps:,} steps, {rate} a step",
                f"{small} copies of 16 bytes or less to the host, {small / facts.steps:.3g} a step: numbers, as read "
                "by .item(), float(tensor), if tensor: and nonzero()"
                if small
                else "",
                *(f"{s.share:.0%} of {plural(s.samples, 'sample')} of it in {facts.label(s)}" for s in spots[:2]),
            ),
            who=(facts.step_thread_name,),
            where=facts.where(top),
            why=f"{facts.label(top)} waits until {device.name} is done"
            if top is not None
            else f"the training thread waits until {device.name} is done, {rate} times a step",
            fix="# keep numbers on the device, and read them now and then:\nif step % 50 == 0: print(loss.item())"
            if numbers
            else "# wait later, or not at all: tensor.to('cpu', non_blocking=True), and read it a step later",
            will_not_help="a faster GPU: it would wait longer for the host",
        )
