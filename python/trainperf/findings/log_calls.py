"""What Lightning's self.log costs where the program calls it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings.frames import FrameLike, is_framework, is_users
from trainperf.findings.framework import in_told_hook
from trainperf.findings.model import Cell, Limits, Severity
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.runfile import Detail

LIMITS = Limits(limit("warn_share"), limit("critical_share"))
FEWER = "# log fewer metrics, or every N steps\nif batch_idx % 50 == 0: self.log(...)"

_MODULE = re.compile(r"[/\\](lightning[/\\]pytorch|pytorch_lightning)[/\\]core[/\\]module\.py$")
_CAUSES = ("python", "compute", "launch")  # of validation, of a hook or a logger others tell


@dataclass(frozen=True, slots=True)
class LogCalls:
    claims: dict[Cell, int]
    details: tuple[Detail, ...]
    severity: Severity | None  # None: too little to speak of


def is_log_call(stack: Sequence[FrameLike]) -> bool:
    """Lightning's own code below a self.log that the user's code called, of no callback."""
    calls = next((i for i, f in enumerate(stack) if is_users(f, stack)), None)
    if calls is None or any(f.function == "_call_callback_hooks" and is_framework(f.file) for f in stack):
        return False
    return any(_MODULE.search(f.file) and f.function.rpartition(".")[2] in ("log", "log_dict") for f in stack[:calls])


def log_calls(facts: Facts) -> LogCalls:
    """What the calls took of each cell, and the samples in them: native code only where it is no wait for a device that
    was not seen. A stack that changed while it was read is lost, which is likeliest where functions are short, as these
    are: the lost ones are shared out like the others."""
    mechanisms = ("python",) if facts.run.feeds_device and facts.gpu is None else ("python", "native")
    claims: dict[Cell, int] = {}
    found: list[Detail] = []
    for cell, exact in facts.matrix.items():
        if exact <= 0 or cell[1] not in mechanisms or facts.cause_of(cell) not in _CAUSES:
            continue
        read = [d for d in facts.samples(phases=[cell[0]], states=[cell[1]]) if facts.run.stack(d.stack)]
        calls = [
            d
            for d in read
            if is_log_call(stack := facts.run.stack(d.stack)) and not facts.once(in_told_hook)(d.phase, stack)
        ]
        whole = sum(d.ns for d in read)
        if calls and whole:
            claims[cell] = exact * sum(d.ns for d in calls) // whole
            found += calls
    return LogCalls(claims, tuple(found), _severity(facts, claims, found))


def _severity(facts: Facts, claims: dict[Cell, int], details: Sequence[Detail]) -> Severity | None:
    cost = sum(claims.values())
    severity = facts.grade(cost, LIMITS)
    if severity is None or sum(d.count for d in details) < limit("min_samples"):
        return None
    if facts.ms_per_step(cost) >= limit("metric_calls_ms"):
        return severity
    # A few calls, in a short step.
    return "info" if facts.loop_share(cost) >= limit("framework_share") else None
