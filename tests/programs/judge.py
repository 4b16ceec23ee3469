"""Runs a test program under trainperf and holds what trainperf says against the truth that the program measured."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from trainperf.cli.main import main
from trainperf.findings.rules import ALL

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import warm  # the line above makes it importable

FOLDER = Path(__file__).parent
TOLERANCE = 0.05  # of the share of the run's time
UNKNOWN = 0.02
# A machine that keeps the step thread from a CPU for this share of the time has a right to be called busy.
BUSY, MACHINES = 0.05, {"descheduled", "cpu-oversubscription"}
# For this much, and it also keeps threads from it that hold the GIL for microseconds or have a batch to pass on: others
# do wait for them then, and samples find them there.
CROWDED, HELD_UP = 0.25, {"gil-hog", "gil-many", "host-python", "ready-not-delivered"}

# Reads of another thread's stack fail now and then, by design: the thread runs meanwhile.
MAY_BE_DROPPED = ("gil_captures", "stacks")

# Programs whose trouble has two true names, or is an info where it is sure of it only in a longer run: what may stand
# first, beside the finding that is asked for.
ALSO_FIRST = {"uneven": {"gil-hog", "gil-many"}, "compile-warmup": {""}, "memory-growth": {""}}


def programs() -> list[str]:
    """The names of all programs but what benchmarks run."""
    others = ("_common", "judge", "priced_setting", "table")
    return sorted(p.stem for p in FOLDER.glob("*.py") if p.stem not in others)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One program's run: what was true and what was said."""

    truth: dict[str, Any]
    shown: dict[str, Any]  # `trainperf show --json`
    printed: str  # the verdict on stderr

    @property
    def skipped(self) -> str:
        return str(self.truth.get("skip", ""))

    @property
    def share(self) -> float | None:
        """What is reported for the cause that was injected."""
        cause = self.truth["cause"]
        if cause is None:
            return None
        # Python and compute have the rest of the loop in them, too.
        if cause not in self.shown["causes"] or cause in ("python", "compute"):
            return next((f["share"] for f in self.shown["findings"] if f["slug"] == self.truth["finding"]), 0.0)
        return float(self.shown["causes"][cause]["share"])

    @property
    def first(self) -> str:
        """The finding that the verdict is about."""
        wanted = self.shown["verdict"]["finding"]
        return next((f["slug"] for f in self.shown["findings"] if f["id"] == wanted), "")


def run(name: str, folder: Path, options: Sequence[str] = ()) -> Outcome:
    """Runs the program and opens its run file. RuntimeError when one of them fails."""
    path = folder / f"{name}.tpr"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TRAINPERF_")}
    program = warm.run([str(FOLDER / f"{name}.py"), "--path", str(path), *options], env=environment)
    if program.returncode:
        raise RuntimeError(f"{name} ended with {program.returncode}:\n{program.stderr[-3000:]}")
    truth = json.loads(program.stdout.splitlines()[-1])
    if "skip" in truth:
        return Outcome(truth, {}, "")
    with redirect_stdout(StringIO()) as shown:
        if main(["show", str(path), "--json"]) != 0:
            raise RuntimeError(f"trainperf show {name} failed: {shown.getvalue()}")
    return Outcome(truth, json.loads(shown.getvalue()), program.stderr)


def problems(outcome: Outcome) -> list[str]:
    """Everything that trainperf got wrong; empty when nothing."""
    truth, shown, wrong = outcome.truth, outcome.shown, []
    steps = shown["steps"]
    if (steps["count"], steps["incomplete"]) != (truth["steps"], 0):
        wrong.append(f"{steps['count']} steps and {steps['incomplete']} incomplete, not {truth['steps']} and 0")
    total = sum(cause["share"] for cause in shown["causes"].values())
    if abs(total - 1) > 1e-3:
        wrong.append(f"the causes sum to {total:.4f}")
    if shown["causes"]["unknown"]["share"] > UNKNOWN:
        wrong.append(f"unknown is {shown['causes']['unknown']['share']:.3f}")
    lost = {what: count for what, count in shown["dropped"].items() if count and what not in MAY_BE_DROPPED}
    # A thread was kept from a CPU between its clock and its ring.
    if lost.get("late_events", 0) * 50 <= steps["count"] or truth["delay_share"] >= CROWDED:
        lost.pop("late_events", None)
    if lost:
        wrong.append(f"dropped: {lost}")
    return wrong + (_false_alarms(outcome) if truth["finding"] is None else _wrong_finding(outcome))


def _false_alarms(outcome: Outcome) -> list[str]:
    allowed = _machines(outcome.truth) | (HELD_UP if outcome.truth["delay_share"] >= CROWDED else set())
    return [
        f"false alarm: {f['severity']} {f['slug']}: {f['title']}"
        for f in outcome.shown["findings"]
        if f["severity"] != "info" and f["slug"] not in allowed
    ]


def _machines(truth: dict[str, Any]) -> set[str]:
    return MACHINES if truth["delay_share"] >= BUSY else set()


def _wrong_finding(outcome: Outcome) -> list[str]:
    truth, wrong = outcome.truth, []
    limit = next(rule.limits.warn for rule in ALL if rule.slug == truth["finding"])
    if _machines(truth) and truth["truth_share_max"] < limit:
        return []  # others had so much of the time that the trouble was no trouble
    finding = next((f for f in outcome.shown["findings"] if f["slug"] == truth["finding"]), None)
    if finding is None:
        why = next((a["why"] for a in outcome.shown["abstained"] if a.get("slug") == truth["finding"]), "")
        found = ", ".join(f["slug"] for f in outcome.shown["findings"]) or "nothing"
        return [f"{truth['finding']} is not found, but {found}{f'; it abstained: {why}' if why else ''}"]
    firsts = {truth["finding"]} | ALSO_FIRST.get(truth["finding"], set()) | _machines(truth)
    if outcome.first not in firsts:
        wrong.append(f"the verdict is about {outcome.first or 'nothing'}: {outcome.shown['verdict']['text']}")
    # Who and where may stand in the finding of the trouble's other name.
    named = [f for f in outcome.shown["findings"] if f["slug"] in firsts]
    if truth["where_lines"]:
        places = {f"{truth['where'].split(':')[0]}:{line}" for line in truth["where_lines"]}
        if not places & {Path(f["where"]).name for f in named}:
            wrong.append(f"where is {finding['where']!r}, not {truth['where']}")
    if truth["who"] and truth["who"] not in json.dumps([[f["who"], f["evidence"]] for f in named]):
        wrong.append(f"who is {finding['who']}, not {truth['who']}")
    if truth["grown_bytes"]:
        each, said = truth["grown_bytes"] / truth["steps"], _bytes(finding["title"])
        if not 0.75 * each <= said <= 1.3 * each:
            wrong.append(f"memory grows by {said:,.0f} bytes a step, in truth {each:,.0f}")
    share = outcome.share
    assert share is not None
    # Who waits for data waits for the GIL in between, which the clock around a fetch cannot tell from it.
    hidden = outcome.shown["causes"].get("gil_wait", {"share": 0.0})["share"] if truth["cause"] == "data_wait" else 0.0
    if not truth["truth_share"] - TOLERANCE - hidden <= share <= truth["truth_share_max"] + TOLERANCE:
        span = " .. ".join(str(truth[key]) for key in ("truth_share", "truth_share_max"))
        wrong.append(f"{truth['cause']} is {share:.3f}, in truth {span}")
    return wrong


def _bytes(title: str) -> float:
    """Of "... grows by 39.6 kB a step"."""
    found = re.search(r"([\d.]+) (B|kB|MB|GB)", title)
    return float(found[1]) * {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}[found[2]] if found else 0.0


def row(outcome: Outcome) -> tuple[str, ...]:
    """program, cause, truth, reported, verdict."""
    truth = outcome.truth
    if outcome.skipped:
        return (truth["program"], "", "", "", f"skipped: {outcome.skipped}")
    if truth["cause"] is None:
        return (truth["program"], "healthy", "", "", outcome.shown["verdict"]["text"])
    low, high = truth["truth_share"], truth["truth_share_max"]
    span = f"{low:.3f}" if high - low < 0.0005 else f"{low:.3f} .. {high:.3f}"
    return (truth["program"], truth["cause"], span, f"{outcome.share:.3f}", outcome.shown["verdict"]["text"])


def table(rows: Sequence[Sequence[str]]) -> str:
    """As Markdown."""
    head = ("program", "cause", "truth share", "reported share", "verdict")
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in (head, *rows)]
    return "\n".join([lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]])
