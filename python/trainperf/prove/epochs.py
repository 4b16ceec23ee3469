"""Whether a training with a change stays the same after its first epoch, of which trials mostly see a part.

A script may set something between epochs that workers do not see, or read its batches from memory by then. A pair of
trials whose epochs end after two batches goes through many of them in a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from trainperf.prove import same_training
from trainperf.prove.changes import Change
from trainperf.prove.trial import Asked, Trials

BATCHES: Final = 2  # of an epoch
_SECONDS, _LEAST, _MOST = 1.0, 4, 50  # of training; epochs
_KEEPS_SHARE = 0.5  # of the samples that were made
_NOT_SEEN = "only the first {steps} steps were compared: trials with shorter epochs failed"
_READ_ONCE = "the script reads its loader once, and goes on with the same batches: the gain is of that pass alone"
_KEEPS = (
    "the dataset keeps what it makes, so later epochs may be fast without workers: the gain is of the first epoch, and "
    "each worker keeps its own"
)


@dataclass(frozen=True, slots=True)
class Later:
    notes: tuple[str, ...] = ()
    other: str = ""  # why it is another training


def later(trials: Trials, change: Change, asked: Asked, seen: Mapping[str, Any], *, step_s: float) -> Later:
    """Compares two trials, or three where numbers differ by themselves.

    `asked`: for one without the change; its timeout holds for each. `seen`: the record of an earlier one.
    """
    notes = [_KEEPS] if change.of_loader.get("num_workers") and _keeps(seen) else []
    epochs = min(_MOST, max(_LEAST, round(_SECONDS / (BATCHES * step_s))))
    short = replace(asked, batches=epochs * BATCHES, epoch=BATCHES, watched=False)
    without, with_it = trials.run(short), trials.run(replace(short, change=change))
    if not (without.finished and with_it.finished):
        return Later((*notes, _NOT_SEEN.format(steps=len(seen["losses"]))))
    if without.record["reads_once"]:
        notes.append(_READ_ONCE)
    baselines = [without.record]
    found = same_training.compare(baselines, with_it.record, change.numbers)
    if found.kind == "more" and (again := trials.run(short)).finished:
        found = same_training.compare([*baselines, again.record], with_it.record, change.numbers)
    other = f"in trials with epochs of {BATCHES} batches, {found.reason}" if found.kind == "other" else ""
    return Later(tuple(notes), other)


def _keeps(record: Mapping[str, Any]) -> bool:
    loader = record["loaders"][record["trains"]]
    return bool(loader.get("kept", 0) >= _KEEPS_SHARE * max(1, loader.get("kept_of", 0)))
