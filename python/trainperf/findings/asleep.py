"""Where the training thread sleeps in the loop, what for, and whom it waits for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings import loaders, source_marks
from trainperf.findings.facts import ms, plural
from trainperf.findings.frames import below_backward, client_of, in_collective, is_stdlib_file, stops_workers
from trainperf.findings.framework import in_told_hook
from trainperf.findings.handovers import Wait, awaited, handover, in_event_loop, told_beside
from trainperf.findings.saving import beside_saves
from trainperf.findings.syscalls import call_of, waiting_kind
from trainperf.findings.thresholds import limit
from trainperf.findings.waiting import WORDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from trainperf.findings.facts import Affected, Facts, Spot
    from trainperf.findings.handovers import Handover
    from trainperf.findings.model import Cell, Confidence, Standing
    from trainperf.findings.places import Beside
    from trainperf.runfile import Detail, Frame, Loader

OF_RANKS: dict[Standing, str] = {"": "ranks", "even": "even ranks", "late": "late ranks"}
EMPTY_QUEUES = ("queue", "process queue")


@dataclass(frozen=True, slots=True)
class Asleep(Wait):
    """What samples of it tell, and of the other threads meanwhile."""

    kind: str  # of WORDS: what it waits for in the costliest place
    call: str  # the system call of that wait; "" where it is not known
    handed: Handover | None  # a queue, a future or a pipe that it is handed something by
    passing: Sequence[tuple[str, Spot]]  # of a wait for a thread to end: such threads, and where they are
    busiest: str  # where nobody of these is known: who runs Python meanwhile
    busiest_text: str
    fed_by: Sequence[Loader]  # the loaders that other threads read, where it waits for these

    @classmethod
    def of(cls, facts: Facts, claims: Mapping[Cell, int], affected: Affected) -> Asleep:
        """`claims`: the time that it sleeps; `affected`: in which steps."""
        phases, cost = {phase for phase, _ in claims}, sum(claims.values())
        every = facts.samples(phases=phases, states=["blocked"])
        samples = _untold(facts, every)
        spots = facts.spots(samples, by_line=True)  # another line may wait for another reason
        top = spots[0] if spots else None
        call = call_of((d for d in samples if top is None or facts.is_at(d, top, line=True)), facts.machine)
        stopping = top is not None and stops_workers(top.frames)
        exchanging = top is not None and in_collective(top.frames)
        handed = handover(top.frames) if top is not None and not stopping and not exchanging else None
        kind = "workers" if stopping else "collective" if exchanging else handed or _kind(facts, claims, top, call)
        # Where others were is known of all that is asleep in these phases.
        most = sum(d.ns for d in samples) >= limit("most_share") * sum(d.ns for d in every)
        for_others = (kind == "lock" or handed is not None) and most
        beside = facts.beside(phases) if for_others else []
        timed = for_others and top is not None and facts.timed(samples, top, line=True)
        passing = facts.passing(phases) if kind == "thread end" and most else []
        known = awaited(beside, timed=timed)
        busiest = _busiest(facts, phases, cost, beside) if for_others and not known else ("", "")
        return cls(
            kind="timed signal" if timed and kind == "signal" else kind,
            call=call,
            spots=spots,
            handed=handed,
            timed=timed,
            beside=beside,
            passing=passing,
            busiest="" if timed else busiest[0],
            busiest_text=busiest[1],
            fed_by=_feeders(facts, cost / affected.steps) if kind in EMPTY_QUEUES else (),
        )

    @property
    def words(self) -> str:
        if self.fed_by:
            return "waits for a queue that a background loader feeds"
        if self.kind == "file" and self.call in ("read", "write", "readv", "writev"):
            return "waits for a file or pipe"
        return WORDS[self.kind]

    @property
    def who(self) -> str:
        """The one that it waits for; of several it is not known who that is. "" for none."""
        if self.waited_for is not None:
            return self.waited_for.name
        return self.passing[0][0] if len(self.passing) == 1 and not self.awaited else self.busiest

    def may_read_code(self, facts: Facts) -> bool:
        """A first step that reads code from the disk waits for files, or for pages of them: in no system call."""
        return self.kind == "file" or not self.call

    def why(self, facts: Facts) -> str:
        why = f"{facts.step_thread_name} {self.words}{f' ({self.call})' if self.call else ''}"
        second = facts.second(self.spots)
        if self.top is None:
            unseen = facts.off("stacks") or f"no sample in {plural(facts.steps, 'step')} tells"
            why += f"; it is not known where: {unseen}"
        elif second is None:
            why += f" in {facts.label_with_caller(self.top)}"
        else:
            why += f" {facts.label_of_two(self.top, second, 'in ')}"
        if self.waited_for is not None:
            return f"{self.who} is in {facts.label(self.waited_for.spot)} while {why}"
        if len(self.passing) == 1 and not self.awaited:
            return f"{self.who} are in {facts.label(self.passing[0][1])} while {why}"
        return why

    def evidence(self, facts: Facts) -> Iterator[str]:
        for s in self.spots[:2]:
            yield f"{s.share:.0%} of {plural(self.samples, 'sample')} in {facts.label_with_caller(s)}"
        if self.call:
            yield f"the system call is {self.call}"
        if self.kind == "event loop":
            yield "which coroutine is awaited, and for what (a timer, the network), is in no stack of the thread"
        if self.fed_by:
            slowest, at = self.fed_by[0], self.feeds_at(facts)
            each = ms(slowest.fetches.off_thread_wall_ns / slowest.fetches.off_thread_count)
            yield f"{loaders.dataset_name(slowest)}{f' ({at})' if at else ''} takes {each} for a batch, in a thread"
        for other in self.beside[:3]:
            yield told_beside(facts, other)
        for who, spot in self.passing[:2]:
            yield f"meanwhile {who} are in {facts.label(spot)}"
        yield self.busiest_text

    def feeds_at(self, facts: Facts) -> str:
        """Where the data set of the slowest feeder is; "" without one."""
        return loaders.dataset_place(self.fed_by[0], facts) if self.fed_by else ""

    def confidence(self, facts: Facts) -> tuple[Confidence, str]:
        level, why = facts.confidence(samples=self.samples)
        if not self.spots and (unseen := facts.off("gil_holds")):
            level, why = "medium", f"the time is exact, the place is not known: {unseen}"
        if without := facts.off("run_delay"):
            level = "low" if level == "low" else "medium"
            why = f"{why}; it may have waited for a CPU in part of it: {without}"
        return level, why


def _untold(facts: Facts, asleep: Collection[Detail]) -> list[Detail]:
    """Without what other findings tell: of checkpoints, callbacks, and loaders that end."""
    told = beside_saves(facts).details
    if facts.once(loaders.loaders_end).is_told(facts):
        told |= facts.once(loaders.loaders_end).details
    return [d for d in asleep if d not in told and not facts.once(in_told_hook)(d.phase, facts.run.stack(d.stack))]


def _feeders(facts: Facts, wait_ns: float) -> list[Loader]:
    """The loaders that other threads read, the slowest first; none where that is too short for such a wait."""
    found = [v for v in facts.run.loaders.values() if v.fetches.off_thread_count]
    longest = max((v.fetches.off_thread_wall_ns / v.fetches.off_thread_count for v in found), default=0)
    if longest < limit("half_share") * wait_ns:
        return []
    return sorted(found, key=lambda v: -v.fetches.off_thread_wall_ns)


def _kind(facts: Facts, claims: Mapping[Cell, int], top: Spot | None, call: str) -> str:
    """Of what is no handover."""
    kind = waiting_kind(call) if call else "other"
    if top is not None and in_event_loop(top.frames):
        return "event loop"
    if top is not None and kind in ("sleep", "file", "lock", "socket") and source_marks.asks_database(facts, top):
        return "database"
    if top is not None and kind in ("socket", "file", "lock") and (server := client_of(top.frames)):
        return server
    if top is not None and kind in ("socket", "file", "other") and _in_subprocess(top.frames):
        return "process"  # its pipes
    if kind in ("lock", "socket") and _exchanges_gradients(facts, claims, top):
        return OF_RANKS[facts.standing]
    return kind


def _busiest(facts: Facts, phases: set[str], cost: int, beside: Sequence[Beside]) -> tuple[str, str]:
    """Who runs Python while it waits, and for how much of it; nobody of whom more is known."""
    other = facts.busiest_other(phases)
    if other is None or other.ns < limit("felt_share") * cost or other.name in {b.name for b in beside}:
        return "", ""
    at = f", in {facts.label(other.spot)}" if other.spot is not None else ""
    return other.name, f"meanwhile {other.name} runs Python for {min(1.0, other.ns / cost):.0%} of it{at}"


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


def _in_subprocess(stack: Sequence[Frame]) -> bool:
    return any(is_stdlib_file(f.file) and os.path.basename(f.file) == "subprocess.py" for f in stack)
