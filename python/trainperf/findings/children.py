"""Processes that the run started beside DataLoader workers: who they are, what CPU time they use, and where."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trainperf.findings import frames
from trainperf.findings.cpus import SPEAKS_OF, load
from trainperf.findings.inside import CPU, Line, state_of
from trainperf.findings.model import Params, Said
from trainperf.findings.places import library_call
from trainperf.findings.text import Count, Number, Share
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.waits import Asleep
    from trainperf.runfile import Child, Frame

_SHOWN: Final = 3

# Whose function a process runs, by the file and the function: innermost first, as one may be within another.
_BODIES: Final = (
    (re.compile(r"[/\\]multiprocess(ing)?[/\\]pool\.py$"), "worker", "multiprocessing.Pool"),
    (re.compile(r"[/\\]concurrent[/\\]futures[/\\]process\.py$"), "_process_worker", "ProcessPoolExecutor"),
    (re.compile(r"[/\\]loky[/\\]process_executor\.py$"), "_process_worker", "joblib"),
    (re.compile(r"[/\\]torch[/\\]utils[/\\]data[/\\]_utils[/\\]worker\.py$"), "_worker_loop", "DataLoader"),
    (re.compile(r"[/\\]ray[/\\]_private[/\\]worker\.py$"), "main_loop", "Ray"),
)
# What multiprocessing starts a process by: what called that is the training's own, of a forked one.
_START: Final = re.compile(r"[/\\]multiprocess(ing)?[/\\]process\.py$")
_QUEUE: Final = re.compile(r"[/\\]queues\.py$")
_POOLS_NAME: Final = re.compile(r"PoolWorker-\d+$")
_LOOKS_NS: Final = 1_000_000_000  # from one to the next
_NUMBERED: Final = re.compile(r"[-_:]?\d[\d:]*$")


@dataclass(frozen=True, slots=True)
class Group:
    """Those of a kind."""

    library: str  # one of _BODIES; "": none of these
    called: str  # the name that they share, or their program
    named: bool  # a name that multiprocessing knows
    count: int  # at the same time
    cpus: float  # from the first one's start to the last one's end
    mean_cpus: float  # over the whole watch
    used_s: float
    or_more: bool  # they end before they are looked at again: what they used since, and whom no look met, is not known
    samples: int
    idle: int  # of these, those in which it waits for work
    starting: int  # of these, those in which one of a library's computes before it takes work
    busy: int  # those of which it is known what they do
    lines: Sequence[Line]  # by function, each with its costliest line; most samples first
    resting: int  # others of the same library that got next to no work: a group of their own
    rests: bool  # these are such
    without_cpu: float  # share of the time in which they would compute

    @property
    def said(self) -> Said:
        kind = "library" if self.library else "named" if self.named else "command"
        rests = {"resting": Count(self.resting) if self.resting else None, "rests": self.rests}
        return Said(
            f"children_{kind}", {"count": Count(self.count), "one": self.count == 1, **rests, "called": self.called}
        )

    @property
    def starts(self) -> bool:
        """Most of what they compute is their start: they import what their function needs."""
        return self.starting >= limit("min_samples") and self.starting > self.computing

    @property
    def computing(self) -> int:
        return sum(line.states[CPU] for line in self.lines)

    @property
    def computes(self) -> bool:
        """Most of what they do is on a CPU, or waits for one."""
        return self.busy >= limit("good_samples") and self.computing >= limit("half_share") * self.busy

    @property
    def waits(self) -> bool:
        """Most of what they do needs no CPU."""
        return self.busy >= limit("good_samples") and not self.computes

    def main(self, *, cpu: bool) -> tuple[Line, float] | None:
        """The line that most of their work goes to, and its share; `cpu`: only of what they compute. None: samples are
        too few, no line has much of it, or it is other threads of theirs that compute."""
        whole = self.computing if cpu else self.busy
        if whole < limit("good_samples"):
            return None
        if cpu and self.count * self.computing / max(1, self.samples) < limit("half_share") * self.cpus:
            return None
        line = max(self.lines, key=lambda v: v.states[CPU] if cpu else v.count)
        share = (line.states[CPU] if cpu else line.count) / whole
        known = share >= limit("critical_share") and not frames.is_stdlib_file(line.frame.file)
        return (line, share) if known else None


def groups(facts: Facts) -> Sequence[Group]:
    """The costliest first; without other ranks, which a first one may have started."""
    rank = f" {facts.run.script}" if facts.number("local_world_size") > 1 else None
    found: dict[tuple[str, str, bool], list[_Seen]] = {}
    for child in facts.run.children:
        if rank is not None and not child.name and child.command.endswith(rank):
            continue
        looks = [_Look.of(facts, s.stack, state_of(s.state, s.syscall, facts.machine), s.count) for s in child.inside]
        found.setdefault(_kind(child, looks), []).append(_Seen(child, looks))
    made: list[Group] = []
    for kind, of in found.items():
        work, rest = _apart(of)
        made.append(_group(facts, *kind, work, resting=_at_once([seen.child for seen in rest])))
        made += [_group(facts, *kind, rest, rests=True)] if rest else []
    return sorted(made, key=lambda group: (-group.used_s, group.called, group.rests))


@dataclass(frozen=True, slots=True)
class _Look:
    stack: Sequence[Frame]  # without the callers of what it was started by
    library: str
    idle: bool  # it waits for work
    state: str
    count: int

    @classmethod
    def of(cls, facts: Facts, stack: int, state: str, count: int) -> _Look:
        own = facts.run.stack(stack)
        start = next((i for i, f in enumerate(own) if _START.search(f.file)), len(own))
        own = own[:start]
        for i, f in enumerate(own):
            name = frames.short_function(f.function).rpartition(".")[2]
            library = next((lib for file, body, lib in _BODIES if body == name and file.search(f.file)), "")
            if library:
                below = own[:i]
                idle = bool(below) and _QUEUE.search(below[-1].file) is not None and below[-1].function.endswith("get")
                return cls(below, library, idle or not below, state, count)
        return cls(own, "", False, state, count)


@dataclass(frozen=True, slots=True)
class _Seen:
    child: Child
    looks: Sequence[_Look]

    @property
    def samples(self) -> int:
        return sum(look.count for look in self.looks)

    @property
    def works(self) -> float:
        """Share of its samples in which a library's process does what it was given."""
        busy = sum(look.count for look in self.looks if look.library and not look.idle)
        return busy / max(1, self.samples)


def _apart(found: Sequence[_Seen]) -> tuple[Sequence[_Seen], Sequence[_Seen]]:
    """Those that work, and those that are known to get next to no work: there may be a second pool."""
    least = limit("warn_share") * max(seen.works for seen in found)
    rest = [seen for seen in found if seen.samples >= limit("min_samples") and seen.works < least]
    return [seen for seen in found if seen not in rest], rest


def _kind(child: Child, looks: Iterable[_Look]) -> tuple[str, str, bool]:
    libraries = Counter({look.library: 0 for look in looks if look.library})
    for look in looks:
        if look.library:
            libraries[look.library] += look.count
    if libraries:
        library = libraries.most_common(1)[0][0]
        return library, library, False
    if _POOLS_NAME.search(child.name):
        return _BODIES[0][2], _BODIES[0][2], False
    name = _NUMBERED.sub("", child.name)
    return "", name or child.command or "?", bool(name)


def _group(
    facts: Facts,
    library: str,
    called: str,
    named: bool,
    found: Sequence[_Seen],
    *,
    resting: int = 0,
    rests: bool = False,
) -> Group:
    lines: dict[tuple[str, str, str], dict[int, Line]] = {}
    samples = idle = starting = 0
    for look in (look for seen in found for look in seen.looks):
        samples += look.count
        idle += look.count if look.idle else 0
        if look.library != library:  # another's: it starts
            starting += look.count if look.state == CPU else 0
            continue
        if look.idle or not look.stack:
            continue
        frame = _frame(look.stack)
        calls = library_call(look.stack, frame) if frames.is_users(frame, look.stack) else ""
        of_function = lines.setdefault((frame.file, frame.function, calls), {})
        of_function.setdefault(frame.line, Line(frame, calls)).states[look.state] += look.count
    merged = sorted(map(_merged, lines.values()), key=lambda line: -line.count)
    children = [seen.child for seen in found]
    used_s = sum(child.cpu_seconds for child in children)
    brief_s = sum(child.cpu_seconds for child in children if child.last_ns - child.first_ns < _LOOKS_NS)
    watched_ns = facts.run.watched_ns
    there_ns = max(child.last_ns for child in children) - min(child.first_ns for child in children)
    return Group(
        library=library,
        called=called,
        named=named,
        count=_at_once(children),
        cpus=used_s * 1e9 / max(there_ns, _LOOKS_NS),
        mean_cpus=used_s * 1e9 / watched_ns if watched_ns else 0.0,
        used_s=used_s,
        or_more=brief_s > limit("half_share") * used_s,
        samples=samples,
        idle=idle,
        starting=starting,
        busy=sum(line.count for line in merged),
        lines=merged,
        resting=resting,
        rests=rests,
        without_cpu=_without_cpu(found),
    )


def _without_cpu(found: Sequence[_Seen]) -> float:
    """Share of the time in which they would compute; 0.0: none, or not known."""
    wanted = used = 0.0
    for child, looks, samples in ((seen.child, seen.looks, seen.samples) for seen in found):
        on_cpu = sum(look.count for look in looks if look.state == CPU)
        if samples >= limit("good_samples") and on_cpu >= limit("half_share") * samples:
            wanted += (child.last_ns - child.first_ns) / 1e9 * on_cpu / samples
            used += child.cpu_seconds
    return max(0.0, 1 - used / wanted) if wanted else 0.0


def _merged(by_line: dict[int, Line]) -> Line:
    most = max(by_line.values(), key=lambda line: line.count)
    return Line(most.frame, most.calls, sum((line.states for line in by_line.values()), Counter()))


def _frame(stack: Sequence[Frame]) -> Frame:
    """The innermost of the user's; else of a library's; else the innermost."""
    users = (f for f in stack if frames.is_users(f, stack))
    others = (f for f in stack if not frames.is_stdlib_file(f.file))
    return next(users, None) or next(others, stack[0])


def _at_once(children: Sequence[Child]) -> int:
    """The most that were there at a time."""
    ends = sorted([(c.first_ns, 1) for c in children] + [(c.last_ns + 1, -1) for c in children])
    count = most = 0
    for _, change in ends:
        count += change
        most = max(most, count)
    return most


# -- as findings tell of them


def using_cpus(facts: Facts, *, led: bool = False) -> Params:
    """Who uses the CPUs of child processes: rows `kids`; with `led`, whose most of it is is `kid` instead."""
    found = [g for g in facts.once(groups) if g.mean_cpus >= SPEAKS_OF] if load(facts).children >= SPEAKS_OF else []
    rows = tuple({"said": _uses(facts, group)} for group in found[:_SHOWN])
    leads = led and leader(facts) is not None
    return {"kids": rows[leads:], "kid": rows[0]["said"] if leads else None}


def leader(facts: Facts) -> Group | None:
    """Whose most of the child processes' CPU time is."""
    found = facts.once(groups)
    least = max(SPEAKS_OF, limit("half_share") * load(facts).children)
    return found[0] if found and found[0].mean_cpus >= least else None


def _uses(facts: Facts, group: Group) -> Said:
    if group.starts:
        return Said("children_start", {"who": group.said, "one": group.count == 1, "seconds": Number(group.used_s)})
    main = group.main(cpu=True)
    return Said(
        "children_use",
        {
            "who": group.said,
            "one": group.count == 1,
            "cpus": Number(group.cpus),
            "or_more": group.or_more,
            "share": Share(main[1]) if main is not None else None,
            "at": _at(facts, main[0]) if main is not None else None,
        },
    )


def waited_for(facts: Facts, kind: str, stack: Sequence[Frame]) -> Sequence[Group]:
    """Of processes that work: those that the training thread may wait for, where it waits for a future, a pipe, a queue
    or the end of a process; the busiest first."""
    everyone = [g for g in facts.once(groups) if not g.rests]
    found = [g for g in everyone if g.main(cpu=False) is not None or g.mean_cpus >= limit("own_threads_cpus")]
    if kind == "future":
        libraries = {lib for lib, file in _FUTURES.items() if any(file.search(f.file) for f in stack)}
        return [g for g in found if g.library in libraries]
    if kind in ("queue", "pipe"):
        return [g for g in found if not g.library and g.samples]
    return [g for g in everyone if not g.samples and g.mean_cpus >= SPEAKS_OF] if kind == "process" else ()


def waited_for_in(facts: Facts, sleep: Asleep) -> Sequence[Group]:
    """None where that is a thread."""
    if sleep.top is None or sleep.timed or sleep.waited_for is not None:
        return ()
    return waited_for(facts, sleep.kind, sleep.top.frames)


_FUTURES: Final = {
    "multiprocessing.Pool": _BODIES[0][0],
    "ProcessPoolExecutor": re.compile(r"[/\\]concurrent[/\\]futures[/\\](_base|process)\.py$"),
    "Ray": _BODIES[4][0],
    "joblib": re.compile(r"[/\\](concurrent[/\\]futures[/\\]_base|joblib[/\\]parallel)\.py$"),
}


def at_work(facts: Facts, found: Sequence[Group]) -> Params:
    """What they do."""
    return {"helpers": tuple({"said": _works(facts, group)} for group in found[:_SHOWN])}


def work_of(group: Group | None) -> str | None:
    """The function that they are in."""
    main = group.main(cpu=False) if group is not None else None
    return frames.short_function(main[0].frame.function) if main is not None else None


def _works(facts: Facts, group: Group) -> Said:
    main = group.main(cpu=False)
    if main is None:
        return _uses(facts, group)
    line, share = main
    return Said(
        "children_work",
        {
            "who": group.said,
            "one": group.count == 1,
            "share": Share(share),
            "at": _at(facts, line),
            "spent": line.spent(),
            "without": Share(group.without_cpu)
            if group.computes and group.without_cpu >= limit("warn_share")
            else None,
        },
    )


def _at(facts: Facts, line: Line) -> Said:
    return Said("children_at", {"calls": line.calls or None, "place": frames.label(line.frame, facts.base)})


def where(facts: Facts, group: Group | None) -> str:
    """ "data.py:31", where they compute; "" where that is not known."""
    main = group.main(cpu=True) if group is not None else None
    return frames.place(main[0].frame, facts.base) if main is not None else ""
