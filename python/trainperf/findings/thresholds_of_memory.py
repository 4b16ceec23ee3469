"""The numbers by which the use of the host's memory is judged: a heap that goes back to the kernel, and growth."""

from __future__ import annotations

from typing import Final

from trainperf.findings.threshold import Threshold

OF_MEMORY: Final = (
    Threshold(
        "heap_warm_up_s",
        0.9,
        "s",
        "of the steps, left out: readings of page faults count from then on",
        "a choice: up to the reading of their first second, which is that of first uses",
    ),
    Threshold(
        "heap_min_seconds",
        4,
        "seconds",
        "fewest seconds in which page faults were counted, the first of the steps left out",
        "a median that one second of another kind (validation, a checkpoint) does not decide",
    ),
    Threshold(
        "returned_share",
        0.10,
        "share of the memory",
        "so much of what a step takes from the kernel was seen going back, or the faults are not the heap's",
        "measured: 0.25 to 1.3 where a CPU training's heap goes back, 0 with shared batches or mapped files",
    ),
    Threshold(
        "memory_min_readings",
        10,
        "readings",
        "fewest readings of memory in the steps for a trend, one a second; the first quarter is left out",
        "eight are left: two in each quarter",
    ),
    Threshold(
        "memory_good_readings",
        30,
        "readings",
        "readings for high confidence, those of the first quarter left out",
        "half a minute: an epoch of a small data set, after which a cache is full",
    ),
    Threshold(
        "memory_growth_share",
        0.05,
        "share of the memory",
        "a steady rise by this much within the run is a warning",
        "TensorBoard's 5 %; the run doubles its memory within 20 times its length",
    ),
    Threshold(
        "memory_growth_bytes",
        32e6,
        "bytes",
        "a rise below it is never a finding",
        "a choice: what malloc keeps back and gives out again",
    ),
)
