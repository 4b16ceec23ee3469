"""`trainperf try`: watches a short run, tries the changes that its findings advise, and keeps those that are proven.

Of each change: does it take effect, is it the same training, and is it faster? In this order, in pairs of trials; what
was proven stays on for the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import trainperf
from trainperf.errors import TrainperfError
from trainperf.findings.vocabulary import CAUSES
from trainperf.prove import measure, same_training
from trainperf.prove.candidates import candidates
from trainperf.prove.changes import Change
from trainperf.prove.machine import free_bytes
from trainperf.prove.schedule import Measured, Proof, Stop, prove
from trainperf.prove.sequential import ALPHA, MIN_PAIRS, Evidence
from trainperf.prove.trial import Asked, Trial, Trials

Verdict = Literal["proven", "no_gain", "changes_results", "not_applied", "failed", "undecided"]

_WATCH_S = 5.0  # of the loop, in the first run
_SLOWER = 3.0  # times a trial without the change: then it hangs
_HANGS_S = 30.0  # on top of that
_SHIFTED = (1, 2)  # seeds of further runs without the change, where numbers must be judged by their spread
_MEMORY_SHARE = 0.5  # of what is free that workers may take


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is known of one change."""

    change: Change
    verdict: Verdict
    reason: str = ""
    evidence: Evidence | None = None
    notes: tuple[str, ...] = ()
    causes: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # ms/step, without and with
    repeated: int = 0  # pairs, as other programs disturbed them


@dataclass(slots=True)
class Result:
    outcomes: list[Outcome]
    loader: Mapping[str, Any] | None = None  # the one that trains
    accepted: Change = field(default_factory=Change)  # all that is proven, together
    untried: list[str] = field(default_factory=list)  # findings whose fix needs an edit
    interrupted: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class First:
    """What the first run told."""

    step_ms: float
    steps: int
    verdict: str
    loader: Mapping[str, Any] | None
    plan: measure.Plan
    trial_s: float  # that a trial takes in all, about
    seeded_by_us: bool
    peak_bytes: int  # of its process' memory


class _Refuted(Stop):
    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict: Verdict = verdict


class Attempt:
    """`say` is called with each line of progress."""

    def __init__(self, trials: Trials, *, budget_s: float, say: Callable[[str], None] = lambda _: None) -> None:
        self._trials = trials
        self._say = say
        self._began = time.monotonic()
        self._deadline = self._began + budget_s
        self._budget_s = budget_s
        self._baselines: list[Mapping[str, Any]] = []
        self._shifted: list[Mapping[str, Any]] = []

    def run(self, asked: Sequence[Change] = ()) -> Result:
        """`asked`: changes to try in place of those that the findings advise.

        Raises TrainperfError where the script itself cannot be tried. Ctrl-C ends it with what is proven so far.
        """
        first, advised, untried = self._watch()
        changes = list(asked) or advised
        result = Result([], first.loader, untried=untried)
        self._plan_said(first, changes)
        try:
            for number, change in enumerate(changes):
                left = len(changes) - number
                until = time.monotonic() + (self._deadline - time.monotonic()) / left
                outcome = self._try(change, result.accepted, first, until, ALPHA / len(changes))
                result.outcomes.append(outcome)
                if outcome.verdict == "proven" and not change.against:
                    result.accepted = change.on(result.accepted)
        except KeyboardInterrupt:
            result.interrupted = True
        result.seconds = time.monotonic() - self._began
        return result

    def _watch(self) -> tuple[First, list[Change], list[str]]:
        self._say("watching the script first")
        trial = self._trials.run(Asked(seconds=_WATCH_S, timeout_s=self._budget_s / 2, fresh=True))
        if trial.ended == "overwrite":
            raise TrainperfError(
                f"the script writes {trial.error}, which exists, and was stopped before it did: what trials write "
                "cannot be discarded here (--sandbox says why). --allow-writes lets them write it"
            )
        if trial.ended == "hung":
            raise TrainperfError(
                f"it did not get through its first steps in {trial.seconds:.0f} s, half of the budget: give it less to "
                "do first, or a longer --budget"
            )
        if not trial.finished:
            raise TrainperfError(f"the script fails by itself: {trial.error}")
        plan = measure.plan(trial.record, ended_itself=trial.ended == "script")
        self._trials.may_fork = not trial.record["set_before_torch"]
        with trainperf.open(trial.run_file) as run:
            judged = run.judged
            step_ms = run.wall_ns / max(1, run.step_count) / 1e6
            advised = candidates(judged.findings, step_ms)
            tried = {change.finding for change in advised}
            untried = [f"{f.id} {f.slug}" for f in judged.findings if f.severity != "info" and f.id not in tried]
            verdict = judged.verdict.text
        trial_s = trial.seconds - _WATCH_S + plan.batches * plan.step_s
        seeded = not trial.record["script_seeds"]
        peak = int(trial.record["peak_bytes"]["rss"])
        first = First(step_ms, plan.batches, verdict, trial.loader, plan, max(1.0, trial_s), seeded, peak)
        return first, advised, untried

    def _plan_said(self, first: First, changes: Sequence[Change]) -> None:
        self._say(first.verdict)
        if not changes:
            return
        what = f"{len(changes)} changes" if len(changes) > 1 else str(changes[0])
        pairs = 2 * MIN_PAIRS * first.trial_s * len(changes)
        unit = f"trials of {first.plan.batches} steps, about {first.trial_s:.0f} s each"
        self._say(f"will try {what}: {unit}; {_minutes(pairs)} or more, at most {_minutes(self._budget_s)}")
        if len(changes) > 1:
            for change in changes:
                self._say(f"  {change}" + (f" ({change.finding})" if change.finding else ""))
        if self._trials.sandboxed:
            self._say(f"what trials write in {', '.join(self._trials.sandboxed)} is discarded")
        if first.seeded_by_us:
            self._say("the script sets no seed: trials set it, the same in each")

    def _try(self, change: Change, base: Change, first: First, until: float, alpha: float) -> Outcome:
        refused = self._refused(change, first)
        if refused:
            return Outcome(change, "not_applied", refused)
        whole = change if change.against else change.on(base)
        timeout = _SLOWER * first.trial_s + _HANGS_S
        kept: dict[str, Trial] = {}
        notes = list(change.notes) if first.plan.epoch is not None or change.of_loader else []

        def measured(trial: Trial) -> Measured:
            return Measured(measure.rate(trial.record, first.plan), trial.record["others_cpus"])

        fresh = bool(whole.environment or base.environment)
        asked = Asked(base, first.loader, first.plan.batches, timeout_s=timeout, fresh=fresh)

        def without() -> Measured:
            kept["without"] = trial = self._baseline(asked)
            return measured(trial)

        def with_it() -> Measured:
            trial = self._trials.run(replace(asked, change=whole))
            if not trial.finished:
                raise _Refuted("failed", trial.error)
            if trial.record["unproven"]:
                raise _Refuted("not_applied", "; ".join(trial.record["unproven"]))
            note = self._same(trial, whole, asked)
            if note and note not in notes:
                notes.append(note)
            figure = measured(trial)
            if figure.rate <= 0:
                raise _Refuted("changes_results", "it ends before as many steps")
            kept["with"] = trial
            return figure

        def progress(evidence: Evidence) -> None:
            if evidence.decision == "open" and evidence.pairs > 1:
                self._say(f"{change}: {words(evidence)} after {evidence.pairs} pairs")

        try:
            proof = prove(without, with_it, deadline=until, pair_s=2 * first.trial_s, alpha=alpha, progress=progress)
        except _Refuted as refuted:
            return Outcome(change, refuted.verdict, str(refuted), notes=tuple(notes))
        causes = _causes(kept["without"], kept["with"]) if len(kept) == 2 else {}
        verdict, reason = self._verdict(change, proof)
        return Outcome(change, verdict, reason, proof.evidence, tuple(notes), causes, proof.repeated)

    def _baseline(self, asked: Asked) -> Trial:
        trial = self._trials.run(asked)
        if not trial.finished:
            raise TrainperfError(f"a trial without the change failed: {trial.error}")
        self._baselines = [*self._baselines[: same_training.BASELINES - 1], trial.record]
        return trial

    def _same(self, trial: Trial, change: Change, asked: Asked) -> str:
        """A note on what differs without harm. Raises _Refuted where it is another training.

        `asked`: for one without the change, of which more are run where they are needed to tell.
        """
        found = same_training.compare(self._baselines, trial.record, change.numbers, shifted=self._shifted)
        if found.kind == "more" and len(self._baselines) < 2:
            self._baseline(asked)
            found = same_training.compare(self._baselines, trial.record, change.numbers, shifted=self._shifted)
        if found.kind == "more":
            for shift in _SHIFTED:
                shifted = self._trials.run(replace(asked, shift=shift))
                if not shifted.finished:
                    raise _Refuted("failed", f"a trial of another seed failed: {shifted.error}")
                self._shifted.append(shifted.record)
            found = same_training.compare(self._baselines, trial.record, change.numbers, shifted=self._shifted)
        if found.kind == "other":
            raise _Refuted("changes_results", found.reason)
        return found.reason

    def _verdict(self, change: Change, proof: Proof) -> tuple[Verdict, str]:
        decision = proof.evidence.decision
        if decision == "won":
            if change.numbers == "precision":
                return "changes_results", "faster, but it computes with fewer bits: check that it trains as well"
            return "proven", ""
        if decision == "open":
            return "undecided", (
                "the budget is used up: give more by --budget"
                if proof.stopped == "time"
                else "the machine is too noisy"
            )
        return "no_gain", "slower" if decision == "slower" else "no gain worth 2%"

    def _refused(self, change: Change, first: First) -> str:
        """Why it is not even tried; "" where it is."""
        if change.of_loader and first.loader is None:
            return "this training has no DataLoader"
        workers = int(change.of_loader.get("num_workers", 0))
        if workers:
            each = first.peak_bytes
            for what, free in free_bytes().items():
                need = workers * each if what == "memory" else 0
                if need > _MEMORY_SHARE * free:
                    return f"{workers} workers may take {need / 2**30:.1f} GiB, over half of the free {what}"
        return ""


def words(evidence: Evidence) -> str:
    """ "1.31x [1.27, 1.36]"."""
    low, high = evidence.interval
    if high == float("inf"):
        return f"{evidence.gain:.2f}x"
    return f"{evidence.gain:.2f}x [{low:.2f}, {high:.2f}]"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"


def _causes(without: Trial, with_it: Trial) -> dict[str, tuple[float, float]]:
    """Of the last pair: each cause's milliseconds a step, largest change first."""
    sides = []
    for trial in (without, with_it):
        with trainperf.open(trial.run_file) as run:
            steps = max(1, run.step_count)
            sides.append({cause: run.cause_ns(cause) / steps / 1e6 for cause in CAUSES})
    both = {cause: (sides[0].get(cause, 0.0), sides[1].get(cause, 0.0)) for cause in sides[0] | sides[1]}
    return dict(sorted(both.items(), key=lambda item: -abs(item[1][0] - item[1][1])))
