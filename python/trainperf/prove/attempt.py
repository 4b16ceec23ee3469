"""`trainperf try`: tries the changes that the findings of a short run advise, and keeps those that are proven."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trainperf.errors import TrainperfError
from trainperf.prove.changes import Change
from trainperf.prove.prover import Outcome, Prover
from trainperf.prove.sequential import ALPHA


@dataclass(slots=True)
class Result:
    outcomes: list[Outcome]
    loader: Mapping[str, Any] | None = None  # the one that trains
    accepted: Change = field(default_factory=Change)  # all that is proven, together
    untried: Sequence[str] = ()  # findings whose fix needs an edit
    interrupted: bool = False
    seconds: float = 0.0


def attempt(prover: Prover, asked: Sequence[Change] = ()) -> Result:
    """`asked`: changes to try in place of those that the findings advise. What is proven stays on for the next one.

    Raises TrainperfError where the script itself cannot be tried. Ctrl-C, or a trial that cannot be run, ends it with
    what is proven so far.
    """
    first = prover.watch()
    changes = list(asked) or list(first.advised)
    result = Result([], first.trial.loader, untried=first.untried)
    prover.plan_said(first, changes)
    alpha = ALPHA / (len(changes) + sum(map(_may_keep_too_much, changes)))
    try:
        for number, change in enumerate(changes):  # which grow
            until = time.monotonic() + prover.left_s / (len(changes) - number)
            try:
                outcome = prover.prove(change, first, base=result.accepted, until=until, alpha=alpha)
            except TrainperfError as error:
                if not result.outcomes:
                    raise
                result.outcomes.append(Outcome(change, "undecided", str(error)))
                break
            result.outcomes.append(outcome)
            if outcome.verdict == "changes_results" and not asked and _may_keep_too_much(change):
                settings = tuple(item for item in change.settings if item[0] != "persistent_workers")
                changes.insert(number + 1, replace(change, settings=settings))
            if outcome.verdict == "proven" and not (change.against or change.patch):
                result.accepted = change.on(result.accepted)
    except KeyboardInterrupt:
        result.interrupted = True
    result.seconds = time.monotonic() - prover.began
    return result


def _may_keep_too_much(change: Change) -> bool:
    """Whether it keeps workers, which do not see what the script sets in the dataset between epochs, and helps without
    that too."""
    settings = dict(change.settings)
    return bool(settings.get("num_workers") and settings.get("persistent_workers"))
