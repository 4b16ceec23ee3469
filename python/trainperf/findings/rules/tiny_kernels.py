"""TP507: most of the device's kernels are tiny, and it keeps up with their launches: it is busy, but not well used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import gpu, launches
from trainperf.findings.facts import ms
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.rule import DeviceRule
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.gpu import Gpu


class TinyKernels(DeviceRule):
    id = "TP507"
    slug = "tiny-kernels"
    limits = Limits(limit("warn_share"), limit("critical_share"))

    def look(self, facts: Facts, device: Gpu) -> Outcome:
        totals = device.device.totals
        tiny = totals.tiny_kernels / totals.kernels
        gaps = facts.ledger.idle([gpu.BETWEEN])
        cost = sum(gaps.values())
        severity = facts.grade(cost, self.limits)
        # Where the host cannot keep up, the finding about launching tells of the sizes.
        if severity is None and (
            tiny < limit("tiny_share") or device.busy() < limit("half_share") or launches.keeps_up(device)
        ):
            return None
        most = sorted((k for k in device.kernels if k.tiny and not k.folded), key=lambda k: -k.tiny)
        names = list(dict.fromkeys(gpu.short_kernel(k.name) for k in most))
        return facts.finding(
            (self.id, self.slug),
            severity=severity or "info",
            cause="launch",
            claims={},
            idle=gaps if severity is not None else {},
            title=f"{tiny:.0%} of the kernels are tiny"
            + (f", and {device.name} pauses after each" if severity is not None else ""),
            affected=facts.affected_by(device.column([gpu.BETWEEN])) if severity is not None else None,
            confidence=facts.confidence(doubts=device.doubts),
            evidence=(
                f"{device.name} idled {ms(cost / facts.steps)} a step between kernels that were both launched already"
                if severity is not None
                else "",
                launches.size_text(facts, device),
                f"most often: {', '.join(names[:3])}" if names else "",
            ),
            who=(facts.step_thread_name,),
            why="each small operation is a kernel of its own, and none of them fills the device",
            fix='model = torch.compile(model, mode="reduce-overhead")  # fuses them; or a larger batch',
            will_not_help="a faster GPU: such kernels do not get shorter on it",
        )
