"""Who did it, and where: threads, the user's functions that samples were seen in, the exact times of samples; and what
the source says of a place."""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from trainperf.findings import frames
from trainperf.findings.frames import Label, short_function, short_path
from trainperf.findings.model import Said
from trainperf.findings.text import Share
from trainperf.findings.thresholds import limit
from trainperf.runfile.schema import MECHANISM_OF, described

if TYPE_CHECKING:
    from trainperf.findings.frames import FrameLike
    from trainperf.findings.model import Cell, Params
    from trainperf.runfile import Detail, Frame, RunReader, Thread

Rows: TypeAlias = "tuple[Params, ...]"  # of lines of evidence

# Python's own for one without, with what it runs; the kernel's for one that Python was not asked about in time.
_NO_NAME = re.compile(r"(Thread-\d+( \(.*\))?|python[\d.]*)?")
_AS_THEY_BEGIN: frames.Function = ("", "")
_STILL, _WOKE, _STIRRED, _WORKS = 1, 2, 3, 4  # BesideSign in event.h: the code of a detail of kind beside


@dataclass(frozen=True, slots=True)
class Spot:
    """A user's function that samples were seen in."""

    frame: frames.FrameLike  # its hottest line
    leaf: str  # what it was calling there, when that was not its own code: "json.dumps"; else ""
    all_in_leaf: bool  # most of it was in such a call, and little in others: not of that line alone
    ns: int
    samples: int
    share: float  # of the samples that were asked for
    frames: tuple[Frame, ...]  # one whole stack, innermost first
    # The user's functions that called it directly, and for which share of its time: the one of more than half, or all
    # that are felt.
    callers: tuple[tuple[Frame, float], ...] = ()

    @property
    def call(self) -> str:
        """What the function was calling all the time; "" when there was more than that."""
        return self.leaf if self.all_in_leaf else ""


@dataclass(frozen=True, slots=True)
class Holder:
    """A thread that others waited for."""

    name: str
    thread: Thread | None
    ns: int
    waits: int
    share: float
    spot: Spot | None
    second: Spot | None = None  # where it is notably else, in turn

    @property
    def said(self) -> Said | str:
        return said_thread(self.thread, self.name)


@dataclass(frozen=True, slots=True)
class Beside:
    """A thread that was in the user's code while the training thread slept."""

    name: str
    share: float  # of that time
    spot: Spot
    awaited: bool  # it ran whenever a wait ended, or it was at work: it may be the one that is waited for
    still: bool  # waits ended while it did not run: it is not the one
    works: bool  # it was on the CPU in part of most of these looks
    thread: Thread | None = None  # None: of several

    @property
    def said(self) -> Said | str:
        return said_thread(self.thread, self.name)


@dataclass(slots=True)
class _Function:
    """What was seen of one of the user's functions: times in ns."""

    samples: int = 0
    lines: dict[int, int] = field(default_factory=dict)
    stacks: dict[int, tuple[int, tuple[Frame, ...]]] = field(default_factory=dict)  # the most frequent one of each line
    leaves: dict[str, int] = field(default_factory=dict)
    callers: dict[tuple[str, str], tuple[int, Frame]] = field(default_factory=dict)

    def add(self, d: Detail, stack: tuple[Frame, ...], at: frames.FrameLike) -> None:
        self.samples += d.count
        self.lines[at.line] = self.lines.get(at.line, 0) + d.ns
        if at.line not in self.stacks or d.ns > self.stacks[at.line][0]:
            self.stacks[at.line] = (d.ns, stack)
        leaf = library_call(stack, at)
        self.leaves[leaf] = self.leaves.get(leaf, 0) + d.ns
        caller = _caller(stack, at)
        if caller is not None:
            who = (caller.file, caller.function)
            self.callers[who] = (self.callers.get(who, (0, caller))[0] + d.ns, caller)

    def spot(self, whole: int) -> Spot:
        ns = sum(self.lines.values())
        stack = self.stacks[max(self.lines, key=lambda line: self.lines[line])][1]
        at = frames.user_frame(stack)
        assert at is not None  # only stacks with one are added
        leaf = library_call(stack, at)
        return Spot(
            frame=at,
            leaf=leaf,
            all_in_leaf=self._is_in(leaf, ns),
            ns=ns,
            samples=self.samples,
            share=ns / whole if whole else 0.0,
            frames=stack,
            callers=self._callers(ns),
        )

    def _callers(self, ns: int) -> tuple[tuple[Frame, float], ...]:
        felt = [(at, part / ns) for part, at in self.callers.values() if ns and part >= limit("felt_share") * ns]
        felt.sort(key=lambda c: -c[1])
        return tuple(felt) if len(felt) > 1 or (felt and felt[0][1] > 0.5) else ()

    def _is_in(self, leaf: str, ns: int) -> bool:
        """Nearly all that it calls is that; beside it, it does little itself, such as to free what it got."""
        called = ns - self.leaves.get("", 0)
        share = self.leaves[leaf]
        return bool(leaf) and share >= limit("held_share") * called and share >= limit("most_share") * ns


class Places:
    """A run, asked for its threads and stacks. Holds no state but caches."""

    def __init__(self, run: RunReader) -> None:
        self.run = run
        self._labels: dict[int, Label] = {}

    def labelled(self, d: Detail) -> Label:
        """What its stack does."""
        if d.stack not in self._labels:
            self._labels[d.stack] = Label(tuple(self.run.stack(d.stack)))
        return self._labels[d.stack]

    @cached_property
    def base(self) -> str:
        """The folder that the user's places are written relative to: where the script is."""
        found = self.run.meta.get("cwd", "")
        if found:
            return found
        script = self.run.argv[0] if self.run.argv else ""
        return os.path.dirname(script) if os.path.isabs(script) else ""

    def where(self, spot: Spot | None) -> str:
        """ "train.py:41"; "" where no sample says it."""
        return frames.place(spot.frame, self.base) if spot is not None else ""

    @overload
    def label(self, spot: Spot, *, with_caller: bool = False) -> str: ...
    @overload
    def label(self, spot: Spot | None, *, with_caller: bool = False) -> str | None: ...
    def label(self, spot: Spot | None, *, with_caller: bool = False) -> str | None:
        """ "slow_update (x.py:20)"; `with_caller` "spin (base.py:9) called by slow_update (x.py:20)": a helper says
        little by itself. None: no sample says it."""
        if spot is None:
            return None
        at = frames.label(spot.frame, self.base)
        if spot.call:
            return f"{spot.call} called by {at}"
        callers = (
            [(frames.label(caller, self.base), share) for caller, share in spot.callers[:2]] if with_caller else []
        )
        if len(callers) < 2:
            return f"{at} called by {callers[0][0]}" if callers else at
        return f"{at} called " + " and ".join(f"for {share:.0%} by {by}" for by, share in callers)

    def at(self, spot: Spot | None) -> Said | None:
        """ "in slow_update (x.py:20)"."""
        return Said("in", {"place": self.label(spot)}) if spot is not None else None

    def rows(self, spots: Sequence[Spot], most: int = 2, least: float = 0.0, *, with_caller: bool = False) -> Rows:
        """Of the costliest, and others of at least such a share, where each is and its share: lines of evidence."""
        shown = [s for s in spots[:most] if s is spots[0] or s.share >= least]
        return tuple({"share": Share(s.share), "place": self.label(s, with_caller=with_caller)} for s in shown)

    @staticmethod
    def second(spots: Sequence[Spot]) -> Spot | None:
        """The place after the costliest, where it is felt: what is saved there is another matter."""
        return spots[1] if len(spots) > 1 and spots[1].share >= limit("felt_share") else None

    def saved_share(self, spots: Sequence[Spot]) -> float:
        """What mending the costliest place saves at most, of the time of all: with the second where that mostly calls
        it or is called by it, beside training."""
        second = self.second(spots)
        if second is None:
            return 1.0
        a, b = frames.function_of(spots[0].frame), frames.function_of(second.frame)
        callers = {b: spots[0].callers, a: second.callers}
        nested = any(
            function not in self._training and frames.function_of(f) == function and share >= limit("half_share")
            for function, of in callers.items()
            for f, share in of
        )
        return min(1.0, spots[0].share + second.share) if nested else spots[0].share

    @cached_property
    def _training(self) -> set[frames.Function]:
        """The functions that train: which call backward, or step the optimizer."""
        samples = self.samples(phases=["backward", "optimizer"])
        return {function for d in samples for function in self.labelled(d).functions}

    def thread_name(self, thread: Thread | None) -> str:
        if thread is None:
            return "a thread that is not known"
        return thread.name or f"thread {thread.native_tid}"

    @cached_property
    def step_thread_name(self) -> str:
        return self.thread_name(self.run.step_thread) if self.run.step_thread is not None else "the step thread"

    @cached_property
    def _samples(self) -> tuple[Detail, ...]:
        return tuple(self.run.detail_totals("sample"))

    def samples(self, *, phases: Iterable[str] | None = None, states: Iterable[str] | None = None) -> list[Detail]:
        """The step thread's samples in these phases and states."""
        in_phases = set(phases) if phases is not None else None
        in_states = set(states) if states is not None else None
        return [
            d
            for d in self._samples
            if (in_phases is None or d.phase in in_phases) and (in_states is None or d.state in in_states)
        ]

    def spots(
        self,
        details: Iterable[Detail],
        keep: Callable[[Sequence[Frame]], bool] | None = None,
        seen_from: Callable[[Sequence[Frame]], Sequence[Frame]] | None = None,
        by_line: bool = False,
    ) -> list[Spot]:
        """The user's functions in which these details were, costliest first; those without a user's frame are left out
        (their ns still count in the share's whole). `keep` may reject stacks; `seen_from` gives the part of a stack
        that is looked at. `by_line`: each line of a function is a place of its own."""
        whole = 0
        functions: dict[tuple[frames.Function, int], _Function] = {}
        for d in details:
            whole += d.ns
            label = self.labelled(d) if seen_from is None else Label(tuple(seen_from(self.run.stack(d.stack))))
            if label.at is not None and (keep is None or keep(label.stack)):
                place = label.function, label.at.line if by_line else 0
                functions.setdefault(place, _Function()).add(d, label.stack, label.at)
        return sorted((f.spot(whole) for f in functions.values()), key=lambda s: -s.ns)

    def is_at(self, d: Detail, spot: Spot, *, line: bool = False) -> bool:
        """In the same function of the user's, or on the same line of it."""
        label = self.labelled(d)
        if label.at is None or label.function != frames.function_of(spot.frame):
            return False
        return not line or label.at.line == spot.frame.line

    def timed(self, samples: Iterable[Detail], spot: Spot, *, line: bool = False) -> bool:
        """Whether most of the waits there have a timeout that is soon due: what ended them is not known."""
        there = [d for d in samples if self.is_at(d, spot, line=line)]
        return sum(d.ns for d in there if d.timed) > limit("half_share") * sum(d.ns for d in there)

    def call_spots(self, *calls: str) -> list[Spot]:
        """The user's functions in which the step thread was in these calls to the device's runtime."""
        return self.spots(d for d in self.run.detail_totals("call") if d.state in calls)

    def holders(self, phases: Iterable[str] | None = None, *, kind: str = "gil_wait") -> list[Holder]:
        """Who held the GIL while the step thread waited for it, costliest first. `kind` "idle_gil_wait": while the
        device idled because of such a wait, of whatever thread."""
        in_phases = set(phases) if phases is not None else None
        details = [d for d in self.run.detail_totals(kind) if in_phases is None or d.phase in in_phases]
        whole = sum(d.ns for d in details)
        out = [self._holder(who, group, whole) for who, group in self._by_thread(details).items()]
        return sorted(out, key=lambda h: -h.ns)

    def _holder(self, who: int | frames.Function, group: Sequence[Detail], whole: int) -> Holder:
        ns, waits = sum(d.ns for d in group), sum(d.count for d in group)
        spots = self.spots(group)
        spot = spots[0] if spots else self._library_spot(group)
        thread: Thread | None = group[0].thread
        name = self.thread_name(thread)
        several = len({d.thread.id for d in group if d.thread}) > 1
        if who == _AS_THEY_BEGIN:
            thread, name = None, "threads as they begin"
        elif isinstance(who, tuple) and (several or not thread or not thread.name):
            thread, name = None, _name_of_several(group, who)
        return Holder(name, thread, ns, waits, ns / whole if whole else 0.0, spot, self.second(spots))

    def _by_thread(self, details: Sequence[Detail]) -> dict[int | frames.Function, list[Detail]]:
        """By thread; those without a name of their own by the function that they run. Of many that were met only before
        they ran anything of the user's it is that of the others, if these all run the same."""
        by_thread: dict[int | frames.Function, list[Detail]] = {}
        for d in details:
            unknown = self._started([d]) or (-1 if self._begins(d) else 0)
            by_thread.setdefault(d.thread.id if d.thread is not None else unknown, []).append(d)
        beginning = {who: group for who, group in by_thread.items() if all(map(self._begins, group))}
        groups: dict[int | frames.Function, list[Detail]] = {}
        for number, group in by_thread.items():
            if number not in beginning:
                groups.setdefault(self._started(group) or number, []).extend(group)
        functions = [who for who in groups if isinstance(who, tuple)]
        together = functions[0] if len(functions) == 1 else _AS_THEY_BEGIN
        for number, group in beginning.items():
            groups.setdefault(together if len(beginning) > 1 else number, []).extend(group)
        return groups

    def _begins(self, d: Detail) -> bool:
        """A thread without a name that has not come to what it is to run."""
        if d.thread is not None and not _NO_NAME.fullmatch(d.thread.name):
            return False
        stack = self.run.stack(d.stack)
        return bool(stack) and all(os.path.basename(f.file) == "threading.py" for f in stack)

    def _started(self, of_thread: Sequence[Detail]) -> frames.Function | None:
        """What a thread ran that has no name of its own, or ended before it was asked for it: one of many, mostly. Of
        too many the later ones are no threads to the run at all."""
        thread = of_thread[0].thread
        if thread is not None and not _NO_NAME.fullmatch(thread.name) and thread.name not in self._shared_names:
            return None
        found = (frames.outermost_user_frame(self.run.stack(d.stack)) for d in of_thread)
        return next((frames.function_of(at) for at in found if at is not None), None)

    @cached_property
    def _shared_names(self) -> set[str]:
        """Of so many threads that they are hardly there at once: one for each checkpoint, say, or for each step."""
        count = Counter(thread.name for thread in self.run.threads.values())
        return {name for name, threads in count.items() if threads >= limit("threads_of_a_name")}

    def _library_spot(self, details: Sequence[Detail]) -> Spot | None:
        for d in details:
            stack = tuple(self.run.stack(d.stack))
            at = frames.shown_frame(stack)
            if at is not None:
                return Spot(at, "", False, d.ns, d.count, 1.0, stack)
        return None

    def beside(self, phases: Iterable[str] | None = None) -> list[Beside]:
        """Where other threads stood for most of the time that the training thread slept in these phases, in a lock or
        a queue, those that may be waited for first; their share is of that time. Those that waited for a lock or a
        queue themselves are left out."""
        in_phases = set(phases) if phases is not None else None
        asleep = sum(d.ns for d in self.samples(phases=in_phases, states=["blocked"]))
        if not asleep:
            return []
        by_thread: dict[int, list[Detail]] = {}
        for d in self.run.detail_totals("beside"):
            if d.thread is not None and (in_phases is None or d.phase in in_phases):
                by_thread.setdefault(d.thread.id, []).append(d)
        out: list[Beside] = []
        for group in by_thread.values():
            spots = self.spots(group, keep=lambda stack: not frames.is_waiting(stack))
            ns, looks = sum(s.ns for s in spots), sum(s.samples for s in spots)
            if ns >= limit("most_share") * asleep and looks >= limit("min_samples"):
                thread = group[0].thread
                name, share = self.thread_name(thread), min(1.0, ns / asleep)
                out.append(Beside(name, share, spots[0], *_signs(group), thread=thread))
        return sorted(out, key=lambda b: (not b.awaited, -b.share))

    def passing(self, phases: Iterable[str] | None = None) -> list[Beside]:
        """Several threads without names of their own that run the same, where they together were there for most of the
        time that `beside` is about, as one that is awaited. Of several at once each counts."""
        in_phases = set(phases) if phases is not None else None
        asleep = sum(d.ns for d in self.samples(phases=in_phases, states=["blocked"]))
        by_function: dict[frames.Function, list[Detail]] = {}
        for d in self.run.detail_totals("beside"):
            started = self._started([d]) if in_phases is None or d.phase in in_phases else None
            if started is not None:
                by_function.setdefault(started, []).append(d)
        out = []
        for (_, function), group in by_function.items():
            spots = self.spots(group, keep=lambda stack: not frames.is_waiting(stack))
            ns, looks = sum(s.ns for s in spots), sum(s.samples for s in spots)
            several = len({d.thread.id for d in group if d.thread is not None}) > 1
            if several and asleep and ns >= limit("most_share") * asleep and looks >= limit("min_samples"):
                name = f"a thread that runs {frames.short_function(function)}"
                out.append(Beside(name, min(1.0, ns / asleep), spots[0], awaited=True, still=False, works=False))
        return out

    def busiest_other(self) -> Holder | None:
        """Who besides the training thread holds the GIL most; its share is of the holds.

        None where too few samples tell.
        """
        step = self.run.step_thread
        by_thread: dict[int, list[Detail]] = {}
        for d in self.run.detail_totals("hold"):
            if d.thread is not None and (step is None or d.thread.id != step.id):
                by_thread.setdefault(d.thread.id, []).append(d)
        if not by_thread:
            return None
        group = max(by_thread.values(), key=lambda details: sum(d.ns for d in details))
        ns, count = sum(d.ns for d in group), sum(d.count for d in group)
        whole = sum(d.ns for details in by_thread.values() for d in details)
        if count < limit("min_samples") or not whole:
            return None
        spots = self.spots(group)
        spot = spots[0] if spots else None
        return Holder(self.thread_name(group[0].thread), group[0].thread, ns, 0, ns / whole, spot)


def total(details: Iterable[Detail]) -> int:
    """ns"""
    return sum(d.ns for d in details)


@dataclass(frozen=True, slots=True)
class Part:
    """The exact time that samples tell is of one kind, and these."""

    claims: dict[Cell, int]
    details: tuple[Detail, ...]

    @property
    def ns(self) -> int:
        return sum(self.claims.values())

    @property
    def samples(self) -> int:
        return sum(d.count for d in self.details)


NOTHING = Part({}, ())


def by_cell(details: Iterable[Detail]) -> dict[Cell, int]:
    """Their time by phase and mechanism."""
    cells: dict[Cell, int] = {}
    for d in details:
        cell = (d.phase, MECHANISM_OF[d.state])
        cells[cell] = cells.get(cell, 0) + d.ns
    return cells


def weighed(samples: Iterable[Detail], cells: Mapping[Cell, int]) -> list[Detail]:
    """Those that tell what the thread did, with ns of which those of a phase and mechanism sum to its exact time, in
    `cells`. Where they are too few they keep the weight that they have among all, and sum to that at most."""
    known = [d for d in samples if d.state in MECHANISM_OF]
    ns: dict[Cell, int] = {}
    count: dict[Cell, int] = {}
    for d in known:
        cell = (d.phase, MECHANISM_OF[d.state])
        ns[cell] = ns.get(cell, 0) + d.ns
        count[cell] = count.get(cell, 0) + d.count
    overall = sum(cells.get(cell, 0) for cell in ns) / max(1, sum(ns.values()))
    weights = {
        cell: exact if count[cell] >= limit("min_samples") else min(exact, overall)
        for cell in ns
        for exact in [cells.get(cell, 0) / max(1, ns[cell])]
    }
    return [replace(d, ns=round(d.ns * weights[d.phase, MECHANISM_OF[d.state]])) for d in known]


@dataclass(frozen=True, slots=True)
class Functions:
    spots: list[Spot]  # costliest first
    claims: dict[Cell, int]

    @property
    def ns(self) -> int:
        return sum(self.claims.values())

    @property
    def samples(self) -> int:
        return sum(s.samples for s in self.spots)


def _signs(group: Sequence[Detail]) -> tuple[bool, bool, bool]:
    """Of the looks at one thread: whether it may be the one that is waited for, whether it is not, whether it works."""

    def looks(*signs: int) -> int:
        return sum(d.count for d in group if d.code in signs)

    told = looks(_STILL, _WOKE, _STIRRED, _WORKS)
    if told < limit("min_samples"):
        return False, False, False
    awaited = looks(_WOKE, _WORKS) >= limit("awaited_share") * told
    return awaited, looks(_STILL) >= limit("most_share") * told, looks(_WORKS) >= limit("most_share") * told


def said_thread(thread: Thread | None, name: str) -> Said | str:
    """In a sentence: "thread 'loader'", as bare names read like words or options; a description stays as it is."""
    return Said("named_thread", {"name": name}) if thread is not None and thread.name else name


def _name_of_several(group: Sequence[Detail], runs: frames.Function) -> str:
    """The one that they share; else by the function that they run."""
    names = {d.thread.name for d in group if d.thread and d.thread.name}
    if len(names) == 1 and not _NO_NAME.fullmatch(next(iter(names))):
        return f"a thread named '{names.pop()}'"
    return f"a thread that runs {frames.short_function(runs[1])}"


def function_name(spot: Spot | None) -> str:
    """What to call in a snippet: the innermost of the user's functions that has a name."""
    if spot is not None:
        for f in (spot.frame, *spot.frames):
            name = frames.short_function(f.function).rpartition(".")[2]
            if frames.is_users(f, spot.frames) and name.isidentifier():
                return name
            enclosing = [part for part in f.function.split(".") if part.isidentifier()]
            if frames.is_users(f, spot.frames) and enclosing:
                return enclosing[-1]
    return "your_function"


def body_of_thread(spot: Spot | None) -> str:
    """The user's function that its thread was started with: "write", or "Writer.run"; of a lambda the one that this
    called; "" where there is none."""
    named = ""
    for inner, outer in itertools.pairwise(spot.frames if spot is not None else ()):
        if spot is not None and frames.is_users(inner, spot.frames):
            if not inner.function.endswith(">"):
                named = frames.short_function(inner.function)
            if outer.file.endswith("/threading.py"):
                return named
    return ""


def _caller(stack: Sequence[Frame], at: frames.FrameLike) -> Frame | None:
    """The function of the user's that called `at` directly; a script's own lines are not one."""
    outer = iter(stack)
    for f in outer:
        if f is at:
            break
    for f in outer:
        if frames.function_of(f) == frames.function_of(at):
            continue  # the function itself, around its comprehension or by recursion
        if frames.is_generated(f.file) and not frames.is_users(f, stack):
            continue  # a dataclass' __init__, which calls __post_init__
        return f if frames.is_users(f, stack) and f.function != "<module>" else None
    return None


def library_call(stack: Sequence[Frame], at: frames.FrameLike) -> str:
    """What the user's line called: the outermost library frame below it, with its module; of a module, its forward."""
    called: Frame | None = None
    for f in stack:
        if f is at:
            break
        if not frames.is_own_file(f.file) and not frames.calls_module(f) and not frames.is_dispatcher(f.file):
            called = f
    if called is None:
        return ""
    if frames.is_generated(called.file):
        return frames.short_function(called.function)
    module = os.path.splitext(frames.short_path(called.file))[0].replace(os.sep, ".").removesuffix(".__init__")
    return f"{module}.{frames.short_function(called.function)}"


# -- what the source says of a place: a loop over weights, a file that is written anew, a file that is locked; and which
# functions keep a log

_BESIDE_OTHERS = frozenset({"join", "convert"})
_FUSED = frozenset({"lerp", "copy", "clip", "clip_value", "decay", "scale", "update", "statistics"})
# Of a library's function, or where the source was not read, the name tells.
_AVERAGE = re.compile(r"(^|_)(ema|momentum|polyak|soft_update|moving_average|follow_teacher)(_|$)", re.I)

_LOG = re.compile(
    r"(Log(ger)?|Metrics?|History|Tracker|Recorder|Stat(istic)?s?)(?![a-z])|(^|[._])(log|logs|metrics?|history|stats)(_|\.|$)"
)


def fused(facts: Places, spot: Spot) -> Said | None:
    """What does the same for all weights at once; None where the place is in no loop over weights."""
    kind = _kind(facts, spot)
    called = short_function(spot.leaf) if spot.leaf else ""
    if kind not in _FUSED and spot.all_in_leaf and _AVERAGE.search(called.rpartition(".")[2]):
        kind = "lerp"
    return Said(f"fused_{kind}") if kind in _FUSED else None


def rewrites(facts: Places, spot: Spot) -> bool:
    """It is where a file of text is written from its beginning."""
    return _kind(facts, spot) == "rewrite"


def joins_to_itself(facts: Places, spot: Spot) -> bool:
    """Its line copies an array, a tensor or a table whole to add to it."""
    return _kind_at(_recorded(facts), spot.frame, among=("join",)) == "join"


def converts_items(facts: Places, spot: Spot) -> bool:
    """Its line makes a tensor of each item."""
    return _kind_at(_recorded(facts), spot.frame, among=("convert",)) == "convert"


def asks_database(facts: Places, spot: Spot) -> bool:
    """Its line calls a database, or ends a `with` that does."""
    return _kind_at(_recorded(facts), spot.frame) == "database"


def file_lock_at(facts: Places, file: str) -> str:
    """ "train.py:41", the one line that locks a file: of this source file, or else of the whole program. "" where there
    are several, or none."""
    lines = _recorded(facts)
    found = [
        [(of, first) for of, loops in lines.items() for first, _, kind in loops if kind == "file_lock" and of in among]
        for among in ({file}, set(lines))
    ]
    (at, line), *more = next(filter(None, found), [("", 0)])
    return f"{short_path(at, facts.base)}:{line}" if at and not more else ""


def is_of_log(frame: FrameLike) -> bool:
    """By its name a function that keeps a log or metrics, which is no checkpoint whatever it saves by."""
    return _LOG.search(frame.function) is not None


def _kind(facts: Places, spot: Spot) -> str:
    lines = _recorded(facts)
    kinds = (_kind_at(lines, frame) for frame in (spot.frame, *(f for f, _ in spot.callers)))
    return next(filter(None, kinds), "")


def _recorded(facts: Places) -> Mapping[str, Any]:
    return {file: _loops(loops) for file, loops in described(facts.run.meta, "source_marks").items()}


def _loops(read: object) -> list[tuple[int, int, str]]:
    """Of a file: first line, last line, kind."""
    return [
        (row[0], row[1], row[2])
        for row in (read if isinstance(read, list) else ())
        if isinstance(row, list) and [type(value) for value in row] == [int, int, str]
    ]


def _kind_at(lines: Mapping[str, Any], frame: FrameLike, among: Sequence[str] = ()) -> str:
    """Of the innermost loop that the line is in; a kind that may share a line with others is asked for by name."""
    name = os.path.basename(frame.file)
    loops = lines.get(frame.file) or next((v for f, v in lines.items() if os.path.basename(f) == name), ())
    kinds = [(last - first, kind) for first, last, kind in loops if first <= frame.line <= last]
    around = [(size, kind) for size, kind in kinds if (kind in among if among else kind not in _BESIDE_OTHERS)]
    return str(min(around)[1]) if around else ""
