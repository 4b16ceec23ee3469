"""TP301: the training thread sleeps in the loop: a lock, a queue, a file, a socket, a child process, time.sleep."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trainperf.findings import loaders, pools
from trainperf.findings.cpu_use import usable_cpus
from trainperf.findings.facts import Affected, Spot, ms, plural
from trainperf.findings.frames import below_backward, is_stdlib_file, stops_workers
from trainperf.findings.handovers import handover, in_event_loop, told_beside
from trainperf.findings.model import Cell, Limits, Outcome, Standing
from trainperf.findings.saving import beside_saves
from trainperf.findings.syscalls import call_of, syscall_name, waiting_kind, writes
from trainperf.findings.thresholds import limit
from trainperf.findings.waiting import FIXES, WORDS

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.places import Beside
    from trainperf.runfile import Detail, Frame, Loader

# What looks without waiting, of what may wait with a timeout.
_LOOKS = {
    "lock": "acquire(blocking=False)",
    "queue": "get_nowait()",
    "full queue": "put_nowait()",
    "timed signal": "is_set(), of a Condition by its own test,",
    "thread end": "is_alive()",
    "future": "done()",
}

_OF_RANKS: dict[Standing, str] = {"": "ranks", "even": "even ranks", "late": "late ranks"}

_NOW_AND_THEN = (
    "# let its producer run further ahead: a larger queue evens out what takes long now and then",
    "a larger batch, a faster GPU: the producer sets the pace",
)


_FIND_OUT = "# run longer: then it is told which call it is, to be moved out of the loop or into a thread"


def _of_background(facts: Facts, background: Sequence[Loader], cost: int) -> str:
    """Faster loaders that other threads read; `cost`: of the loop, which waits for them."""
    main = max(background, key=lambda v: v.fetches.off_thread_wall_ns)
    have = loaders.num_workers(main)
    if not have:
        return f"DataLoader(..., num_workers={max(2, len(background) * 2)})  # the background loader is too slow"
    cpus, view = usable_cpus(facts.run), loaders.worker_view(main)
    if view.computes and 0 < cpus <= have:
        return (
            f"# make one sample of {loaders.dataset_name(main)} cheaper: the background loader's workers have all CPUs"
        )
    need = max(have + 1, math.ceil(have * facts.wall_ns / max(facts.wall_ns - cost, facts.wall_ns // 20)))
    want = min(need, max(cpus, have + 1)) if view.computes and cpus else need
    call = f"DataLoader(..., num_workers={want})"
    return loaders.with_workers(main, want, call, f"the background loader's {plural(have, 'worker')} are too slow")


class Blocked:
    id = "TP301"
    slug = "blocked"
    limits = Limits(limit("warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ()

    def check(self, facts: Facts) -> Outcome:
        ended = facts.loaders_end if facts.loaders_end.is_told(facts) else None  # as TP104's
        claims = facts.ledger.cells("blocked_io")
        cost = sum(claims.values())
        severity = facts.grade(cost, self.limits)
        if severity is None:
            return None
        # Of a part of the cause it is not known which steps have it.
        whole = cost >= limit("held_share") * facts.cause_ns("blocked_io")
        affected = facts.affected("blocked_io") if whole else Affected(facts.steps, 1.0)
        phases = {p for p, _ in claims}
        elsewhere = beside_saves(facts).details  # told as the checkpoint's
        elsewhere |= ended.details if ended is not None else frozenset()
        asleep = facts.samples(phases=phases, states=["blocked"])
        samples = [
            d for d in asleep if d not in elsewhere and not facts.in_told_hook(d.phase, facts.run.stack(d.stack))
        ]
        # Where others were is known of all that is asleep in these phases.
        most = sum(d.ns for d in samples) >= limit("most_share") * sum(d.ns for d in asleep)
        spots = facts.spots(samples, by_line=True)  # another line may wait for another reason
        seen = sum(s.samples for s in spots)
        top = spots[0] if spots else None
        name = self._call(facts, top, samples)
        stopping = top is not None and stops_workers(top.frames)
        handed = handover(top.frames) if top is not None and not stopping else None
        kind = "workers" if stopping else handed or self._kind(facts, claims, top, name)
        in_some = affected.steps < facts.steps and cost < 1e9 * limit("now_and_then_min_s")
        # A first step that reads code from the disk waits for files, or for pages of them: in no system call.
        may_be_code = kind == "file" or name in ("", syscall_name(-1, facts.machine))
        if in_some or (may_be_code and whole and facts.is_in_first_step("blocked_io")):
            severity = "info"
        background = [v for v in facts.run.loaders.values() if v.fetches.off_thread_count]
        emptied = kind in ("queue", "process queue")
        longest = max((v.fetches.off_thread_wall_ns / v.fetches.off_thread_count for v in background), default=0)
        fed = emptied and longest >= limit("half_share") * cost / affected.steps
        others = (kind == "lock" or handed is not None) and most
        beside = facts.beside(phases) if others else []
        timed = others and top is not None and facts.timed(samples, top, line=True)
        awaited = [b for b in beside if b.awaited and not timed]  # a timer that runs as waits end looks the same
        passing = facts.passing(phases) if kind == "thread end" and most else []
        busiest, meanwhile = self._busiest(facts, phases, cost, beside) if others and not awaited else ("", "")
        if timed:
            busiest = ""
            kind = "timed signal" if kind == "signal" else kind
        words = WORDS[kind]
        if kind == "file" and name in ("read", "write", "readv", "writev"):
            words = "waits for a file or pipe"
        if fed:
            words = "waits for a queue that a background loader feeds"
        call = f" ({name})" if name else ""
        feeder, feeds_at = self._feeder(facts, background) if fed else ("", "")
        fix, wont = _NOW_AND_THEN if emptied and affected.steps < facts.steps else FIXES[kind]
        if kind == "file" and writes(name):
            fix, wont = FIXES["written file"]
        pool = None
        if handed is not None and not fix:
            pool = pools.advice(facts, handed, beside)
            fix, wont = pool.fix, "; ".join(w for w in (pool.will_not_help, wont) if w)
        unplaced = top is None and kind == "other"
        if unplaced:
            fix = _FIND_OUT
        if timed and kind in _LOOKS:
            fix = f"# if its timeout ends the wait: a shorter one, or look by {_LOOKS[kind]} and go on\n{fix}"
        if fed:
            fix = _of_background(facts, background, cost)
        why = f"{facts.step_thread_name} {words}{call}"
        second = facts.second(spots)
        if top is None:
            why += f"; {self._unplaced(facts)}"
        elif second is None:
            why += f" in {facts.label_with_caller(top)}"
        else:
            why += f" {facts.label_of_two(top, second, 'in ')}"
        if len(awaited) == 1:  # of several it is not known who is waited for
            busiest = awaited[0].name
            why = f"{busiest} is in {facts.label(awaited[0].spot)} while {why}"
        elif len(passing) == 1 and not awaited:
            busiest, spot = passing[0]
            why = f"{busiest} are in {facts.label(spot)} while {why}"
        if pool is not None and not fed and pool.why:
            why = f"{why}; {pool.why}"
        why_low = facts.off("gil_holds") if not samples else None
        confidence = facts.confidence(samples=seen)
        if why_low:
            confidence = ("medium", f"the time is exact, the place is not known: {why_low}")
        without = facts.off("run_delay")
        if without:
            reason = f"{confidence[1]}; it may have waited for a CPU in part of it: {without}"
            confidence = ("low" if confidence[0] == "low" else "medium", reason)
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="blocked_io",
            claims=claims,
            title=f"the training thread {words}{'' if kind in (*_OF_RANKS.values(), 'event loop') else ' in the loop'}",
            affected=affected,
            confidence=confidence,
            evidence=(
                f"{facts.of_step(cost)} it is asleep, not waiting for the GIL"
                if affected.steps == facts.steps
                else f"{affected.steps:,} of {facts.steps:,} steps, {ms(cost * affected.share / affected.steps)} each: "
                "asleep, not waiting for the GIL",
                *(f"{s.share:.0%} of {plural(seen, 'sample')} in {facts.label_with_caller(s)}" for s in spots[:2]),
                f"the system call is {name}" if name else "",
                "which coroutine is awaited, and for what (a timer, the network), is in no stack of the thread"
                if kind == "event loop"
                else "",
                feeder,
                *(told_beside(facts, b) for b in beside[:3]),
                *(f"meanwhile {who} are in {facts.label(spot)}" for who, spot in passing[:2]),
                meanwhile,
                pool.evidence if pool is not None and not fed else "",
            ),
            who=(facts.step_thread_name, busiest),
            where=facts.where(top) or feeds_at,
            why=why,
            fix=fix,
            fix_share=top.share if top is not None and second is not None else 1.0,
            will_not_help=wont,
            finds_out=kind in _OF_RANKS.values(),
        )

    def _kind(self, facts: Facts, claims: Mapping[Cell, int], top: Spot | None, name: str) -> str:
        """Of what is no handover; `name`: the system call."""
        kind = waiting_kind(name) if name else "other"
        if top is not None and in_event_loop(top.frames):
            return "event loop"
        if top is not None and kind in ("socket", "file", "other") and self._in_subprocess(top.frames):
            return "process"  # its pipes
        if kind in ("lock", "socket") and self._exchanges_gradients(facts, claims, top):
            return _OF_RANKS[facts.standing]
        return kind

    @staticmethod
    def _busiest(facts: Facts, phases: set[str], cost: int, beside: Sequence[Beside]) -> tuple[str, str]:
        """Who runs Python while it waits, and for how much of it; nobody of whom more is known."""
        other = facts.busiest_other(phases)
        if other is None or other.ns < limit("felt_share") * cost or other.name in {b.name for b in beside}:
            return "", ""
        at = f", in {facts.label(other.spot)}" if other.spot is not None else ""
        return other.name, f"meanwhile {other.name} runs Python for {min(1.0, other.ns / cost):.0%} of it{at}"

    @staticmethod
    def _feeder(facts: Facts, background: Sequence[Loader]) -> tuple[str, str]:
        """What the slowest of the loaders takes for a batch, and where its data set is."""
        slowest = max(background, key=lambda v: v.fetches.off_thread_wall_ns)
        each = ms(slowest.fetches.off_thread_wall_ns / slowest.fetches.off_thread_count)
        at = loaders.dataset_place(slowest, facts)
        return f"{loaders.dataset_name(slowest)}{f' ({at})' if at else ''} takes {each} for a batch, in a thread", at

    @staticmethod
    def _call(facts: Facts, top: Spot | None, samples: Sequence[Detail]) -> str:
        """The system call in which most of the top place's time went."""
        return call_of((d for d in samples if top is None or facts.is_at(d, top, line=True)), facts.machine)

    @staticmethod
    def _exchanges_gradients(facts: Facts, claims: Mapping[Cell, int], top: Spot | None) -> bool:
        """Backward itself waits for a lock only for other threads: in a job of several ranks for those that exchange,
        unless a GPU's backward runs in a thread of autograd's."""
        meta = facts.run.meta
        if facts.number("world_size") <= 1 or meta.get("process_group") != "1" or facts.run.feeds_device:
            return False
        if top is not None and below_backward(top.frames):  # a hook of the user's
            return False
        in_backward = sum(ns for (phase, _), ns in claims.items() if phase == "backward")
        return in_backward >= limit("half_share") * sum(claims.values())

    @staticmethod
    def _unplaced(facts: Facts) -> str:
        """Why no place is told."""
        why = facts.off("stacks") or f"no sample in {plural(facts.steps, 'step')} tells"
        return f"it is not known where: {why}"

    @staticmethod
    def _in_subprocess(stack: Sequence[Frame]) -> bool:
        return any(is_stdlib_file(f.file) and os.path.basename(f.file) == "subprocess.py" for f in stack)
