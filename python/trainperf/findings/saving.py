"""What functions of the user's do beside torch.save: to save (they write, flush and move the file), and within saves
for reasons of their own."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings.frames import (
    beside_writing,
    called_by_save,
    function_of,
    in_module,
    is_own_file,
    is_stdlib_file,
    is_users,
    user_frame,
)
from trainperf.findings.functions import Functions
from trainperf.findings.syscalls import call_of, syscall_name, waiting_kind
from trainperf.findings.thresholds import limit
from trainperf.findings.weights import weighed

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts, Spot
    from trainperf.findings.frames import Function
    from trainperf.findings.model import Cell
    from trainperf.runfile import Detail, Frame

_MECHANISMS = ("python", "native", "blocked")
_NO_FILE = ("lock", "process", "sleep", "socket")  # who copies a file waits in calls that are in no table, too
_TRAINING = ("fetch", "backward", "optimizer", "validation")


@dataclass(frozen=True, slots=True)
class BesideSaves(Functions):
    details: frozenset[Detail]


@dataclass(frozen=True, slots=True)
class OwnWork:
    """What the user's functions do within saves, beside writing."""

    spots: list[Spot]
    ns: int  # exact
    blocked_ns: int  # of it: waits
    call: str  # the system call that the costliest one's waits are in; "" where most of it is on the CPU


def own_work(facts: Facts) -> OwnWork:
    """In what a save calls (a hook, a method that was overridden): what computes, but not what writes. Anywhere in a
    save: waits that are for no file."""
    seen = weighed(facts.samples(phases=["checkpoint"]), facts.cells("checkpoint"))
    told = [d for d in seen if _is_own_work(facts, d)]
    if sum(d.count for d in told) < limit("min_samples"):
        return OwnWork([], 0, 0, "")
    blocked = [d for d in told if d.state == "blocked"]
    spots = facts.spots(told)
    there = [d for d in told if facts.is_at(d, spots[0], line=True)]
    waits = sum(d.ns for d in there if d.state == "blocked") >= limit("half_share") * sum(d.ns for d in there)
    call = call_of(there, facts.machine) if waits else ""
    return OwnWork(spots, sum(d.ns for d in told), sum(d.ns for d in blocked), call)


def _is_own_work(facts: Facts, d: Detail) -> bool:
    stack = facts.run.stack(d.stack)
    if not beside_writing(stack):
        return False
    if d.state == "blocked":
        return waiting_kind(syscall_name(d.syscall, facts.machine)) in _NO_FILE
    return called_by_save(stack)


def beside_saves(facts: Facts) -> BesideSaves:
    """The exact time outside of torch.save that samples tell is saving: in a function that calls it and nothing of the
    training, waits for files on any line; else what its own lines from torch.save on do, alone or by the standard
    library."""
    lines = _lines_of_saves(facts)
    claims: dict[Cell, int] = {}
    told: list[Detail] = []
    for mechanism in _MECHANISMS if lines else ():
        cell = ("other", mechanism)
        samples = facts.samples(phases=["other"], states=[mechanism])
        mine = [d for d in samples if _is_saving(facts, d, lines)]
        if mine and facts.matrix[cell]:
            claims[cell] = facts.matrix[cell] * sum(d.ns for d in mine) // max(1, sum(d.ns for d in samples))
            told += mine
    if sum(d.count for d in told) < limit("min_samples"):
        return BesideSaves([], {}, frozenset())
    return BesideSaves(facts.spots(told), claims, frozenset(told))


def _lines_of_saves(facts: Facts) -> dict[Function, int]:
    """Of each such function, the first line on which it was seen in torch.save."""
    lines: dict[Function, int] = {}
    for d in facts.samples(phases=["checkpoint"]):
        at = user_frame(facts.run.stack(d.stack))
        if at is not None and at.function != "<module>":
            function = function_of(at)
            lines[function] = min(at.line, lines.get(function, at.line))
    for d in facts.samples() if lines else ():
        stack = facts.run.stack(d.stack)
        if d.phase in _TRAINING or in_module(stack):
            for f in stack:
                if is_users(f, stack):
                    lines.pop(function_of(f), None)
    return lines


def _is_saving(facts: Facts, d: Detail, lines: dict[Function, int]) -> bool:
    stack = facts.run.stack(d.stack)
    at = user_frame(stack)
    line = lines.get(function_of(at)) if at is not None else None
    if at is None or line is None:
        return False
    if d.state == "blocked":
        return waiting_kind(syscall_name(d.syscall, facts.machine)) == "file"
    return at.line >= line and all(_is_plain(f) for f in itertools.takewhile(lambda f: f is not at, stack))


def _is_plain(frame: Frame) -> bool:
    return is_stdlib_file(frame.file) or is_own_file(frame.file) or frame.file.startswith("<frozen ")
