"""The numbers by which runs are compared: two of them (compare), or one with those before it (history)."""

from __future__ import annotations

from typing import Final

from trainperf.findings.threshold import Threshold

BETWEEN_RUNS: Final = (
    Threshold(
        "compare_min_steps",
        20,
        "steps",
        "fewest steps of a run that is compared, warm-ups left out; in long runs, fewest rows",
        "critical_min_steps; below it a bootstrap of blocks has nothing to draw from",
    ),
    Threshold(
        "compare_blocks",
        16,
        "blocks",
        "blocks that a run is cut into to estimate how sure its mean is",
        "benchmarks/compare_noise.py: as many as still hold the slow drift of a busy machine",
    ),
    Threshold(
        "compare_paired_lengths",
        0.02,
        "share of the steps",
        "runs that differ by no more in length are compared stretch by stretch",
        "a sixteenth of the run is a stretch: a third of one is the most that they are apart",
    ),
    Threshold(
        "compare_between_runs",
        0.05,
        "share of the time",
        "what two runs of one program differ by on a quiet machine, beside what their steps show",
        "benchmarks/compare_noise.py: runs of one program in processes of their own",
    ),
    Threshold(
        "compare_between_busy_runs",
        0.08,
        "share of the time",
        "the same on a machine that others use too, or of which that is not known, or of runs that are not long",
        "benchmarks/compare_noise.py beside other programs: caches and memory are shared, too",
    ),
    Threshold(
        "compare_per_busy_machine",
        0.30,
        "share of the time",
        "what a loop may lose on the CPU itself when all of the machine's CPUs are taken by others in one of the runs",
        "two threads of one core get 1.2 to 1.4 of what one gets",
    ),
    Threshold(
        "compare_kept_off",
        0.50,
        "share of the run",
        "a loop that others kept off the CPUs for this long is not compared",
        "benchmarks/compare_noise.py: beyond it the caches are cold most of the time",
    ),
    Threshold(
        "compare_long_run",
        10.0,
        "seconds",
        "runs that both last this long meet more than one state of the machine",
        "a choice: clocks and neighbours change within seconds; from a run of two nothing of it is seen",
    ),
    Threshold(
        "compare_machine_state",
        0.67,
        "share of the time",
        "how much longer the same work may take on another clock or beside a neighbour on the same core",
        "two threads of one core get 1.2 of what one gets: each takes 1.67 times as long",
    ),
    Threshold(
        "compare_resolution",
        0.10,
        "share of the step",
        "half an interval of confidence; beyond it no difference is not said, but that it cannot be told",
        "warn_share: what is worth a warning must not hide in it",
    ),
    Threshold(
        "history_min_runs",
        3,
        "runs",
        "fewest earlier runs of the name, on the same host, that a run is held against",
        "two have no middle",
    ),
    Threshold(
        "history_slower",
        0.10,
        "share of the time",
        "a run slower by this, by three standard deviations of the last five, and than each of them, is said to be",
        "twice compare_between_runs",
    ),
)
