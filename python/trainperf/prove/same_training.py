"""Whether a run with a change is the same training: the same samples in the same order, then the same numbers.

Baselines, runs without the change, say what can be asked: where they agree to the bit, so must the run with it, unless
the change is one that rounds otherwise. Where they differ by themselves, it may differ by as much as they do.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainperf.prove.changes import Numbers

Record = Mapping[str, Any]

BASELINES = 3  # that a spread is taken from
_ROUNDING = 1e-2  # of a loss in the first steps: rounding is far below, a lower precision above
_FIRST = 10  # losses that are compared one by one where numbers may round otherwise
_SPREAD = 2.0  # times the largest distance between baselines
_LEAST = 1e-3  # of a figure: less is no difference
_ROUNDED = 1e-5  # of a tensor's values

_DEPENDS = (
    "batch {batch} of epoch {epoch} differs, though no random numbers are drawn for it: its samples depend on earlier "
    "ones, or on what the loop sets, which workers do not see"
)
_OWN = (
    "its dataset draws from a random generator that it keeps: each worker begins with a copy of it, so workers draw "
    "the same numbers. Seed it in worker_init_fn"
)

# same: to the bit. rounding: but for last bits. alike: within the baselines' spread. other: another training.
# more: baselines differ, and there are fewer than BASELINES of them.
Kind = Literal["same", "rounding", "alike", "other", "more"]


@dataclass(frozen=True, slots=True)
class Sameness:
    kind: Kind
    reason: str = ""  # for people; of "same" empty


def compare(
    baselines: Sequence[Record], trial: Record, numbers: Numbers = "same", *, shifted: Sequence[Record] = ()
) -> Sameness:
    """`baselines`: of runs without the change, at least one. `shifted`: of others of them, with other seeds."""
    first = baselines[0]
    other = _samples(baselines, trial)
    if other:
        return Sameness("other", other)
    mine, theirs = _gradients(trial, 1), _gradients(first, 1)
    if mine and theirs and mine[0] != theirs[0]:
        return Sameness("other", f"{mine[0]} parameters get gradients, and {theirs[0]} do without the change")
    if not first["losses"]:
        return Sameness("alike", "no loss was seen: the samples alone were compared")
    deviates = _first_difference(first["losses"], trial["losses"])
    if deviates is None:
        return Sameness("same")
    steady = all(_first_difference(first["losses"], b["losses"]) is None for b in baselines[1:])
    redrawn = _sequence_differs(first, trial, "codes") is not None
    by_itself = any(_sequence_differs(first, b, "codes") is not None for b in baselines[1:])
    why = _values_differ(first, trial) if redrawn and not by_itself else ""
    if why:
        return Sameness("other", why) if len(baselines) > 1 else Sameness("more")
    if not redrawn and steady and len(baselines) > 1:
        if numbers == "same":
            a, b = first["losses"][deviates], trial["losses"][deviates]
            reason = f"the loss of step {deviates + 1} is {b:.6g}, and {a:.6g} in each run without the change"
            return Sameness("other", reason)
        if numbers == "rounding":
            return _near(first["losses"], trial["losses"])
    why = "random augmentations draw other numbers in workers" if redrawn else "its numbers differ from run to run"
    return _by_spread([*baselines, *shifted], trial, "it computes with fewer bits" if numbers == "precision" else why)


def _values_differ(first: Record, trial: Record) -> str:
    """Why batches of the same indices have other values and must not; "" where random numbers may be the reason."""
    depends = _depends(first, trial)
    if depends is not None:
        return _DEPENDS.format(batch=depends[1] + 1, epoch=depends[0] + 1)
    return _OWN if first["trains"] is not None and _draws_copies(first, trial) else ""


def _depends(first: Record, trial: Record) -> tuple[int, int] | None:
    """(epoch, batch) of the first that has other values, by more than rounding, though making batches draws no random
    numbers; None: there is none, or they do."""
    if first["trains"] is None or first["loaders"][first["trains"]].get("draws") is not False:
        return None
    for number, pair in enumerate(zip(first["epochs"], trial["epochs"], strict=False)):
        for batch, (mine, theirs) in enumerate(zip(*(epoch["weights"] for epoch in pair), strict=False)):
            leaves = zip(mine, theirs, strict=False)
            if any(math.isfinite(a - b) and abs(a - b) > _ROUNDED * max(x, y) for (a, x), (b, y) in leaves):
                return number, batch
    return None


def _draws_copies(first: Record, trial: Record) -> bool:
    """Whether its workers draw from copies of one generator, and nothing of the script's may seed these."""
    mine = first["loaders"][first["trains"]]
    return bool(mine.get("draws_own")) and not mine.get("worker_init") and _workers(trial) > 0


def _samples(baselines: Sequence[Record], trial: Record) -> str:
    """Why its samples are others, or come in another order; "" where they do not."""
    first = baselines[0]
    if first["trains"] is None or trial["trains"] is None:
        return "" if first["trains"] == trial["trains"] else "its batches come from another place"
    for number, (a, b) in enumerate(zip(first["epochs"], trial["epochs"], strict=False)):
        if a["end"] is not None and b["end"] is not None and len(a["delivered"]) != len(b["delivered"]):
            return f"epoch {number + 1} has {len(b['delivered'])} batches, and {len(a['delivered'])} without the change"
    stream = bool(first["loaders"][first["trains"]].get("stream"))
    key = "codes" if stream else "drawn"
    if any(_sequence_differs(first, b, key) is not None for b in baselines[1:]):
        # It is another in each run: nothing can be asked of the order.
        if stream and _workers(trial) > 1 and _workers(trial) != _workers(first):
            return "its stream gives different samples in each run: whether workers divide it cannot be told"
        return ""
    at = _sequence_differs(first, trial, key)
    if at is None:
        return ""
    epoch, batch = at
    if stream and _repeats(first, trial, epoch):
        return "samples come several times: the stream is not divided among its workers (get_worker_info)"
    where = f"from batch {batch + 1}" + (f" of epoch {epoch + 1}" if epoch else "")
    return f"samples come in another order {where} on"


def _sequence_differs(a: Record, b: Record, key: str) -> tuple[int, int] | None:
    """(epoch, batch) of the first that differs, as far as both were delivered."""
    for number, (x, y) in enumerate(zip(a["epochs"], b["epochs"], strict=False)):
        count = min(len(x["delivered"]), len(y["delivered"]))
        found = _first_difference(x[key][:count], y[key][:count])
        if found is not None:
            return number, found
    return None


def _workers(record: Record) -> int:
    return int(record["loaders"][record["trains"]]["options"].get("num_workers") or 0)


def _repeats(first: Record, trial: Record, epoch: int) -> bool:
    """Whether each worker gives all that the stream has: each batch comes as often as there are workers."""
    few, many = (max(1, _workers(record)) for record in (first, trial))
    codes = [record["epochs"][epoch]["codes"] for record in (first, trial)]
    rounds = min(len(codes[0]) // few, len(codes[1]) // many)
    return rounds > 0 and all(codes[1][i] == codes[0][i // many * few] for i in range(rounds * many))


def _near(a: Sequence[float], b: Sequence[float]) -> Sameness:
    for step, (x, y) in enumerate(zip(a[:_FIRST], b[:_FIRST], strict=False), 1):
        if not abs(x - y) <= _ROUNDING * max(abs(x), abs(y)):
            return Sameness(
                "other", f"the loss of step {step} is {y:.6g}, and {x:.6g} without the change: more than rounding"
            )
    return Sameness("rounding", "losses differ in their last digits alone: sums are taken in another order")


def _by_spread(baselines: Sequence[Record], trial: Record, why: str) -> Sameness:
    if len(baselines) < BASELINES:
        return Sameness("more")
    for name, figure in (("the loss falls by", _progress), ("the norm of the gradients is", _norm)):
        known = [figure(b) for b in baselines]
        mine = figure(trial)
        if mine is None or any(k is None for k in known):
            continue
        values = [k for k in known if k is not None]
        middle = statistics.median(values)
        room = max(_SPREAD * (max(values) - min(values)), _LEAST * abs(middle))
        if not abs(mine - middle) <= room:
            span = f"{min(values):.4g} to {max(values):.4g}"
            return Sameness("other", f"{name} {mine:.4g}, and {span} in {len(values)} runs without the change")
    return Sameness("alike", f"{why}; the loss falls as in runs of other seeds")


def _progress(record: Record) -> float | None:
    losses = record["losses"]
    part = len(losses) // 4
    return statistics.fmean(losses[:part]) - statistics.fmean(losses[-part:]) if part else None


def _norm(record: Record) -> float | None:
    found = _gradients(record, 10) or _gradients(record, 5)
    return found[1] if found else None


def _gradients(record: Record, update: int) -> tuple[int, float] | None:
    return next(((count, norm) for at, count, norm in record["gradients"] if at == update), None)


def _first_difference(a: Sequence[Any], b: Sequence[Any]) -> int | None:
    """Where they first differ, as far as both go; None: nowhere. A nan is like another."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y and repr(x) != repr(y)), None)
