"""What `trainperf try` found as one HTML file, in the style of the report: both sides of each change, no script.

page = render(result, script="train.py", patch="fix.patch", note="fix.patch: git apply fix.patch")
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from markupsafe import Markup

from trainperf.findings.thresholds import limit
from trainperf.prove.attempt import Result
from trainperf.prove.prover import Outcome
from trainperf.report import try_json
from trainperf.report.html import environment
from trainperf.report.sharing import homeless
from trainperf.report.svg import bars, palette
from trainperf.report.svg.base import duration, script_safe
from trainperf.report.try_console import SAYS, headline, pairs_said

_TONES: Final = {"proven": "good", "failed": "critical", "changes_results": "warning"}


def render(result: Result, *, script: str, patch: str, note: str) -> str:
    """The page as text; written by report.html.write(). `patch`: its file, "" for none. `note`: how to apply it, or why
    there is none."""
    causes = {cause for outcome in result.outcomes for cause in _shown(outcome)}
    page: str = (
        environment()
        .get_template("try.html")
        .render(
            r=result,
            script=script,
            note=note,
            proven=[o for o in result.outcomes if o.verdict == "proven"],
            says=SAYS,
            tone=lambda outcome: _TONES.get(outcome.verdict, "none"),
            headline=headline,
            pairs=pairs_said,
            shown=_shown,
            sides=_sides,
            legend=[(name, palette.look(name)) for name in sorted(causes, key=palette.place)],
            definitions=Markup(palette.definitions()),
            data=Markup(script_safe(try_json.to_dict(result, patch=patch, note=note))),
        )
    )
    return homeless(page)


def _shown(outcome: Outcome) -> Mapping[str, tuple[float, float]]:
    """Causes of one run of each side, in ms/step, without those that are too small on both sides."""
    least = limit("show_share") * max(_steps(outcome), default=0.0)
    return {cause: both for cause, both in outcome.causes.items() if max(both) >= least > 0}


def _steps(outcome: Outcome) -> list[float]:
    return [sum(both[side] for both in outcome.causes.values()) for side in (0, 1)]


def _sides(outcome: Outcome) -> list[tuple[str, float, Markup]]:
    """ "Without", "With"; the mean step in ms; its bar, on one scale."""
    steps = _steps(outcome)
    found = []
    for side, words in enumerate(("Without", "With")):
        parts = [
            bars.Part(cause, palette.look(cause), both[side], f"{cause}: {duration(both[side])} per step")
            for cause, both in sorted(outcome.causes.items(), key=lambda item: palette.place(item[0]))
            if both[side] > 0
        ]
        label = f"{words}: a mean step of {duration(steps[side])}"
        described = ", ".join(p.text for p in sorted(parts, key=lambda p: -p.value)[:4])
        picture = bars.bar(parts, whole=max(steps), label=label, description=described, height=32, wide=480)
        found.append((words, steps[side], Markup(picture)))
    return found
