"""Watches a short run of a script, and says of a change: does it take effect, is it the same training, is it faster?"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import trainperf
from trainperf.errors import TrainperfError
from trainperf.prove import measure, same_training
from trainperf.prove.candidates import candidates, with_start_up
from trainperf.prove.changes import Change
from trainperf.prove.epochs import later
from trainperf.prove.machine import free_bytes
from trainperf.prove.main_guard import why_no_workers
from trainperf.prove.same_training import Sameness
from trainperf.prove.schedule import Measured, Proof, Stop, prove
from trainperf.prove.sequential import MAX_TURNS, MIN_PAIRS, Evidence, judge
from trainperf.prove.trial import Asked, Trial, Trials
from trainperf.prove.turns import FEWEST_STEPS, logs_of
from trainperf.runfile.schema import CAUSES

Verdict = Literal["proven", "no_gain", "changes_results", "not_applied", "failed", "undecided"]

Record = Mapping[str, Any]

_WATCH_S = 5.0  # of the loop, in the first run
_SLOWER = 3.0  # times a trial without the change: then it hangs
_HANGS_S = 30.0  # on top of that
_STARTS_S = 5.0  # at least
_HUNG = ": a worker may wait forever for what only the training process has, such as a thread, a Pool or a held lock"
_SHIFTED = (1, 2)  # seeds of further runs without the change, where numbers must be judged by their spread
_TURN_S = 0.7  # that a stretch of turns takes with the start of its workers, at least
_COMPARED = 12  # batches before turns: it must be the same training until then
_PREFETCH = 2  # batches of each worker, by default
_MEMORY_SHARE = 0.5  # of what is free that workers may take
_OTHERWISE = 1.3  # by which the gain of one trial may lie outside the interval of pairs in one process
_BUSY = 0.3  # CPUs that others use: it is said
_NOTHING = Change()


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
    same: str = ""  # what the losses are: "same" (to the bit), "rounding", "alike"; "": not compared
    steps: int = 0  # whose losses were compared


@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """What the first run, of the script as it is, told."""

    trial: Trial
    plan: measure.Plan
    step_ms: float
    verdict: str
    advised: tuple[Change, ...]  # by its findings, the most promising first
    untried: tuple[str, ...]  # findings whose fix needs an edit
    trial_s: float  # that a trial takes in all, about


class _Refuted(Stop):
    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict: Verdict = verdict


class Prover:
    """`say` is called with each line of progress."""

    def __init__(
        self, trials: Trials, *, budget_s: float, say: Callable[[str], None] = lambda _: None, keep: str = ""
    ) -> None:
        """`keep`: a folder for a run file of each side of each change; "": they are not kept."""
        self.trials = trials
        self._keep = keep
        self._kept = 0
        self.say = say
        self.began = time.monotonic()
        self.budget_s = budget_s
        self._baselines: list[Record] = []
        self._shifted: list[Record] = []
        self._base = _NOTHING  # that was on in those

    @property
    def left_s(self) -> float:
        """Of the budget."""
        return self.began + self.budget_s - time.monotonic()

    def watch(self, seconds: float = _WATCH_S, *, turns: Mapping[str, Any] | None = None, more: bool = True) -> First:
        """Runs the script as it is. Raises TrainperfError where it cannot be tried.

        `turns`: what follows in the same process, as of Asked. `more`: other trials follow; what forks them starts now.
        """
        if self.trials.no_sandbox:
            self.say(
                f"no overlay here ({self.trials.no_sandbox}): what C++ code, workers and subprocesses write is kept"
            )
        self.say("watching the script first")
        if more:
            self.trials.warm()
        trial = self.trials.run(Asked(seconds=seconds, timeout_s=self.budget_s / 2, turns=turns, fresh=True))
        if trial.ended == "overwrite":
            raise TrainperfError(
                f"the script writes {trial.error}, which exists, and was stopped before it did: "
                f"{self.trials.no_sandbox or 'it is in no sandbox'}. --allow-writes lets trials write it"
            )
        if trial.ended == "hung":
            others = (
                "; it had started other processes: if one of these trains, its steps are not seen"
                if trial.started
                else ""
            )
            raise TrainperfError(
                f"it did not get to {seconds:.0f} s of training in {trial.seconds:.0f} s, half of the budget: give a "
                f"longer --budget, or the script less to do first{others}"
            )
        if not trial.finished:
            raise TrainperfError(f"the script fails without a change: {trial.error}{_hint(trial.error)}")
        plan = measure.plan(trial.record, ended_itself=trial.ended == "script")
        self.trials.may_fork = not trial.record["set_before_torch"]
        with trainperf.open(trial.run_file) as run:
            judged = run.judged
            step_ms = run.wall_ns / max(1, run.step_count) / 1e6
            found = candidates(judged.findings, step_ms)
            advised = [with_start_up(change, step_ms, plan) for change in found]
            tried = {change.finding for change in advised}
            untried = [f"{f.id} {f.slug}" for f in judged.findings if f.severity != "info" and f.id not in tried]
            verdict = judged.verdict.text
        return First(
            trial=trial,
            plan=plan,
            step_ms=step_ms,
            verdict=verdict,
            advised=tuple(advised),
            untried=tuple(untried),
            trial_s=max(1.0, trial.seconds - measure.loop_s(trial.record) + plan.batches * plan.step_s),
        )

    def plan_said(self, first: First, changes: Sequence[Change]) -> None:
        self.say(first.verdict)
        if not changes:
            return
        what = f"{len(changes)} changes" if len(changes) > 1 else str(changes[0])
        turns = 2 * (first.trial_s + MIN_PAIRS * max(_TURN_S, FEWEST_STEPS * first.plan.step_s))
        pairs = sum(turns if _by_turns(c, first) else 2 * MIN_PAIRS * first.trial_s for c in changes)
        unit = f"trials of {first.plan.batches} steps, about {first.trial_s:.0f} s each"
        needs = f"a proof needs at least {_minutes(pairs)}"
        left = max(0.0, self.left_s)
        allows = f"{'' if pairs <= left else 'only '}{_minutes(left)} of the budget is left"
        self.say(f"will try {what}: {unit}; {needs}, {allows}")
        if len(changes) > 1:
            for change in changes:
                self.say(f"  {change}" + (f" ({change.finding})" if change.finding else ""))
        if self.trials.sandboxed:
            self.say(f"what trials write in {', '.join(self.trials.named)} is discarded")
        if not first.trial.record["script_seeds"]:
            self.say("the script sets no seed: all trials use the same one")

    def prove(self, change: Change, first: First, *, base: Change = _NOTHING, until: float, alpha: float) -> Outcome:
        """`base`: what is on in both sides of each pair. `until`: no pair begins that ends later."""
        refused = self.refused(change, first)
        if refused:
            return Outcome(change, "not_applied", refused)
        outcome = None
        if base == _NOTHING and _by_turns(change, first):
            outcome = self._in_turns(change, first, until=until, alpha=alpha)
        return outcome or self.prove_by_trials(change, first, base=base, until=until, alpha=alpha)

    def prove_by_trials(
        self, change: Change, first: First, *, base: Change = _NOTHING, until: float, alpha: float
    ) -> Outcome:
        """Each side of a pair is a process of its own, and not watched: a watch costs more of what the training process
        does itself than of what its workers do."""
        if base != self._base:
            self._base, self._baselines, self._shifted = base, [], []
        whole = change if change.against else change.on(base)
        timeout = self._timeout(first)
        notes = list(change.notes(first.trial.loader))

        others: list[float] = []
        kinds: list[str] = []
        steps: list[int] = []

        def measured(trial: Trial) -> Measured:
            used = trial.record["others_cpus"]
            others.append(used or 0.0)
            return Measured(measure.rate(trial.record, first.plan), used)

        fresh = bool(whole.environment or base.environment)
        asked = Asked(base, first.trial.loader, first.plan.batches, timeout_s=timeout, fresh=fresh, watched=False)

        def without() -> Measured:
            return measured(self._baseline(asked, first.plan))

        def with_it() -> Measured:
            trial, same = self._with(whole, asked, first.plan)
            kinds.append(same.kind)
            steps.append(len(trial.record["losses"]))
            if same.reason and same.reason not in notes:
                notes.append(same.reason)
            return measured(trial)

        def progress(evidence: Evidence) -> None:
            if evidence.decision == "open" and evidence.pairs > 1:
                self.say(f"{change}: {words(evidence)} after {evidence.pairs} pairs")

        try:
            proof = prove(without, with_it, deadline=until, pair_s=2 * first.trial_s, alpha=alpha, progress=progress)
        except _Refuted as refuted:
            return Outcome(change, refuted.verdict, str(refuted))
        if proof.evidence.decision == "won" and whole.of_loader:
            try:
                notes += self._over_epochs(whole, asked, first)
            except _Refuted as refuted:
                return Outcome(change, refuted.verdict, str(refuted))
        causes: Mapping[str, tuple[float, float]] = {}
        if (proof.evidence.decision != "open" or self._keep) and self.left_s > 2 * first.trial_s:
            causes = self._causes(change, whole, asked, first)
        verdict, reason = self._verdict(change, proof)
        reason += self._circumstances(change, first, verdict, sum(others) / len(others) if others else 0.0)
        same = next((kind for kind in ("alike", "rounding", "same") if kind in kinds), "")
        compared = min(steps, default=0)
        return Outcome(change, verdict, reason, proof.evidence, tuple(notes), causes, proof.repeated, same, compared)

    def _circumstances(self, change: Change, first: First, verdict: Verdict, busy: float) -> str:
        """Why there may be no more gain here; `busy`: CPUs that other programs used."""
        found, cpus = "", first.trial.record["cpus"]
        if verdict == "no_gain" and change.of_loader.get("num_workers") and cpus < len(os.sched_getaffinity(0)):
            found += f"; the script keeps its process on {cpus} CPU{'s' if cpus > 1 else ''}, and workers inherit that"
        if verdict in ("no_gain", "undecided") and busy >= _BUSY:
            found += f"; other programs used {busy:.1f} CPUs meanwhile: try again when they do not"
        return found

    def _causes(self, change: Change, whole: Change, asked: Asked, first: First) -> Mapping[str, tuple[float, float]]:
        """By one more trial of each side, watched; of the script as it is the first one was."""
        watched = replace(asked, watched=True)
        without = first.trial if asked.change == _NOTHING else self.trials.run(watched)
        with_it = self.trials.run(replace(watched, change=whole))
        if not (without.finished and with_it.finished):
            return {}
        self._keep_runs(change, {"without": without, "with": with_it})
        return causes_of(without, with_it)

    def _keep_runs(self, change: Change, kept: Mapping[str, Trial]) -> None:
        if not self._keep:
            return
        self._kept += 1
        names = {side: os.path.join(self._keep, f"{self._kept}-{side}.tpr") for side in kept}
        try:
            os.makedirs(self._keep, exist_ok=True)
            for side, trial in kept.items():
                shutil.copyfile(trial.run_file, names[side])
        except OSError as error:  # no reason to lose what was found
            self.say(f"{change}: its runs are not kept: {error}")
            return
        self.say(f"{change}: trainperf compare {names['without']} {names['with']}")

    def _baseline(self, asked: Asked, plan: measure.Plan) -> Trial:
        trial = self.trials.run(asked)
        if not trial.finished:
            raise TrainperfError(f"a trial without the change failed: {trial.error}")
        if measure.rate(trial.record, plan) <= 0:
            raise TrainperfError("the script ends after fewer steps than before: give it a fixed number of them")
        self._baselines = [*self._baselines[: same_training.BASELINES - 1], trial.record]
        return trial

    def _with(self, change: Change, asked: Asked, plan: measure.Plan) -> tuple[Trial, Sameness]:
        """A trial with the change. Raises _Refuted where that fails, has no effect, or is another training.

        `asked`: for one without it.
        """
        trial = self.trials.run(replace(asked, change=change))
        if not trial.finished:
            hint = _HUNG if trial.ended == "hung" and change.of_loader.get("num_workers") else ""
            raise _Refuted("failed", trial.error + hint)
        if trial.record["unproven"]:
            raise _Refuted("not_applied", "; ".join(trial.record["unproven"]))
        same = self._same(trial, change, asked, plan)
        if measure.rate(trial.record, plan) <= 0:
            raise _Refuted("changes_results", "it ends after fewer steps")
        return trial, same

    def _in_turns(self, change: Change, first: First, *, until: float, alpha: float) -> Outcome | None:
        """None where they cannot be taken."""
        loader = first.trial.loader or {}
        paired = {
            "now": int(loader["options"]["num_workers"] or 0),
            "other": int(change.of_loader["num_workers"]),
            "alpha": alpha,
            "seconds": until - time.monotonic() - 2 * first.trial_s,
        }
        trial = self.turns(first, {"paired": paired}, persistent=_persistent(change), until=until)
        if trial.ended == "hung":
            return Outcome(change, "failed", trial.error)
        if not trial.finished or not trial.record["turns"].get("pairs"):
            return None
        evidence = judge(logs_of(trial.record["turns"]["pairs"]), alpha=alpha)
        self.say(f"{change}: {words(evidence)} after {evidence.pairs} pairs in one process")
        return self.confirm(change, first, trial, evidence)

    def turns(self, first: First, policy: Mapping[str, Any], *, persistent: bool, until: float) -> Trial:
        """A trial without a change that goes on by turns: its record's "turns" are what these found, {} for nothing.

        It is not watched: with workers a watch sees less of the work, and so costs less.
        """
        turns = {"policy": policy, "epochs": measure.of_epochs(first.trial.record, first.plan, persistent=persistent)}
        batches = max(first.plan.warm_up, _COMPARED)
        timeout = max(0.0, until - time.monotonic()) + _HANGS_S
        asked = Asked(_NOTHING, first.trial.loader, batches, turns=turns, timeout_s=timeout, watched=False)
        trial = self.trials.run(asked)
        if trial.error and trial.ended != "hung":
            self.say(f"turns in one process failed, so each side is a process of its own: {trial.error}")
        return trial

    def confirm(self, change: Change, first: First, baseline: Trial, evidence: Evidence) -> Outcome | None:
        """Of a change whose pairs were taken in one process, `baseline`: a trial with it says whether it takes effect
        and is the same training. None where that one is another time faster than the pairs say."""
        self._base, self._shifted = _NOTHING, []
        self._baselines = [first.trial.record, baseline.record]
        asked = Asked(_NOTHING, first.trial.loader, first.plan.batches, timeout_s=self._timeout(first))
        over: Sequence[str] = ()
        try:
            trial, same = self._with(change, asked, first.plan)
            if evidence.decision == "won":
                over = self._over_epochs(change, asked, first)
        except _Refuted as refuted:
            return Outcome(change, refuted.verdict, str(refuted))
        gain = measure.rate(trial.record, first.plan) / measure.rate(first.trial.record, first.plan)
        low, high = evidence.interval
        if not low / _OTHERWISE < gain < high * _OTHERWISE:
            return None
        notes = [
            *change.notes(first.trial.loader),
            *filter(None, [same.reason]),
            *over,
        ]
        verdict, reason = self._verdict(change, Proof(evidence, 0, "time" if evidence.pairs < MAX_TURNS else ""))
        reason += self._circumstances(change, first, verdict, baseline.record["others_cpus"] or 0.0)
        causes = causes_of(first.trial, trial)
        self._keep_runs(change, {"without": first.trial, "with": trial})
        kind, steps = "" if same.kind == "more" else same.kind, len(trial.record["losses"])
        return Outcome(change, verdict, reason, evidence, tuple(notes), causes, same=kind, steps=steps)

    def _over_epochs(self, change: Change, asked: Asked, first: First) -> Sequence[str]:
        """Notes on what the first epoch does not show. Raises _Refuted where a later one is another training.

        `asked`: for a trial without the change.
        """
        found = later(self.trials, change, asked, first.trial.record, step_s=first.plan.step_s)
        if found.other:
            raise _Refuted("changes_results", found.other)
        return found.notes

    def _timeout(self, first: First) -> float:
        """Of a trial: later it hangs. No longer than the budget, but for three times a trial without the change."""
        return _SLOWER * first.trial_s + min(_HANGS_S, max(_STARTS_S, self.left_s))

    def _same(self, trial: Trial, change: Change, asked: Asked, plan: measure.Plan) -> Sameness:
        """Raises _Refuted where it is another training.

        `asked`: for one without the change, of which more are run where they are needed to tell.
        """
        found = same_training.compare(self._baselines, trial.record, change.numbers, shifted=self._shifted)
        if found.kind == "more" and len(self._baselines) < 2:
            self._baseline(asked, plan)
            found = same_training.compare(self._baselines, trial.record, change.numbers, shifted=self._shifted)
        if found.kind == "more":
            for shift in _SHIFTED:
                shifted = self.trials.run(replace(asked, shift=shift))
                if not shifted.finished:
                    raise _Refuted("failed", f"a trial of another seed failed: {shifted.error}")
                self._shifted.append(shifted.record)
            found = same_training.compare(self._baselines, trial.record, change.numbers, shifted=self._shifted)
        if found.kind == "other":
            raise _Refuted("changes_results", found.reason)
        return found

    def _verdict(self, change: Change, proof: Proof) -> tuple[Verdict, str]:
        decision = proof.evidence.decision
        if decision == "won":
            if change.numbers == "precision":
                return "changes_results", "faster, but it computes with fewer bits: check that it trains as well"
            return "proven", ""
        if decision == "open":
            return "undecided", (
                "the budget leaves no time for another pair: give more by --budget"
                if proof.stopped == "time"
                else "the machine is too noisy"
            )
        return "no_gain", "slower" if decision == "slower" else "no gain worth 2%"

    def refused(self, change: Change, first: First) -> str:
        """Why it is not even tried; "" where it is."""
        if change.patch and not self.trials.sandboxed:
            return "a patch is applied in a sandbox, and there is none here"
        if change.of_loader and first.trial.loader is None:
            return "this training has no DataLoader"
        if change.of_loader and first.trial.loader is not None:
            why = why_no_workers(change.of_loader, first.trial.loader)
            if why:
                return why
        workers = int(change.of_loader.get("num_workers", 0))
        if workers:
            ahead = int(change.of_loader.get("prefetch_factor") or _PREFETCH) * int(first.trial.record["batch_bytes"])
            needs = {"memory": int(first.trial.record["peak_bytes"]["rss"]) + ahead, "/dev/shm": ahead}
            for what, free in free_bytes().items():
                need = workers * needs[what]
                if need > _MEMORY_SHARE * free:
                    return f"{workers} workers may take {need / 2**30:.1f} GiB, over half of the free {what}"
        return ""


def _by_turns(change: Change, first: First) -> bool:
    """Whether one process can go on with it, and without it."""
    names = {name for name, _ in change.settings}
    return (
        "num_workers" in names
        and names <= {"num_workers", "persistent_workers"}
        and not (change.against or change.patch)
        and first.plan.epoch is not None
    )


def _persistent(change: Change) -> bool:
    return bool(change.of_loader.get("persistent_workers"))


def _hint(error: str) -> str:
    """What to do about one that the trial itself brought about."""
    if os.strerror(errno.ENOSPC) in error:
        return f" (trials write to {tempfile.gettempdir()}: set TMPDIR to a folder with room)"
    if error.startswith("EOFError"):
        return " (a trial has no stdin: give the script its answers as arguments)"
    return ""


def words(evidence: Evidence) -> str:
    """ "1.31x [1.27, 1.36]"."""
    low, high = evidence.interval
    if high == float("inf"):
        return f"{evidence.gain:.2f}x"
    return f"{evidence.gain:.2f}x [{low:.2f}, {high:.2f}]"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"


def causes_of(without: Trial, with_it: Trial) -> dict[str, tuple[float, float]]:
    """Each cause's milliseconds a step, largest change first."""
    sides = []
    for trial in (without, with_it):
        with trainperf.open(trial.run_file) as run:
            steps = max(1, run.step_count)
            sides.append({cause: run.cause_ns(cause) / steps / 1e6 for cause in CAUSES})
    both = {cause: (sides[0].get(cause, 0.0), sides[1].get(cause, 0.0)) for cause in sides[0] | sides[1]}
    return dict(sorted(both.items(), key=lambda item: -abs(item[1][0] - item[1][1])))
