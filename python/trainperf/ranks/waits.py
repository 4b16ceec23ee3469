"""How long a rank waited for the others: in collectives, and on CPUs asleep where gradients are exchanged."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from trainperf.findings.frames import is_stdlib_file, is_user_file
from trainperf.runfile.schema import MECHANISMS, PHASES

if TYPE_CHECKING:
    from trainperf.run import Run
    from trainperf.runfile import Detail

_PHASES: Final = ("forward", "backward", "optimizer", "other")  # the others' sleep has a cause of its own
_EXCHANGE: Final = re.compile(r"[/\\]torch[/\\](distributed|nn[/\\]parallel)[/\\]")
_BACKWARD: Final = re.compile(r"[/\\]torch[/\\](autograd[/\\]|_tensor\.py$)")
_INSTALLED: Final = re.compile(r"[/\\](site-packages|dist-packages)[/\\](?!torch[/\\])")


@dataclass(frozen=True, slots=True)
class Waits:
    collective_ns: int
    blocked_ns: int  # asleep (cause blocked_io) until the others came
    unclear_ns: int  # asleep, and no sample says whether for the others or for something of its own


def waits(run: Run) -> Waits:
    """How long it was asleep is exact; where, the samples say."""
    collective = run.cause_ns("collective")
    # DistributedDataParallel over gloo sleeps within the backward call. Where collectives are seen, they are elsewhere.
    backward_exchanges = not collective and not run.devices and run.meta.get("feeds_device") != "1"
    mechanism, asleep, unclear = MECHANISMS.index("blocked"), 0.0, 0.0
    for phase in _PHASES:
        ns = int(run.matrix_ns[PHASES.index(phase), mechanism])
        if not ns:
            continue
        seen = {"others": 0, "own": 0, "unclear": 0}
        for sample in run.detail_totals("sample", phase=phase):
            if sample.state == "blocked":
                seen[_for_whom(run, sample, backward_exchanges and phase == "backward")] += sample.ns
        total = sum(seen.values())
        asleep += ns * seen["others"] / total if total else 0
        unclear += ns * seen["unclear"] / total if total else ns
    return Waits(collective, round(asleep), round(unclear))


def _for_whom(run: Run, sample: Detail, backward_exchanges: bool) -> Literal["others", "own", "unclear"]:
    """By the innermost frame that is not the standard library's: a hook of the user's lies below the backward call."""
    file = next((f.file for f in run.stack(sample.stack) if not is_stdlib_file(f.file)), "")
    if is_user_file(file):
        return "own"
    if _EXCHANGE.search(file):
        return "others"
    if _BACKWARD.search(file):
        return "others" if backward_exchanges else "unclear"
    # Folded samples have no frames; and what another package waits for (Horovod, say) is not known.
    return "unclear" if not file or _INSTALLED.search(file) else "own"
