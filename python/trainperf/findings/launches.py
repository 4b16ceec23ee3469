"""Whether the host keeps the device's queue full: what the rules about launching share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.gpu import Gpu

CAUSES = ("launch", "python")  # the host is on the CPU, about to launch


def gap_us(gpu: Gpu) -> float:
    """A mean gap in which the device waited for a launch."""
    totals = gpu.device.totals
    if not totals.starved_gaps:
        return 0.0
    return float(sum(gpu.idle_causes[cause] for cause in CAUSES) / totals.starved_gaps / 1000)


def keeps_up(gpu: Gpu) -> bool:
    """The device starts what is launched at once, and waits often, or shortly: the queue is empty."""
    totals = gpu.device.totals
    often = totals.starved_gaps >= limit("starved_launches") * totals.launches
    soon = 0 < totals.lead_ns_median < limit("lead_us") * 1000
    return soon and totals.starved_gaps > 0 and (often or gap_us(gpu) <= limit("launch_gap_us"))


def size_text(facts: Facts, gpu: Gpu) -> str:
    totals = gpu.device.totals
    mean = totals.kernel_ns / totals.kernels / 1000
    return (
        f"{totals.kernels / facts.steps:,.0f} kernels a step of {mean:.0f} us on average; "
        f"{totals.tiny_kernels / totals.kernels:.0%} are tiny (under 10 us, or shorter than their launch)"
    )
