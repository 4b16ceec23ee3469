"""TP506: the device runs each kernel as soon as it is launched, and then waits for the next launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import launches
from trainperf.findings.facts import ms
from trainperf.findings.model import Abstained, Limits, Outcome
from trainperf.findings.rule import DeviceRule
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.gpu import Gpu


class LaunchBound(DeviceRule):
    id = "TP506"
    slug = "launch-bound"
    limits = Limits(limit("warn_share"), limit("critical_share"))

    def look(self, facts: Facts, device: Gpu) -> Outcome:
        idle = facts.ledger.idle(launches.CAUSES)
        cost = sum(idle.values())
        severity = facts.grade(cost, self.limits)
        if severity is None:
            return None
        totals = device.device.totals
        if not totals.lead_ns_median:
            return Abstained(self.id, self.slug, "how soon kernels start after their launch is not known")
        if not launches.keeps_up(device):
            return None
        claims = {cell: ns for cause in launches.CAUSES for cell, ns in facts.ledger.cells(cause).items()}
        tiny = totals.tiny_kernels / totals.kernels
        graph = tiny >= limit("tiny_share")
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="launch",
            claims=claims,
            idle=idle,
            title=f"{device.name} waits for the host to launch its kernels",
            affected=facts.affected_by(device.column(idle)),
            confidence=facts.confidence(doubts=device.doubts),
            evidence=(
                f"{device.name} idled {ms(cost / facts.steps)} a step between kernels, "
                f"{launches.gap_us(device):.0f} us each time, while the host ran Python and launched the next",
                f"kernels start {totals.lead_ns_median / 1000:.0f} us after their launch (median): the queue is empty",
                launches.size_text(facts, device),
            ),
            who=(facts.step_thread_name,),
            why=f"the host launches {totals.launches / facts.steps:,.0f} times a step, slower than {device.name} works",
            fix='model = torch.compile(model, mode="reduce-overhead")  # CUDA graphs; or a larger batch'
            if graph
            else "model = torch.compile(model)  # fewer, larger kernels; or a larger batch, and a fused optimizer",
            will_not_help="a faster GPU, mixed precision, more DataLoader workers: the host sets the pace",
        )
