"""TP511: few kernels make up most of the device's work. Said, never warned of."""

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


class FewOps(DeviceRule):
    id = "TP511"
    slug = "few-ops"
    limits = Limits(limit("warn_share"), None)

    def look(self, facts: Facts, device: Gpu) -> Outcome:
        kernels = [k for k in device.kernels if not k.folded and k.kind != "collective"]
        few = kernels[: int(limit("few_kernels"))]
        ns = sum(k.ns for k in few)
        # Of a handful of kernels a few are always most.
        if (
            not ns
            or len(kernels) < 4 * len(few)
            or ns < limit("most_share") * device.kernel_ns
            or device.busy() < limit("half_share")
        ):
            return None
        return facts.finding(
            (self.id, self.slug),
            severity="info",
            cause="compute",
            claims={},
            title=f"{len(few)} of {len(kernels)} kernels are {ns / device.kernel_ns:.0%} of {device.name}'s work",
            confidence=facts.confidence(doubts=device.doubts),
            evidence=tuple(
                f"{k.ns / device.kernel_ns:.0%}: {gpu.short_kernel(k.name)}, "
                f"{plural(k.count, 'time')}, {ms(k.ns / k.count)} each"
                for k in few
            ),
            why=f"{gpu.short_kernel(few[0].name)} takes {ms(few[0].ns / facts.steps)} of each step",
            fix="# look at these first: another algorithm, data type or layout (channels_last, bfloat16)",
            will_not_help="tuning the other kernels",
        )
