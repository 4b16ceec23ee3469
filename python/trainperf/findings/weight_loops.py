"""What one fused operation does instead of a loop over weights, by what such a loop was seen to do."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainperf.findings.frames import short_function

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts, Spot
    from trainperf.findings.frames import FrameLike

_FUSED: Mapping[str, str] = {
    "lerp": "torch._foreach_lerp_(averages, weights, 1 - momentum), on lists of all weights, under no_grad",
    "copy": "torch._foreach_copy_(targets, sources), on lists of all weights, under no_grad",
    "clip": "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm), which returns the norm, too",
    "clip_value": "torch.nn.utils.clip_grad_value_(model.parameters(), limit)",
    "decay": "torch._foreach_mul_(weights, factor), or the optimizer's weight_decay=",
    "scale": "torch._foreach_mul_(gradients, factor), or torch.nn.utils.clip_grad_norm_(...) where it clips",
    "update": "torch._foreach_add_(weights, gradients, alpha=-lr), or one of torch.optim with foreach=True",
    "statistics": "torch._foreach_norm(weights), and one .tolist() of them all, stacked; or every N steps",
}
# Of a library's function, or where the source was not read, the name tells.
_AVERAGE = re.compile(r"(^|_)(ema|momentum|polyak|soft_update|moving_average|follow_teacher)(_|$)", re.I)


def fused(facts: Facts, spot: Spot) -> str:
    """A fix; "" where the place is in no loop over weights."""
    lines = _recorded(facts)
    for frame in (spot.frame, *(f for f, _ in spot.callers)):
        kind = _kind_at(lines, frame)
        if kind in _FUSED:
            return f"# one fused operation for all weights: {_FUSED[kind]}"
    called = short_function(spot.leaf) if spot.leaf else ""
    if spot.all_in_leaf and _AVERAGE.search(called.rpartition(".")[2]):
        return f"# one fused operation for all weights: {_FUSED['lerp']}"
    return ""


def _recorded(facts: Facts) -> Mapping[str, Any]:
    try:
        read = json.loads(facts.run.meta.get("weight_loops", "{}"))
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}


def _kind_at(lines: Mapping[str, Any], frame: FrameLike) -> str:
    """Of the innermost loop that the line is in."""
    name = os.path.basename(frame.file)
    loops = lines.get(frame.file) or next((v for f, v in lines.items() if os.path.basename(f) == name), ())
    around = [(last - first, kind) for first, last, kind in loops if first <= frame.line <= last]
    return str(min(around)[1]) if around else ""
