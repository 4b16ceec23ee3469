"""The verdict in a terminal: at most 15 lines, once, when the run ends; and the longer text of `trainperf show`."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TextIO

from trainperf.findings.engine import cost_text, worth_a_look
from trainperf.findings.model import Finding
from trainperf.findings.text import plural
from trainperf.findings.thresholds import limit
from trainperf.report.model import COMPUTE, ReportModel, build, phase_words, traced_text
from trainperf.report.text import (
    INDENT,
    Line,
    apportion,
    block,
    clean,
    fit_clauses,
    fit_places,
    in_one_line,
    middle,
    wrap,
)
from trainperf.report.tiers import is_amiss
from trainperf.runfile.schema import MACHINE

if TYPE_CHECKING:
    from trainperf.run import Run

MAX_LINES: Final = 15
_MOST_NOTES: Final = 20
_LONGEST_LINE: Final = 300
_LONGEST_ABOUT: Final = 60  # of a note that had no room
# Where a saving is no upper bound: what runs there no longer slows the rest of the step by caches and clocks, too; and
# a call that waits also computes, in the kernel and around it, which is told as such.
_MIN_TREE: Final = 5  # the step itself, and four rows
_SEVERITY_STYLE: Final = {"critical": "bold red", "warning": "bold yellow", "info": "bold"}


def summary(run: Run, *, width: int = 80, keep: bool = True, notes: Sequence[str] = ()) -> str:
    """The verdict as plain text. `keep`: the file stays, so say where it is."""
    return to_plain(summary_lines(build(run, notes=notes), width=width, keep=keep))


def render(run: Run) -> str:
    """The verdict as plain text, as wide as stderr is."""
    return summary(run, width=terminal_width(sys.stderr))


def print_verdict(run: Run, *, file: TextIO | None = None, keep: bool = True, notes: Sequence[str] = ()) -> None:
    """Prints the verdict to `file` (stderr by default), styled when that is a terminal and NO_COLOR is unset."""
    out = sys.stderr if file is None else file
    emit(summary_lines(build(run, notes=notes), width=terminal_width(out), keep=keep), out)


def terminal_width(out: TextIO) -> int:
    """80 where there is no terminal; long lines are hard to read, so never more than 120."""
    if not _is_terminal(out):
        return 80
    return max(40, min(120, shutil.get_terminal_size((80, 24)).columns))


def emit(lines: list[Line], out: TextIO) -> None:
    """Writes lines; the characters that the stream cannot encode become "?"."""
    encoding = getattr(out, "encoding", None) or "utf-8"
    styled = _is_terminal(out) and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") != "dumb"
    if styled:
        try:
            from rich.console import Console
            from rich.text import Text
        except ImportError:
            styled = False
    if not styled:
        text = to_plain(lines) + "\n"
        out.write(text.encode(encoding, "replace").decode(encoding))
        out.flush()
        return
    console = Console(file=out, highlight=False, markup=False, emoji=False, soft_wrap=True)
    for line in lines:
        console.print(
            Text.assemble(*((t.encode(encoding, "replace").decode(encoding), style) for t, style in line)),
            no_wrap=True,
            overflow="ignore",
            crop=False,
        )


def to_plain(lines: list[Line]) -> str:
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def summary_lines(model: ReportModel, *, width: int = 80, keep: bool = True) -> list[Line]:
    """At most MAX_LINES lines, none longer than `width` but the last, where the path is."""
    lines = _head(model, width)
    wont: list[Line] = []
    told = next((f for f in model.findings if f.id in (model.verdict.finding, model.verdict.look)), None)
    if model.verdict.of_compute:
        lines += block("Next", COMPUTE, width, 2)
    if told is not None:
        lines += _why_and_next(told, width)
        if told.will_not_help:
            wont = block("", _first_parts(f"will not help: {told.will_not_help}", width - INDENT), width, 1, "dim")
    every, urgent = len(model.notes), model.urgent_notes
    if not model.steps:
        return lines + _tail(model, width, keep, 2, every)
    devices, others = _devices(model, width), _others(model)
    # What gives way first: notes (`show` has them), the names of other findings, what will not help, other findings.
    ways = [
        (wont, _also(model, width, also_rows), _tail(model, width, keep, tail_rows, notes))
        for also_rows, tail_rows, notes in ((2, 2, every), (2, 1, every), (2, 1, urgent), (1, 1, urgent))
    ]
    also, tail = ways[-1][1:]
    if any(f.severity != "info" for f in others):
        ways.append(([], also, tail))
    if all(f.severity != "critical" for f in others):
        ways.append((ways[-1][0], [], tail))  # the tree marks their causes
    room = MAX_LINES - _MIN_TREE - len(lines) - len(devices)
    wont, also, tail = next((way for way in ways if sum(map(len, way)) <= room), ways[-1])
    lines += wont + also + devices
    return lines + _tree(model, width, MAX_LINES - len(lines) - len(tail)) + tail


def _head(model: ReportModel, width: int) -> list[Line]:
    top = next((f for f in model.findings if f.id == model.verdict.finding), None)
    healthy = "bold green" if model.verdict.kind == "healthy" else "bold"
    style = _SEVERITY_STYLE[top.severity] if top is not None else healthy
    rows = wrap(clean(model.verdict.text), width - 11, 3 if model.steps else 5)
    return [[("trainperf  " if i == 0 else " " * 11, "bold"), (text, style)] for i, text in enumerate(rows)]


def _why_and_next(f: Finding, width: int) -> list[Line]:
    advice = _next_text(f, width - INDENT, 2)
    if len(wrap(advice, width - INDENT, 3)) > 2:  # code, that is not cut
        advice = _next_text(f, width - INDENT, 3)
    why = block("Why", fit_places(clean(f.why or f.evidence[0]), width - INDENT, 2), width, 2)
    return why + block("Next", advice, width, 3)


def show_lines(model: ReportModel, *, width: int = 80, keep: bool = True) -> list[Line]:
    """The verdict, then each finding with its evidence, then the checks that were skipped."""
    without = dataclasses.replace(model, notes=(), urgent_notes=0)  # they come in full below
    lines = summary_lines(without, width=width, keep=False)
    phases = [p for p in sorted(model.phases, key=lambda p: -p.ns) if p.share >= limit("show_share")]
    if phases:
        told = ", ".join(f"{phase_words(model, p.name)} {_ms(p.ms_per_step)} ms ({p.share:.0%})" for p in phases)
        lines += block("Phase", told, width, 4)
    if model.triage is not None:
        lines += block("Task", model.triage.text, width, 2)
    for memory in model.device_memory:
        lines += block("Mem", f"GPU {memory.id}: {memory.counted}", width, 4)
    if keep:
        lines.append(_more("trainperf report ", model))
    for f in model.findings:
        # Of the finding that the verdict is about, why stands above.
        lines += _finding(f, width, why=f.id not in (model.verdict.finding, model.verdict.look))
    lines += _skipped(model, width)
    lines.append([])
    tiers = "; ".join(f"{probe} {tier}" for probe, tier in sorted(model.tiers.items()))
    lines += block("Tiers", tiers or "none recorded", width, 6, "dim")
    for note in model.notes[:_MOST_NOTES]:
        lines += block("Note", note, width, 3, "dim")
    if len(model.notes) > _MOST_NOTES:
        lines += block("", f"and {len(model.notes) - _MOST_NOTES:,} more notes, which --json has", width, 1, "dim")
    return lines


def _finding(f: Finding, width: int, *, why: bool) -> list[Line]:
    """A finding with its evidence, below an empty line."""
    lines: list[Line] = [[]]
    head = f"{f.id} {f.slug} ({f.severity}): {f.title}" + (f"; {cost_text(f)}" if f.cost_ns or f.told_ns else "")
    lines += [[(t, _SEVERITY_STYLE[f.severity])] for t in wrap(clean(head), width, 3)]
    if f.where:
        lines += block("Where", f.where, width, 1)
    if f.who:
        lines += block("Who", ", ".join(f.who), width, 2)
    if f.why and why:
        lines += block("Why", f.why, width, 5)
    for e in f.evidence:
        rows = wrap(clean(e), width - INDENT - 2, 5)
        lines += [[(" " * INDENT + ("- " if i == 0 else "  ") + row, "")] for i, row in enumerate(rows)]
    lines += block("", f"confidence {f.confidence}: {f.confidence_why}", width, 2)
    for i, row in enumerate(_fix_rows(f.fix, width)):
        lines.append([("Fix   " if i == 0 else " " * INDENT, "bold"), (row, "")])
    if f.will_not_help:
        lines += block("", f"will not help: {f.will_not_help}", width, 4)
    return lines + block("More", f"trainperf explain {f.id}", width, 1, "dim")


def _skipped(model: ReportModel, width: int) -> list[Line]:
    """What could not be looked at, and why, below an empty line."""
    if not model.abstained:
        return []
    lines: list[Line] = [[], [("Checks skipped:", "bold")]]
    by_why: dict[str, list[str]] = {}
    for a in model.abstained:
        by_why.setdefault(a.why, []).append(f"{a.id} {a.slug}")
    for why, rules in by_why.items():
        told = _rules(rules, why, width) if model.steps else f"all {plural(len(rules), 'rule')}"
        lines += block("", f"{told}: {why}", width, 4)
    return lines


def _rules(rules: Sequence[str], why: str, width: int) -> str:
    """As many as leave room for the reason in four lines."""
    for named in range(len(rules), 0, -1):
        text = ", ".join(rules[:named]) + (f" and {len(rules) - named} more" if named < len(rules) else "")
        if len(wrap(clean(f"{text}: {why}"), width - INDENT, 5)) <= 4:
            return text
    return plural(len(rules), "rule")


def _fix_rows(fix: str, width: int) -> list[str]:
    """Code as it is, to be pasted; what a comment says fits the width."""
    rows: list[str] = []
    for row in fix.splitlines():
        if row.startswith("# "):
            rows += [f"# {text}" for text in wrap(clean(row[2:]), width - INDENT - 2, 6)]
        else:
            rows.append(middle(clean(row), _LONGEST_LINE))
    return rows


def _first_parts(text: str, width: int) -> str:
    """Whole clauses, as many as fit."""
    while len(text) > width:
        cut = max(text.rfind("; "), text.rfind(": "))
        if cut <= len("will not help"):
            break
        text = text[:cut]
    return text


def _next_text(f: Finding, width: int, max_rows: int) -> str:
    """What the fix saves, and its advice, or the code when there is none: of that whole clauses, as many as fit."""
    advice = clean(in_one_line(f.fix))
    if f.cost_ns * f.fix_share <= 0 or f.finds_out:
        return fit_clauses(advice, width, max_rows)
    saved = f"{_ms(f.cost_ms_per_step * f.fix_share)} ms/step"
    if f.steps_affected * 2 < f.steps:
        ns = f.cost_ns * f.fix_share
        saved = (f"{ns / 1e6:,.0f} ms" if ns < 10e9 else f"{ns / 1e9:,.0f} s") + " of this run"
    saves = f"saves {saved} or more" if f.saving == "at least" else f"saves {f.saving} {saved}"
    if f.waits_apart and not f.saves_more:
        whole = f"{saves}, more while CPUs are short: {advice}"
        if len(wrap(whole, width, max_rows + 1)) <= max_rows:
            return whole
    text = f"{saves}: {advice}"
    fitted = fit_clauses(text, width, max_rows)
    return fitted if len(fitted) > len(saves) else text


def _others(model: ReportModel) -> list[Finding]:
    """Beside the verdict's; without what others tell wholly, and what is only the machine's doing last."""
    found = [f for f in model.findings if f.id != model.verdict.finding and (f.cost_ns or not f.told_ns)]
    return sorted(found, key=lambda f: f.by_others or (f.severity == "info" and f.cause in MACHINE))


def _also(model: ReportModel, width: int, max_rows: int) -> list[Line]:
    """Each with its cost, in the same unit, as long as they fit; an id is what `explain` takes, so it is never cut."""
    others = _others(model)
    if not others:
        return []
    if len(others) == 1 and not others[0].cost_ns:
        return block("Also", f"{others[0].id} {others[0].slug}: {others[0].title}", width, max_rows)
    named = [f"{f.id} {f.slug}{_cost(f)}" for f in others]
    for told in range(len(others), 0, -1):
        rest = f"; {', '.join(f.id for f in others[told:])}" if told < len(others) else ""
        text = clean("; ".join(named[:told]) + rest)
        if len(wrap(text, width - INDENT, max_rows + 1)) <= max_rows:
            return block("Also", text, width, max_rows)
    return block("Also", "; ".join(f"{f.id}{_cost(f)}" for f in others), width, max_rows)


def _cost(f: Finding) -> str:
    return f" {_ms(f.cost_ms_per_step)} ms/step ({f.share:.0%})" if f.cost_ns else ""


def _devices(model: ReportModel, width: int) -> list[Line]:
    """How busy the devices were, and what the idlest of them idled for."""
    if not model.devices:
        return []
    worst = min(model.devices, key=lambda d: d.busy_share)
    digits = 2 if worst.idle_ms_per_step < 10 else 1
    causes = sorted((p for p in worst.idle_causes if p.ns > 0), key=lambda p: -p.ns)
    shown = [p for p in causes if p.share >= limit("show_share")][:4] or causes[:1]
    parts = [f"{p.name} {p.ms_per_step:,.{digits}f}" for p in shown]
    rest = worst.idle_ms_per_step - sum(p.ms_per_step for p in shown)
    if rest >= 0.5 * 10**-digits:
        parts.append(f"others {rest:,.{digits}f}")
    which = ""
    if len(model.devices) > 1:
        least, most = worst.busy_share, max(d.busy_share for d in model.devices)
        which = f"{len(model.devices)} devices, busy {least:.0%} to {most:.0%}; GPU {worst.id} "
    text = f"{which}busy {worst.busy_share:.0%}, idle {worst.idle_ms_per_step:,.{digits}f} ms/step"
    lines = block("GPU", f"{text}: {', '.join(parts)}" if parts else text, width, 2)
    if worst.traced is None:
        return lines
    return [*lines, *block("", f"an estimate, {traced_text(worst.traced, model.steps)}", width, 1)]


def _tree(model: ReportModel, width: int, room: int) -> list[Line]:
    """The mean step and what it is made of; rows add up to it, percents to 100."""
    head = f"{_ms(model.mean_ms)} ms/step"
    if model.steps > 1 and model.median_ms is not None and model.p95_ms is not None:
        head += f" (median {_ms(model.median_ms)}, p95 {_ms(model.p95_ms)}; {model.steps:,} steps)"
    else:
        head += f" ({model.steps:,} step{'s' if model.steps != 1 else ''})"
    entries = _entries(model, max(1, room - 1))
    digits = 2 if model.mean_ms < 10 else (1 if model.mean_ms < 1000 else 0)
    told = {i for i, entry in enumerate(entries) if entry.ids}
    times = apportion([e.ms for e in entries], round(model.mean_ms, digits), digits, told)
    percents = apportion([e.share * 100 for e in entries], 100.0, 0, told)
    longest = max(12, *(len(e.name) for e in entries))
    most = max(len(e.ids) for e in entries)
    mark_width = len("<- TP101, TP104 +1" if most > 2 else "<- TP101, TP104 ")
    bar_width = max(0, min(30, width - INDENT - 22 - mark_width - longest))
    lines = block("Step", head, width, 1)
    for entry, value, percent in zip(entries, times, percents, strict=True):
        if not (value or percent or entry.ids):
            continue
        row = f"{entry.name:<{longest}} {value:>9,.{digits}f} ms {percent:>4.0f}%  "
        mark = _mark(entry.ids, width - INDENT - len(row) - bar_width - 1)
        bar = "#" * round(entry.share * bar_width)
        lines.append(
            [
                (" " * INDENT, ""),
                (row, "bold" if entry.ids else ""),
                (f"{bar:<{bar_width}} ", "red" if entry.ids else "cyan"),
                (mark, "bold red"),
            ]
        )
    return lines


class _Entry(NamedTuple):
    """A row of the tree."""

    name: str
    ms: float
    share: float
    ids: list[str]  # of the findings that tell it


def _entries(model: ReportModel, rows: int) -> list[_Entry]:
    """At most that many rows: what is too small, or does not fit, is one."""
    told_by = _told_by(model)
    parts = list(model.shown_causes)
    shown = [p for p in parts if p.share >= limit("show_share")]
    if len(shown) > rows or (len(shown) == rows and len(parts) > len(shown)):
        # The largest stays; then what a finding tells.
        kept = sorted(shown[1:], key=lambda p: not told_by[p.name])[: max(0, rows - 2)]
        shown = [p for p in shown if p is shown[0] or p in kept] if rows > 1 else []
    rest = [p for p in parts if p not in shown]
    entries = [_Entry(p.name, p.ms_per_step, p.share, told_by[p.name]) for p in shown]
    if rest:
        name = rest[0].name if len(rest) == 1 else f"{len(rest)} others"
        ids = list(dict.fromkeys(id for p in rest for id in told_by[p.name]))
        entries.append(_Entry(name, sum(p.ms_per_step for p in rest), sum(p.share for p in rest), ids))
    return entries


def _told_by(model: ReportModel) -> dict[str, list[str]]:
    """Of each row, the findings that tell it, the costliest first."""
    by_cause: dict[str, list[str]] = {}
    for f in sorted(model.findings, key=lambda f: -f.cost_ns):
        if f.severity != "info" or worth_a_look([f]):
            for cause in f.causes:
                by_cause.setdefault(cause, []).append(f.id)
    return {
        p.name: list(dict.fromkeys(id for cause in p.name.split("+") for id in by_cause.get(cause, ())))
        for p in model.shown_causes
    }


def _mark(ids: Sequence[str], room: int) -> str:
    """Who tells of a row: as many as fit, and how many more there are."""
    for n in range(len(ids), 0, -1):
        more = f" +{len(ids) - n}" if n < len(ids) else ""
        mark = f"<- {', '.join(ids[:n])}{more}"
        if len(mark) <= room:
            return mark
    return ""


def _tail(model: ReportModel, width: int, keep: bool, max_lines: int, notes: int) -> list[Line]:
    """What trainperf itself cost, what is amiss with the numbers, and where they are; of the notes the first ones."""
    own = f"trainperf took {model.overhead_ms_per_step:.3f} ms/step ({model.overhead_share:.2%})"
    if model.source == "trace":
        own = "none: this is a trace, read afterwards"
    amiss: list[str] = []
    # Else it is the verdict, or a note.
    if model.ended != "normally" and not model.still_runs and (model.steps or model.ended != "killed"):
        amiss.append(_ended(model))
    lost = sum(model.dropped.get(k, 0) for k in ("marks", "samples"))
    if lost:
        amiss.append(f"{lost:,} events dropped")
    if model.incomplete:
        were = "batch was" if model.incomplete == 1 else "batches were"
        amiss.append(f"{model.incomplete} {were} never trained on")
    if model.steps:  # else nothing was judged, and the verdict says why
        tiers = sorted(model.tiers.items())
        amiss += [f"{probe} {tier.partition(':')[0]}" for probe, tier in tiers if is_amiss(probe, tier)]
        lines = block("Cost", "; ".join([own, *amiss]), width, max_lines, "dim")
    else:
        lines = block("Run", "; ".join(amiss), width, max_lines, "dim") if amiss else []
    if model.urgent_notes and len(wrap(clean(model.notes[0]), width - INDENT, 2)) > 1:
        notes = 1  # it has all lines
    lines += _notes(model.notes[:notes], width, max_lines, "in show" if keep else "")
    if keep:
        lines.append(_more("trainperf show ", model, _left_out(model.notes[notes:])))
    return lines


def _left_out(notes: Sequence[str]) -> str:
    """What the notes that had no room are about: the first one's first clause."""
    if not notes:
        return ""
    about = wrap(clean(re.split(r"[:;,] ", notes[0])[0]), _LONGEST_ABOUT, 1)[0]
    return f"  # note: {about}" if len(notes) == 1 else f"  # {len(notes)} notes: {about}; ..."


def _more(command: str, model: ReportModel, comment: str = "") -> Line:
    """Whole, however long the path is: it is there to be copied."""
    return [(f"{'More':<{INDENT}}", "bold"), (command + _quoted(model.path), ""), (comment, "dim")]


def _ended(model: ReportModel) -> str:
    if model.ended == "killed":
        return "the run was killed, or still runs"
    return {"": "ended by an exception", "SystemExit": "ended by sys.exit"}.get(
        model.exception, f"ended by {model.exception}"
    )


def _notes(notes: Sequence[str], width: int, max_lines: int, where: str) -> list[Line]:
    """What the user should know besides: a hook that is off, a name that is no phase, a file that is elsewhere.

    One that is alone may take all lines; of several each has one, and tells as much as is whole.
    """
    if len(notes) <= 1:
        kept = [fit_clauses(clean(note), width - INDENT, max_lines) for note in notes]
        return block("Note", kept[0], width, max_lines) if kept else []
    lines: list[Line] = []
    for i, note in enumerate(notes[:max_lines]):
        left = len(notes) - max_lines
        more = f"; and {left} more {where}".rstrip() if left > 0 and i == max_lines - 1 else ""
        text = fit_clauses(clean(note), width - INDENT - len(more), 1)
        lines += block("" if i else "Note", wrap(text, width - INDENT - len(more), 1)[0] + more, width, 1)
    return lines


def _quoted(path: str) -> str:
    import shlex

    return shlex.quote(clean(path))


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else (f"{value:.1f}" if value >= 1 else f"{value:.2f}")


def _is_terminal(out: TextIO) -> bool:
    try:
        return out.isatty()
    except (AttributeError, ValueError):  # closed, or not a real stream
        return False
