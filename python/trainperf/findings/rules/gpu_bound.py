"""TP513: the device is busy all the time, and the host runs ahead of it: healthy. Said, never warned of."""

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


class GpuBound(DeviceRule):
    id = "TP513"
    slug = "gpu-bound"
    limits = Limits(limit("gpu_bound_share"), None)

    def look(self, facts: Facts, device: Gpu) -> Outcome:
        totals = device.device.totals
        work = device.busy_ns - int(totals.exposed_collective_ns) - int(totals.exposed_copy_ns)
        if facts.grade(device.busy_ns, self.limits) is None or facts.share(work) < limit("gpu_bound_share"):
            return None
        full = device.calls("queue_full")
        waits = device.calls(*gpu.SYNCS)
        top = next((k for k in device.kernels if not k.folded), None)
        ahead = totals.lead_ns_median / 1e6
        return facts.finding(
            (self.id, self.slug),
            severity="info",
            cause="gpu_wait",
            claims={},
            title=f"{device.name} is busy {device.busy():.0%} of the time: the kernels set the pace",
            confidence=facts.confidence(doubts=device.doubts),
            evidence=(
                f"a kernel starts {ahead:.1f} ms after its launch (median): the host runs ahead"
                if ahead >= 0.1
                else "",
                f"{plural(full.count, 'launch', 'es')} waited for room in the queue" if full.count else "",
                f"the host waits for it {ms((full.ns + waits.ns) / facts.steps)} a step, which costs nothing"
                if full.ns + waits.ns >= 0.05 * facts.wall_ns
                else "",
                f"costliest: {gpu.short_kernel(top.name)}, {ms(top.ns / facts.steps)} a step"
                if top is not None
                else "",
            ),
            why="the device has work whenever it is done with the last",
            fix="# faster kernels: torch.compile(model), bfloat16, channels_last, a smaller model; or more GPUs",
            will_not_help="more DataLoader workers, fewer synchronizations, faster Python: the device does not wait",
        )
