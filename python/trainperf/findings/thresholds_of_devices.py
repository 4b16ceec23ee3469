"""The numbers by which a device is judged: whether it was seen, has enough to do, and does it well."""

from __future__ import annotations

from typing import Final

from trainperf.findings.threshold import Threshold

OF_DEVICES: Final = (
    Threshold(
        "incomplete_share",
        0.5,
        "share of the steps",
        "a device whose records were lost in more steps than this counts as not seen",
        "a clear majority; below it the loss shows as idleness of no known cause",
    ),
    Threshold(
        "warm_up_steps",
        10,
        "steps",
        "a device's warm-up is looked for in so many first steps",
        "kernels are loaded and chosen at their first use: one or two steps on an H200",
    ),
    Threshold(
        "warm_up_excess",
        0.5,
        "of the median step",
        "first steps that have this much more of what loading and choosing kernels is made of are a device's warm-up",
        "on an H200 the first step had 2 to 600 times it, the second 0.5; later steps vary by a fifth",
    ),
    Threshold(
        "warm_up_launch",
        10,
        "times the loading",
        "of native code in those steps so much is a device's warm-up at most: the program's own is there as well",
        "a choice; not measured",
    ),
    Threshold(
        "gpu_bound_share",
        0.90,
        "share of the run",
        "a device that is this busy sets the pace",
        "TraceML 0.5: compute-bound from 90 %",
    ),
    Threshold(
        "lead_us",
        10,
        "us",
        "kernels that start sooner than this after their launch (median) find an empty queue",
        "a launch reaches an idle device in 5 to 8 us",
    ),
    Threshold(
        "launch_gap_us",
        50,
        "us",
        "longer gaps between kernels are stalls of the host, not its launching, unless most kernels wait for it",
        "HTA takes a launch of more than 50 us for an outlier",
    ),
    Threshold(
        "starved_launches",
        0.5,
        "share of the launches",
        "when the device waits for so many of its launches, the host's launching is slow, however long each takes",
        "the half: most kernels",
    ),
    Threshold(
        "tiny_share",
        0.5,
        "share of the kernels",
        "so many tiny kernels (under 10 us, or shorter than their launch) are mentioned",
        "the half: what a median kernel is",
    ),
    Threshold("few_kernels", 3, "kernels", "this many kernels are few", "as many as a finding names"),
    Threshold(
        "no_tensor_core_share",
        0.20,
        "share of the run",
        "matrix products without tensor cores are a warning",
        "critical_share: they could take half of their time or less",
    ),
)
