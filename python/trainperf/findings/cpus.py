"""Which CPUs a run may use, who wanted them and who used them; and what disks and network did."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from trainperf.findings import loaders
from trainperf.findings.model import Params, Said
from trainperf.findings.text import Bytes, Count, Names, Number, Share
from trainperf.findings.thresholds import limit
from trainperf.runfile.schema import CAUSES, described, listed

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.runfile import Int64Array, RunReader
    from trainperf.runfile.records import HostReading

Floats = npt.NDArray[np.float64]

# Of a worker's life, before its first reading and after its last, at most: there is a reading a second, or several.
_UNREAD_S = 2.0


@dataclass(frozen=True, slots=True)
class CpuUse:
    """In CPUs, over the whole watch."""

    own: float  # this process and its loaders' workers
    workers: float  # of it
    others: float  # neither this process nor any that it started, on all of the machine's CPUs
    children: float = 0.0  # processes that it started, beside the workers
    elsewhere: int = 0  # CPUs of the machine that this process may not run on: there others are in nobody's way


def used_beside(run: RunReader, stretches: Sequence[tuple[int, int]]) -> float | None:
    """CPUs that all processes but this one used, its workers and children among them: in the mean of these stretches,
    each from one time to another, in ns. None where they are not within the readings, which are a second apart."""
    host = run.host
    if len(host) < 2:
        return None
    at = [h.at_ns for h in host]
    used = [h.machine_busy_ns - h.process_cpu_ns for h in host]
    within = [(max(a, at[0]), min(b, at[-1])) for a, b in stretches]
    wall = sum(b - a for a, b in within if b > a)
    if wall < 0.5 * sum(b - a for a, b in stretches) or wall <= 0:
        return None
    return float(sum(np.interp(b, at, used) - np.interp(a, at, used) for a, b in within if b > a)) / wall


def usable_cpus(run: RunReader) -> int:
    """CPUs that the process and its workers may run on, in most of its steps; 0 when it is not known."""
    if found := used_cpus(run):
        return found
    text = run.meta.get("cpus", "")
    return int(text) if text.isdigit() else 0


def cpu_use(run: RunReader) -> CpuUse | None:
    """None: there are no two readings, or they are of a small part of a short watch."""
    host = run.host
    if len(host) < 2:
        return None
    first, last = host[0], host[-1]
    wall = last.at_ns - first.at_ns
    if wall <= 0 or wall < min(0.5 * run.watched_ns, limit("host_readings_s") * 1e9):
        return None
    seen = [worker for loader in run.loaders.values() for worker in loader.workers]
    workers = sum(w.cpu_seconds * 1e9 / wall for w in seen)
    # Of a watch, not from reading to reading; 0: a run that was killed, or of an older version.
    before, after = (int(run.meta.get(f"children_cpu_{when}_ns") or 0) for when in ("before", "after"))
    unread = max(0.0, (after - before) / run.watched_ns - workers) if run.watched_ns else 0.0
    of_each = [min(_UNREAD_S, max(0.0, run.watched_ns / 1e9 - w.seconds)) for w in seen]
    of_workers = min(unread, sum(of_each) * 1e9 / wall)
    workers += of_workers
    own = (last.process_cpu_ns - first.process_cpu_ns) / wall + workers
    rest = max(0.0, (last.machine_busy_ns - first.machine_busy_ns) / wall - own)
    # One that is killed with what started it was never waited for: it is in the looks alone.
    looked_at = sum(child.cpu_seconds for child in run.children) * 1e9 / run.watched_ns if run.watched_ns else 0.0
    children = min(rest, max(unread - of_workers, looked_at))
    usable = usable_cpus(run)
    machine = last.machine_busy_ns - first.machine_busy_ns + last.machine_idle_ns - first.machine_idle_ns
    elsewhere = max(0, round(machine / wall) - usable) if usable else 0
    return CpuUse(own, workers, rest - children, children, elsewhere)


# -- which it may use

_LATEST_NS = 1_500_000_000  # from a call to the reading that shows it: they are a fifth of a second apart, or more


@dataclass(frozen=True, slots=True)
class Room:
    """From `at_ns` on."""

    at_ns: int
    who: int  # 0: the step thread; else a worker's process
    cpus: frozenset[int]
    quota: float  # CPUs' worth of time; 0: none


@dataclass(frozen=True, slots=True)
class Call:
    """A call of os.sched_setaffinity for this process or one of its threads."""

    at_ns: int
    file: str
    line: int
    function: str
    count: int


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The step thread may run on fewer CPUs than it could."""

    cpus: frozenset[int]
    possible: int
    during: bool  # while it was watched
    at_ns: int  # when; the first reading, where it was so before
    call: Call | None  # that did it; None: not known
    workers_too: bool  # every worker that was seen is on these CPUs as well


@dataclass(frozen=True, slots=True)
class Quota:
    """What the container allows."""

    cpus: float  # CPUs' worth of time
    at_ns: int  # since when
    before: float | None  # the one before it, 0 for none; None: it was so from the beginning


def rooms(run: RunReader) -> Sequence[Room]:
    return [
        Room(at, who, _numbers(cpus), max(0, quota) / 1000)
        for at, who, _, cpus, quota in _rows(listed(run.meta, "cpu_room"), (int, int, int, str, int))
    ]


def calls(run: RunReader) -> Sequence[Call]:
    return [Call(*row) for row in _rows(listed(run.meta, "affinity_calls"), (int, str, int, str, int))]


def possible_cpus(run: RunReader) -> int:
    """To which the process could widen its affinity: its cpuset's, or the machine's; 0: not known."""
    text = run.meta.get("cpus_possible", "")
    return int(text) if text.isdigit() else 0


def in_force(run: RunReader) -> Room | None:
    """The step thread's for most of the steps' time."""
    return _longest(run, lambda room: room.cpus)


def quota(run: RunReader) -> Quota | None:
    """Of the container, for most of the steps' time; None: no quota, or none that can be read."""
    room = _longest(run, lambda room: room.quota)
    own = [r for r in rooms(run) if r.who == 0]
    if room is None or not any(r.quota for r in own):
        at_start = run.meta.get("cpu_quota", "")
        return Quota(float(at_start), 0, None) if re.fullmatch(r"\d+(\.\d+)?", at_start) else None
    before = [r for r in own if r.at_ns < room.at_ns]
    # The first reading of the CPUs comes just before that of the quota.
    changed = len(before) > 1 or bool(before and before[0].quota)
    return Quota(room.quota, room.at_ns, before[-1].quota if changed else None) if room.quota else None


def _longest(run: RunReader, of: Callable[[Room], Hashable]) -> Room | None:
    """The first of the step thread's rooms with what was so for most of the steps' time."""
    own = [room for room in rooms(run) if room.who == 0]
    if not own:
        return None
    table = run.steps
    start, end = (int(table.start_ns[0]), int(table.start_ns[-1] + table.wall_ns[-1])) if len(table.count) else (0, 0)
    ends = [*(room.at_ns for room in own[1:]), end]
    held: dict[Hashable, int] = {}
    for room, until in zip(own, ends, strict=True):
        held[of(room)] = held.get(of(room), 0) + max(0, min(until, end) - max(room.at_ns, start))
    most = max(held, key=lambda value: held[value])
    return next(room for room in own if of(room) == most) if any(held.values()) else own[-1]


def used_cpus(run: RunReader) -> int:
    """That the step thread or its workers may run on, in most of the steps' time; 0: not known."""
    room = in_force(run)
    if room is None:
        return 0
    return len(room.cpus.union(*(r.cpus for r in rooms(run) if r.who)))


def workers_cpus(run: RunReader) -> frozenset[int]:
    """That all workers together may run on, by each one's last reading; empty: not known."""
    last = {room.who: room.cpus for room in rooms(run) if room.who}
    return frozenset().union(*last.values())


def narrowed(run: RunReader) -> Narrowed | None:
    """None: it may use all that it could, or that is not known."""
    room, possible = in_force(run), possible_cpus(run)
    if (allowed := quota(run)) is not None:
        possible = min(possible, max(1, math.ceil(allowed.cpus)))  # a wider affinity gets no more time than that
    if room is None or not room.cpus or len(room.cpus) >= possible:
        return None
    all_rooms = rooms(run)
    before = [r for r in all_rooms if r.who == 0 and r.at_ns < room.at_ns]
    call = _call_of(room, calls(run))
    workers = [r for r in all_rooms if r.who]
    return Narrowed(
        cpus=room.cpus,
        possible=possible,
        during=call is not None or (bool(before) and len(before[-1].cpus) > len(room.cpus)),
        at_ns=call.at_ns if call is not None else room.at_ns,
        call=call,
        workers_too=all(r.cpus <= room.cpus for r in workers),
    )


def steps_before(run: RunReader, at_ns: int) -> int:
    table = run.steps
    row = int(np.searchsorted(table.start_ns, at_ns))
    return int(table.count[:row].sum())


def _call_of(room: Room, made: Sequence[Call]) -> Call | None:
    own = (c for c in made if c.count == len(room.cpus) and c.at_ns <= room.at_ns <= c.at_ns + _LATEST_NS)
    return max(own, key=lambda c: c.at_ns, default=None)


def _numbers(text: str) -> frozenset[int]:
    """Of "0-3,8"."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            found.update(range(int(first), min(int(last or first), int(first) + 8192) + 1))
    return frozenset(found)


# -- who wanted the CPUs, and who used them

# Time of the training thread in which it used no CPU; time of no known mechanism counts as used.
_OFF_CPU = frozenset({"blocked", "gil_wait", "stop_the_world", "object_lock", "gpu_wait", "descheduled", "throttled"})
_OFF_CPU_CAUSES = (
    "gil_wait",
    "stop_the_world",
    "object_lock",
    "descheduled",
    "throttled",
)  # likewise, of a row of steps
_ON_CPU_CAUSES = ("compute", "launch", "python", "gc")  # those of a row in which it surely used one

SPEAKS_OF = 0.05  # CPUs: what is less is shown as 0.0

Who = Literal["own threads", "oversubscribed", "children", "others", "both", "unclear"]


@dataclass(frozen=True, slots=True)
class Load:
    """Who used the CPUs during the run, in CPUs."""

    own: float
    threads: float  # of `own`: neither the training thread, nor torch's threads, nor ours
    workers: float
    others: float  # on the CPUs that this run may use, at least
    known: bool
    children: float = 0.0  # processes that this one started, beside workers
    ranks: float = 0.0  # the other ranks on this machine, which are neither: as much as this one each
    elsewhere: int = 0  # CPUs of the machine that this run may not use
    children_in_waits: bool = False  # so are `children`, at least; else they are of the whole run
    in_waits: bool = False  # `own`, `threads` and `others` are of where the training thread waits for a CPU

    @property
    def run(self) -> float:
        """Of the run's own: its processes, workers, ranks and what it started."""
        return self.own + self.started

    @property
    def started(self) -> float:
        """Of the run's own processes beside this one."""
        return self.workers + self.children + self.ranks

    @property
    def said(self) -> Said | None:
        """Who used how much; None where it is not known."""
        if not self.known:
            return None
        at_least = bool(self.elsewhere or (self.in_waits and self.started >= SPEAKS_OF))
        started = {"workers": self.workers, "ranks": self.ranks, "children": self.children}
        return Said(
            "cpu_load",
            {
                "own": Number(self.own),
                "own_threads": Number(self.threads) if self.threads >= limit("own_threads_cpus") else None,
                **{who: Number(used) if used >= SPEAKS_OF else None for who, used in started.items()},
                # That they used at least nothing says nothing.
                "others": Number(self.others) if not at_least or self.others >= SPEAKS_OF else None,
                "mean": Said("on_average") if self.in_waits else "",
                "children_mean": Said("on_average") if self.in_waits and not self.children_in_waits else "",
                "other": Said("beside_workers") if self.workers >= SPEAKS_OF else "",
                "in_waits": self.in_waits,
                "on_these": Said("on_these_cpus") if self.elsewhere else "",
                "or_more": Said("or_more") if at_least else "",
            },
        )


@dataclass(frozen=True, slots=True)
class Demand:
    """What the run is set to use."""

    cpus: int  # that the process may run on; 0: not known
    quota: float  # CPUs' worth of time that the container may use; 0: no quota, or not known
    threads: int  # torch's, of one operation; 0: not known
    workers: int
    ranks: int  # of this run on this machine

    @property
    def wanted(self) -> int:
        """Threads that compute at the same time."""
        return self.ranks * (max(1, self.threads) + self.workers)

    @property
    def room(self) -> float:
        """CPUs that it can have at most; 0: not known."""
        return min(self.cpus, self.quota) if self.quota else self.cpus

    @property
    def certain(self) -> bool:
        """torch's threads alone, which all compute, are more than there are CPUs."""
        return 0 < self.cpus < self.threads * self.ranks

    @property
    def over_cpus(self) -> bool:
        return 0 < self.cpus < self.wanted

    @property
    def over_quota(self) -> bool:
        """Not where even one thread is stopped: fewer threads would not help."""
        return 1 <= self.quota < self.wanted


@dataclass(frozen=True, slots=True)
class FewerThreads:
    """The same layers on torch's threads, in training, and on fewer, tried by the watch (hooks/fewer_threads.py)."""

    threads: int
    many_ns: int
    few_ns: int

    @classmethod
    def read(cls, run: RunReader) -> FewerThreads | None:
        found = described(run.meta, "fewer_threads")
        read = [found.get(key) for key in ("threads", "many_ns", "few_ns")]
        whole = [number for number in read if type(number) is int and 0 < number < _NO_TIME]
        return cls(*whole) if len(whole) == len(read) else None

    @property
    def saved(self) -> float:
        """The share of what the layers took."""
        return max(0.0, 1 - self.few_ns / self.many_ns)


def demand(facts: Facts) -> Demand:
    allowed = quota(facts.run)
    return Demand(
        cpus=usable_cpus(facts.run),
        quota=allowed.cpus if allowed is not None else 0.0,
        threads=facts.torch_threads,
        workers=_workers(facts),
        ranks=_ranks(facts),
    )


def _ranks(facts: Facts) -> int:
    return max(1, int(facts.number("local_world_size")))


def _workers(facts: Facts) -> int:
    """That work at the same time: a loader that is made anew in each epoch takes the place of the last one, and while
    one validates those of training rest."""
    found = facts.run.loaders.values()
    kinds = {(loaders.only_validates(v), loaders.dataset_name(v), loaders.num_workers(v)) for v in found}
    return max(sum(n for validates, _, n in kinds if validates == which) for which in (False, True))


def whose(wants: Demand, used: Load) -> Who:
    """Because of whom the training thread waits for a CPU."""
    if used.threads >= limit("own_threads_cpus") and wants.workers + 1 <= max(wants.cpus, 1):
        return "own threads"
    if wants.certain:
        return "oversubscribed"
    beside = used.others + used.children
    children = used.others < used.children * limit("half_share")
    # Of one CPU each of two has half. What others do there may be the kernel's; children are who they are.
    competing = limit("competing_cpus") * (limit("half_share") if children and wants.cpus == 1 else 1)
    if used.known and beside > max(used.own, used.workers) * limit("half_share") and beside > competing:
        if children:
            return "children"
        competes = max(limit("own_threads_cpus"), used.others * limit("warn_share"))
        return "others" if used.started < competes else "both"
    if not wants.over_cpus:
        return "unclear"
    # Workers may wait more than they compute: then they are not who takes the CPUs.
    uses = used.own + used.workers + used.ranks
    if not used.known or uses >= limit("most_share") * wants.cpus:
        return "oversubscribed"
    full = uses + beside >= limit("full_cpus") * wants.cpus
    return "both" if full and used.workers >= limit("warn_share") * wants.cpus else "unclear"


def load(facts: Facts) -> Load:
    use = cpu_use(facts.run)
    if use is None:
        return Load(0.0, 0.0, 0.0, 0.0, False)
    others = max(0.0, use.others - use.elsewhere)
    # Some launchers start the other ranks from the first one.
    ranks = min(others + use.children, (_ranks(facts) - 1) * use.own)
    started = min(use.children, ranks)
    return Load(
        own=use.own - use.workers,
        threads=max(_own_threads(facts), own_threads(facts).cpus),
        workers=use.workers,
        others=others - (ranks - started),
        known=True,
        children=use.children - started,
        ranks=ranks,
        elsewhere=use.elsewhere,
    )


def load_in_waits(facts: Facts) -> Load:
    """As load(), where the training thread waits for a CPU, each second by as much as it waits in it: who works in
    another part of the run is in nobody's way."""
    waits = facts.run.steps.causes_ns[:, CAUSES.index("descheduled")]
    found = _load_where(facts, waits)
    return replace(found, in_waits=True) if found is not None else load(facts)


def load_in_steps(facts: Facts) -> Load:
    """As load(), without the time before the first step and after the last."""
    found = _load_where(facts, facts.run.steps.wall_ns)
    return replace(found, children_in_waits=False) if found is not None else load(facts)


def _load_where(facts: Facts, ns: Int64Array) -> Load | None:
    """`ns`: of each step, that a second counts by. Workers and ranks are those of the whole run, and child processes
    where others may have used what they did. None: the readings are too few."""
    mean, table, host = load(facts), facts.run.steps, facts.run.host
    at = np.array([h.at_ns for h in host])
    length = np.diff(at)
    if not mean.known or len(host) < 3 or (length <= 0).any():
        return None
    ends = np.concatenate([table.start_ns[:1], table.start_ns + table.wall_ns])

    def of_each(column: Int64Array) -> Floats:
        return np.diff(np.interp(at, ends, np.concatenate([[0], np.cumsum(column)])))

    weights = of_each(ns)
    if weights.sum() <= 0:
        return None
    weights /= weights.sum()

    def weighed(ns: Int64Array | Floats) -> float:
        return float((ns / length * weights).sum())

    def of_causes(causes: Sequence[str]) -> Floats:
        return of_each(table.causes_ns[:, [CAUSES.index(cause) for cause in causes]].sum(axis=1))

    process = np.diff([h.process_cpu_ns for h in host])
    own = weighed(process)
    # What lies between steps is the training thread's own, as far as is known.
    on_cpu = length - of_causes(_OFF_CPU_CAUSES)
    native = sum(ns for (_, mechanism), ns in facts.matrix.items() if mechanism == "native") / max(1, _on_cpu(facts))
    torchs = on_cpu * min(1.0, native) * max(0, facts.torch_threads - 1)
    torchs = np.maximum(torchs, own_threads(facts).torchs * length)
    ours = length * min(1.0, facts.own_cpu_ns / max(facts.run.watched_ns, 1))
    # As much as on average, where what the training thread computes leaves so much of the process. While it waits for
    # torch's other threads it computes nothing, which is not told apart.
    room = own - weighed(of_causes(_ON_CPU_CAUSES)) if facts.torch_threads <= 1 else own
    threads = max(min(mean.threads, room), weighed(process - on_cpu - torchs - ours))
    rest = np.diff([h.machine_busy_ns for h in host]) - process
    wall = length.sum()
    less = min(0.0, weighed(rest) - float(rest.sum() / wall))

    def surely(of_all_others: float) -> float:
        """What is left where all others used what they did where it is waited most."""
        return weighed(rest) - weighed(_at_most(of_all_others, rest, weights / length))

    started = max(mean.children, surely(max(0.0, float(rest.sum()) - mean.children * wall)))
    return replace(
        mean,
        own=own,
        threads=min(own, max(0.0, threads)),
        others=max(0.0, mean.others + less, surely(mean.started * wall) - mean.elsewhere),
        children=started,
        children_in_waits=started > mean.children,
    )


def _at_most(used: float, busy: Int64Array, waits: Floats) -> Floats:
    """As much of `used` in each second as its processes may have used there, those first in which it is waited most."""
    order = np.argsort(-waits, kind="stable")
    result = np.zeros(len(busy))
    result[order] = np.diff(np.minimum(np.cumsum(busy[order].clip(min=0)), used), prepend=0.0)
    return result


def leave_room(wants: Demand, used: Load) -> bool:
    """Whether other processes leave the run the CPUs that it is set to use: what is short is not because of them."""
    return 0 < limit("full_cpus") * wants.wanted <= wants.cpus - used.others


def free(wants: Demand, used: Load) -> tuple[float, float]:
    """CPUs that nobody used and the run may, on average: at least, and at most. Only where `used` is known."""
    most = wants.cpus - used.run - used.others
    if wants.quota:
        most = min(most, wants.quota - used.run)
    return max(0.0, most - used.elsewhere), max(0.0, most)


def room(facts: Facts) -> float | None:
    """CPUs that this process uses, and those that nobody does: what it shares with workers that it would start. None:
    not known, or it is one."""
    wants, used = demand(facts), load(facts)
    if wants.room <= 1:
        return None
    return max(1.0, used.own + free(wants, used)[1]) if used.known else wants.room


def own_ns(facts: Facts) -> int:
    """CPU time of this process in the steps, of all its threads."""
    of_step_thread = sum(ns for (_, mechanism), ns in facts.matrix.items() if mechanism in ("python", "native"))
    used = load(facts)
    return max(of_step_thread, int(used.own * facts.wall_ns) if used.known else 0)


def _own_threads(facts: Facts) -> float:
    """CPUs that threads of this process used besides the training thread, torch's and ours, at least; 0.0: not known.

    From the readings while steps ran, or from all, if that tells of more: building a model is the training thread's
    doing as well.
    """
    table = facts.run.steps
    start, end = int(table.start_ns[0]), int(table.start_ns[-1] + table.wall_ns[-1])
    during = [h for h in facts.run.host if start <= h.at_ns <= end]
    return max(_between(facts, readings, start, end) for readings in (during, facts.run.host))


def once_free(facts: Facts) -> Said | None:
    """When more workers help, where other processes leave less than half of a CPU; else None."""
    wants, used = demand(facts), load(facts)
    if not used.known or used.others < limit("competing_cpus") or free(wants, used)[1] >= limit("free_cpus"):
        return None
    return Said("once_free", {"others": used.others, "cpus": Count(wants.cpus)})


def threads_beside(facts: Facts) -> tuple[float, float] | None:
    """CPUs that threads of this process used besides the training thread, torch's and ours, while steps ran: at least,
    and at most; None: not known."""
    use = load(facts)
    if not use.known:
        return None
    return use.threads, max(use.threads, use.own - _on_cpu(facts) / max(facts.wall_ns, facts.run.watched_ns, 1))


def _on_cpu(facts: Facts) -> int:
    """Time of the training thread on a CPU, at most."""
    # While a device's autograd thread runs backward, the training thread waits: the work is the loop's own.
    own = (ns for at, ns in facts.matrix.items() if at[1] not in _OFF_CPU or at == ("backward", "blocked"))
    return sum(own)


def _between(facts: Facts, readings: Sequence[HostReading], start: int, end: int) -> float:
    """As _own_threads. The readings may leave out much of a short run: all that the training thread may have used
    between them is taken as its own, and where they are of more than the steps, all that the CPUs can do there."""
    if len(readings) < 2:
        return 0.0
    first, last = readings[0], readings[-1]
    between = min(last.at_ns, end) - max(first.at_ns, start)
    if between <= 0:
        return 0.0
    beyond = (last.at_ns - first.at_ns - between) * max(1, usable_cpus(facts.run))
    used = last.process_cpu_ns - first.process_cpu_ns - beyond
    on_cpu = _on_cpu(facts)
    native = sum(ns for (_, mechanism), ns in facts.matrix.items() if mechanism == "native")
    # At most: small operations do not use all of torch's threads. At least what these used: they spin for a while
    # after each operation.
    torchs = max(min(native, between) * max(0, facts.torch_threads - 1), own_threads(facts).torchs * between)
    ours = min(facts.own_cpu_ns, between)
    return max(0, used - min(on_cpu, between) - torchs - ours) / between


# -- threads of the process, beside the training thread and torch's

_AUTOGRAD = "pt_autograd"  # runs the loop's own backward
_NO_TIME = 1 << 63  # ns


@dataclass(frozen=True, slots=True)
class ThreadUse:
    name: str
    cpus: float


@dataclass(frozen=True, slots=True)
class OwnThreads:
    """Those that were there when the watch ended, the busiest first. Both empty: none, or not known."""

    python: tuple[ThreadUse, ...]  # that Python started
    native: tuple[ThreadUse, ...]  # that libraries started
    pools: tuple[tuple[str, str], ...]  # libraries that may have: (name, what limits it)
    torchs: float = 0.0  # CPUs that those used which are taken to be torch's

    @property
    def cpus(self) -> float:
        return sum(t.cpus for t in (*self.python, *self.native))

    @property
    def more_native(self) -> bool:
        return sum(t.cpus for t in self.native) > sum(t.cpus for t in self.python)

    @property
    def mostly_native(self) -> bool:
        return sum(t.cpus for t in self.native) >= limit("most_share") * max(self.cpus, limit("own_threads_cpus"))

    @property
    def native_said(self) -> Said | None:
        """ "7 native threads besides torch's use 1.2 CPUs"; None where there are none."""
        return Said("native_use", {"count": Count(len(self.native)), **_use(self.native)}) if self.native else None

    @property
    def python_said(self) -> Said | None:
        """ "threads augment-0, augment-1 and 2 more use 1.1 CPUs"; None where there are none."""
        more = Count(len(self.python) - 2) if len(self.python) > 2 else None
        names = Names(t.name for t in self.python[:2])
        return Said("python_use", {"names": names, "more": more, **_use(self.python)}) if self.python else None


def _use(threads: tuple[ThreadUse, ...]) -> Params:
    return {"cpus": Number(sum(t.cpus for t in threads)), "several": len(threads) > 1}


def own_threads(facts: Facts) -> OwnThreads:
    """torch's threads are taken to be the busiest of the native ones."""
    found = described(facts.run.meta, "thread_cpu")
    python, native = (tuple(_uses(facts, found.get(kind))) for kind in ("python", "native"))
    pools = _rows(described(facts.run.meta, "thread_pools").get("unlimited"), (str, str))
    torchs = max(0, facts.torch_threads - 1)
    return OwnThreads(python, native[torchs:], tuple(pools), sum(t.cpus for t in native[:torchs]))


def _uses(facts: Facts, rows: object) -> Iterator[ThreadUse]:
    watched = facts.run.watched_ns
    step = facts.run.step_thread.native_tid if facts.run.step_thread is not None else 0
    for tid, name, ms in _rows(rows, (int, str, int)):
        ns = ms * 1_000_000
        notable = 0 < limit("show_share") * watched <= ns < _NO_TIME
        if notable and tid != step and not name.startswith(_AUTOGRAD):
            yield ThreadUse(name, ns / watched)


def _rows(rows: object, types: tuple[type, ...]) -> list[Any]:
    """Those of such types: what else may be in a file tells nothing."""
    return [
        tuple(row)
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, list) and tuple(map(type, row)) == types
    ]


# -- disks and network


def storage(facts: Facts) -> Params:
    """What disks and network did meanwhile, for a finding about data."""
    return {**busiest_disk(facts, "read"), **received(facts)}


def busiest_disk(facts: Facts, what: Literal["read", "written"]) -> Params:
    """Of the disk that had work for most of the time: its name, that share, how much it read or wrote in a second, and
    whose part of it was this run's. Empty where none had work for half of the time, or it is not known."""
    grown, wall_ns = _counted_during_steps(facts)
    busy = {name.partition(":")[2]: ns for name, ns in grown.items() if name.startswith("disk_busy_ns:")}
    disk = max(busy, key=lambda name: busy[name], default=None)
    if disk is None or busy[disk] < limit("half_share") * wall_ns:
        return {}
    moved, own = grown.get(f"disk_{what}_bytes:{disk}", 0), grown.get(f"own_{what}_bytes")
    if moved <= 0:
        return {}
    return {
        "disk": disk,
        "disk_busy": Share(min(1.0, busy[disk] / wall_ns)),
        "disk_moved": Bytes(moved * 1e9 / wall_ns),
        "disk_own": Share(min(1.0, own / moved)) if own is not None else None,
    }


def received(facts: Facts) -> Params:
    """How much the run's own TCP connections received, in a second and for a step; else, as connections that last less
    than a second are not seen, the network interface that received the most, whoever it was for. Empty where that is
    little, where it is not known, or where other ranks send too."""
    grown, wall_ns = _counted_during_steps(facts)
    own, interfaces = "own_net_received_bytes", [name for name in grown if name.startswith("net_received_bytes:")]
    for name in (own, *sorted(interfaces, key=lambda name: -grown[name])[:1]):
        each_s = grown.get(name, 0) * 1e9 / max(1, wall_ns)
        if each_s >= limit("network_bytes") and facts.number("world_size") <= 1:
            return {
                "received": Bytes(each_s),
                "received_each": Bytes(each_s * facts.wall_ns / 1e9 / facts.steps),
                "interface": None if name == own else name.partition(":")[2],
            }
    return {}


def _counted_during_steps(facts: Facts) -> tuple[dict[str, int], int]:
    """By how much the machine's counters grew from the last reading before the steps to the last one during these, and
    the time between; nothing where there is none during steps. What a connection received until it is seen counts
    then, so the time before must as well."""
    table, machine = facts.run.steps, facts.run.machine
    at = np.array([reading.at_ns for reading in facts.run.host], dtype=np.int64)
    if not len(table.start_ns):
        return {}, 0
    begin, end = table.start_ns[0], table.start_ns[-1] + table.wall_ns[-1]
    first = max(0, int(np.searchsorted(at, begin, side="right")) - 1)
    last = int(np.searchsorted(at, end, side="right")) - 1
    if last <= first:
        return {}, 0
    return {name: int(so_far[last] - so_far[first]) for name, so_far in machine.items()}, int(at[last] - at[first])
