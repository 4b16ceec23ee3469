"""How long a trial must be, and the samples per second of one.

A short epoch is measured as a whole, from the start of its workers to its last batch, after one epoch of warm-up. Of a
long one it is a stretch of steps after the warm-up; the start-up of its workers is then added, spread over the epoch.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainperf.errors import TrainperfError

SECONDS = 2.0  # of training that a trial measures
_WARM_UP_S = 0.5
_MIN_STEPS, _MOST_WARM_UP = 12, 16
_SLOW = 5.0  # times the median: a step of the warm-up
_FEWEST = 8  # steps that say anything


@dataclass(frozen=True, slots=True)
class Plan:
    """What each trial runs, the same with the change and without."""

    batches: int  # at which it ends
    warm_up: int  # batches; or, of whole epochs, the first of these
    whole_epochs: bool
    epoch: int | None  # batches; None: not known
    step_s: float  # without the change


def plan(record: Mapping[str, Any], *, ended_itself: bool, seconds: float = SECONDS) -> Plan:
    """From the first run. Raises TrainperfError where the training is too short, or was not seen."""
    starts = _starts(record)
    seen = len(starts) - 1
    if seen < _FEWEST + 3:
        raise TrainperfError(
            f"only {max(0, seen)} training steps were seen, too few to compare: give the script more to do"
            if seen > 0
            else "no training step was seen: a trial needs backward() in the script's own process"
        )
    lasted = [b - a for a, b in itertools.pairwise(starts)]
    median = statistics.median(lasted)
    slow = [i + 1 for i, s in enumerate(lasted[: seen // 3]) if s > _SLOW * median]
    warm_up = max(3, min(_MOST_WARM_UP, math.ceil(_WARM_UP_S / median)), *slow[-1:])
    warm_up = min(warm_up, seen // 3)
    step_s = (starts[-1] - starts[warm_up]) / (seen - warm_up)
    epoch = _epoch(record)
    whole = [e for e in record["epochs"] if e["end"] is not None]
    if epoch is not None and epoch * step_s <= seconds and len(record["epochs"]) >= 2 and len(whole) >= 1:
        count = 1 + math.ceil(seconds / (epoch * step_s))
        if ended_itself:
            count = min(count, len(whole))
        if count >= 2:
            return Plan(count * epoch, epoch, True, epoch, step_s)
    batches = warm_up + max(_MIN_STEPS, math.ceil(seconds / step_s))
    if epoch is not None and epoch >= warm_up + _FEWEST:
        batches = min(batches, epoch)  # validation and saving are between epochs, and not what is compared
    if ended_itself:
        batches = min(batches, seen)
    return Plan(batches, min(warm_up, batches // 3), False, epoch, step_s)


def rate(record: Mapping[str, Any], plan: Plan) -> float:
    """Samples per second (of a training without a loader: steps per second). 0.0: it was too short."""
    epochs = record["epochs"]
    if plan.whole_epochs:
        rest = [e for e in epochs[1:] if e["end"] is not None]
        took = float(rest[-1]["end"] - rest[0]["begin"]) if rest else 0.0
        count = sum(int(sum(e["samples"])) for e in rest)
        return count / took if took > 0 else 0.0
    starts = _starts(record)
    last = min(len(starts) - 1, plan.batches)
    if last - plan.warm_up < 1:
        return 0.0
    took = float(starts[last] - starts[plan.warm_up])
    samples = _samples(record)[plan.warm_up : last]
    count = sum(samples) if any(samples) else last - plan.warm_up
    if plan.epoch is not None:
        took += start_up(record) * (last - plan.warm_up) / plan.epoch
    return count / took


def loop_s(record: Mapping[str, Any]) -> float:
    """Seconds from the first step's begin to the end of the last one."""
    starts = _starts(record)
    return starts[-1] - starts[0] if starts else 0.0


def step_ms(record: Mapping[str, Any], plan: Plan) -> float:
    """Milliseconds of a step, of a batch, by rate()."""
    per_batch = [n for n in _samples(record) if n]
    samples = sum(per_batch) / len(per_batch) if per_batch else 1.0
    found = rate(record, plan)
    return 1e3 * samples / found if found else 0.0


def warm_up_s(record: Mapping[str, Any], plan: Plan) -> float:
    """Seconds that the steps of the warm-up took more than as many later ones: compiling, for one."""
    if plan.whole_epochs:
        first, *rest = [e["end"] - e["begin"] for e in record["epochs"] if e["end"] is not None] or [0.0]
        return float(max(0.0, first - statistics.median(rest))) if rest else 0.0
    starts = _starts(record)
    if len(starts) <= plan.warm_up + 1:
        return 0.0
    later = (starts[-1] - starts[plan.warm_up]) / (len(starts) - 1 - plan.warm_up)
    return float(max(0.0, starts[plan.warm_up] - starts[0] - plan.warm_up * later))


def of_epochs(record: Mapping[str, Any], plan: Plan, *, persistent: bool) -> dict[str, Any]:
    """As turns need to know of them. `persistent`: the change keeps workers from one epoch to the next."""
    between = 0.0
    if plan.whole_epochs and plan.epoch:
        both = itertools.pairwise(record["epochs"])
        pauses = [after["begin"] - before["end"] for before, after in both if before["end"] is not None]
        between = 1e3 * statistics.fmean(pauses) / plan.epoch if pauses else 0.0
    return {"epoch": plan.epoch, "whole": plan.whole_epochs, "persistent": persistent, "between_ms": between}


def start_up(record: Mapping[str, Any]) -> float:
    """Seconds that the first batch of an epoch takes more than a later one: to start its workers."""
    for epoch in record["epochs"][:1]:
        waits = [d - r for r, d in zip(epoch["requested"], epoch["delivered"], strict=False)]
        if len(waits) > 2:
            return max(0.0, float(epoch["delivered"][0] - epoch["begin"] - statistics.median(waits[1:])))
    return 0.0


def _starts(record: Mapping[str, Any]) -> list[float]:
    """When each step began, and when the last one ended."""
    if not record["epochs"]:
        return list(record["backwards"])
    starts: list[float] = []
    for epoch in record["epochs"]:
        starts += epoch["requested"][: len(epoch["delivered"])]
    last = record["epochs"][-1]
    if len(last["requested"]) > len(last["delivered"]):
        starts.append(last["requested"][-1])
    elif last["end"] is not None:
        starts.append(last["end"])
    return starts


def _samples(record: Mapping[str, Any]) -> Sequence[int]:
    return [n for epoch in record["epochs"] for n in epoch["samples"]]


def _epoch(record: Mapping[str, Any]) -> int | None:
    """Batches of an epoch, seen rather than said by the loader."""
    whole = [len(e["delivered"]) for e in record["epochs"] if e["end"] is not None]
    if whole:
        return whole[0]
    number = record["trains"]
    length = record["loaders"][number].get("length") if number is not None else None
    return int(length) if length else None
