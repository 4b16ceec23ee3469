"""Which tiers of probes a reader must know of."""

from __future__ import annotations

from typing import Final

# These go without saying; and so does that a machine without a GPU has no tracing of one. That torch was not imported
# is told with its version. Of log records that are summed nothing is lost.
_AS_GOOD_AS_IT_GETS: Final = frozenset(
    {"exact", "sampled", "summed", "cgroup", "on", "schedstat", "trace", "cupti-full", "cupti-windows"}
)
_NO_TORCH: Final = "off: torch was not imported"
_NO_GPU: Final = ("off: no driver", _NO_TORCH, "off: not asked for")


def is_amiss(probe: str, tier: str) -> bool:
    """`tier` as a report has it: "exact", "procfs: why not exact", "off: why"."""
    if probe == "kept_memory" and "stopped growing" in tier:  # so there is no line to look for
        return False
    if probe == "nvml":  # the verdict rests on it nowhere but in a finding, which says so
        return False
    if (probe == "cuda" and tier.startswith(_NO_GPU)) or (probe == "torch_hooks" and tier.startswith(_NO_TORCH)):
        return False
    return tier.partition(":")[0] not in _AS_GOOD_AS_IT_GETS
