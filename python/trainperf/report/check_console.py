"""What `trainperf check` prints: settings that cost time, those whose price is not known, risks, and the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from trainperf.findings.rules.settings import Checked
from trainperf.findings.text import plural
from trainperf.report.model import ReportModel
from trainperf.report.text import Line, clean, wrap

_INDENT: Final = 10
_STYLES: Final = {"costs": "bold yellow", "unpriced": "bold", "risk": "bold"}
_LABELS: Final = {"costs": "costs", "unpriced": "wrong", "risk": "risk", "fine": "fine", "not seen": "not seen"}
_MOST_LINES: Final = 20


def lines(model: ReportModel, checked: Sequence[Checked], *, width: int = 80) -> list[Line]:
    """One block for each setting that is amiss, the costliest first; one for all that are fine, or were not seen."""
    out: list[Line] = []
    for i, row in enumerate(wrap(_head(model, checked), width - 11, 3)):
        out.append([("trainperf  " if i == 0 else " " * 11, "bold"), (row, "bold")])
    for state in ("costs", "unpriced", "risk"):
        for c in sorted((c for c in checked if c.state == state), key=lambda c: -(c.cost_ns or 0)):
            price = f": {cost(model, c)}" if c.cost_ns else ": price not known" if state == "unpriced" else ""
            told = f" ({c.finding})" if c.finding else ""
            out += _block(_LABELS[state], f"{c.name}{price}{told}", width, _STYLES[state])
            out += _block("", c.why, width, "") + _block("  fix", c.fix, width, "")
            out += _block("  prove", c.prove, width, "")
    out += _block("fine", ", ".join(c.name for c in checked if c.state == "fine"), width, "dim")
    unseen: dict[str, list[str]] = {}
    for c in checked:
        if c.state == "not seen":
            unseen.setdefault(c.why, []).append(c.name)
    for why, names in unseen.items():
        out += _block("not seen", f"{', '.join(names)}: {why}", width, "dim")
    return out


def cost(model: ReportModel, c: Checked) -> str:
    """ "at least 1.2 ms/step (9%)"."""
    ns = c.cost_ns or 0
    share = ns / model.wall_ns if model.wall_ns else 0.0
    return f"{c.cost_is} {ns / max(1, model.steps) / 1e6:.3g} ms/step ({share:.1%})"


def to_dict(model: ReportModel, checked: Sequence[Checked]) -> dict[str, Any]:
    """docs/check.md describes it."""
    return {
        "schema_version": 1,
        "run": model.path,
        "steps": model.steps,
        "wall_ns": model.wall_ns,
        "settings": [
            {
                "id": c.id,
                "name": c.name,
                "state": c.state,
                "cost_ns": c.cost_ns,
                "cost_is": c.cost_is if c.cost_ns else None,
                "share": c.cost_ns / model.wall_ns if c.cost_ns and model.wall_ns else None,
                "finding": c.finding or None,
                "why": c.why or None,
                "fix": c.fix or None,
                "prove": c.prove or None,
            }
            for c in checked
        ],
    }


def _head(model: ReportModel, checked: Sequence[Checked]) -> str:
    count = {state: sum(c.state == state for c in checked) for state in _LABELS}
    said = [
        f"{plural(count['costs'], 'setting')} {'costs' if count['costs'] == 1 else 'cost'} time in this run"
        if count["costs"]
        else "no setting is known to cost time in this run"
    ]
    if count["unpriced"]:
        said.append(f"{count['unpriced']} wrong, price not known")
    if count["risk"]:
        said.append(plural(count["risk"], "risk"))
    each = f", {model.mean_ms:.3g} ms each" if model.steps else ""
    return f"{'; '.join(said)} ({plural(model.steps, 'step')}{each})"


def _block(label: str, text: str, width: int, style: str) -> list[Line]:
    """Code and lists are wrapped like the rest: a line of a fix is a line here."""
    out: list[Line] = []
    for part in text.splitlines():
        for row in wrap(clean(part), width - _INDENT, _MOST_LINES):
            out.append(
                [
                    (f"{label:<{_INDENT}}" if not out else " " * _INDENT, "bold" if style != "dim" else "dim"),
                    (row, style),
                ]
            )
    return out
