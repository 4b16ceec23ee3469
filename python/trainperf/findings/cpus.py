"""Who wanted the CPUs of a run, and who used them: what the rules about waiting for a CPU share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from trainperf.findings import loaders
from trainperf.findings.cpu_use import cpu_use, quota, usable_cpus
from trainperf.findings.model import Params, Said
from trainperf.findings.text import Count, Names, Number
from trainperf.findings.thresholds import limit
from trainperf.findings.vocabulary import CAUSES
from trainperf.runfile.schema import json_object

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.growth import Floats
    from trainperf.runfile import Int64Array
    from trainperf.runfile.records import HostReading

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
    another part of the run is in nobody's way. Workers, child processes and ranks are those of the whole run."""
    mean, table, host = load(facts), facts.run.steps, facts.run.host
    at = np.array([h.at_ns for h in host])
    length = np.diff(at)
    if not mean.known or len(host) < 3 or (length <= 0).any():
        return mean
    ends = np.concatenate([table.start_ns[:1], table.start_ns + table.wall_ns])

    def of_each(column: Int64Array) -> Floats:
        return np.diff(np.interp(at, ends, np.concatenate([[0], np.cumsum(column)])))

    weights = of_each(table.causes_ns[:, CAUSES.index("descheduled")])
    if weights.sum() <= 0:
        return mean
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
    less = min(0.0, weighed(rest) - float(rest.sum() / length.sum()))
    surely = weighed(rest) - weighed(_at_most(mean.started * length.sum(), rest, weights / length)) - mean.elsewhere
    return replace(
        mean,
        own=own,
        threads=min(own, max(0.0, threads)),
        others=max(0.0, mean.others + less, surely),
        in_waits=True,
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
    found = json_object(facts.run.meta.get("thread_cpu", "{}"))
    python, native = (tuple(_uses(facts, found.get(kind))) for kind in ("python", "native"))
    pools = _rows(json_object(facts.run.meta.get("thread_pools", "{}")).get("unlimited"), (str, str))
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
