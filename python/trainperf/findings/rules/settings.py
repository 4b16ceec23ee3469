"""TP314: a setting costs time in each step, by the samples that show it at work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings.model import Claim, Diagnosis, Limits, Outcome, Saves, Sure
from trainperf.findings.rule import rule
from trainperf.findings.settings import TABLE
from trainperf.findings.text import Count
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts


@rule("TP314", "costly-setting", Limits(limit("rare_warn_share"), limit("critical_share")))
def costly_setting(facts: Facts, limits: Limits) -> Outcome:
    """The costliest of the settings that samples give a price; `trainperf check` lists all."""
    seen = [(row, looked) for row in TABLE if row.shows is not None and (looked := row.look(facts)) is not None]
    wrong = [(cost, row, looked) for row, looked in seen if looked.wrong and (cost := row.price(facts)) is not None]
    if not wrong:
        return None
    cost, row, looked = max(wrong, key=lambda found: found[0].ns)
    severity = facts.grade(cost.ns, limits)
    if severity is None:
        return None
    spot = next(iter(facts.spots(cost.details)), None)
    return Diagnosis(
        variant=row.id,
        severity=severity,
        claim=Claim(facts.main_cause(cost.claims), cost.claims),
        params={
            **facts.of_step(cost.ns),
            **looked.params,
            "samples": Count(cost.samples),
            "place": facts.where(spot) or None,
        },
        place=facts.where(spot),
        who=(facts.step_thread_name,),
        sure=Sure(cost.samples),
        saves=Saves(more=True),
    )
