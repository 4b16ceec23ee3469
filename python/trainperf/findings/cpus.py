"""Who wanted the CPUs of a run, and who used them: what the rules about waiting for a CPU share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from trainperf.findings import cpu_room, loaders
from trainperf.findings.cpu_use import cpu_use, usable_cpus
from trainperf.findings.own_threads import own_threads
from trainperf.findings.thresholds import limit
from trainperf.findings.vocabulary import CAUSES

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.growth import Floats
    from trainperf.runfile import Int64Array
    from trainperf.runfile.records import HostReading

# Time of the training thread in which it used no CPU; time of no known mechanism counts as used.
_OFF_CPU = frozenset({"blocked", "gil_wait", "gpu_wait", "descheduled", "throttled"})
_OFF_CPU_CAUSES = ("gil_wait", "descheduled", "throttled")  # likewise, of a row of steps
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
    def text(self) -> str:
        """Who used how much, as evidence; "" where it is not known."""
        if not self.known:
            return ""
        mean = " (on average)" if self.in_waits else ""
        at_least = self.elsewhere or (self.in_waits and self.started >= SPEAKS_OF)
        threads = f" ({self.threads:.1f} in own threads)" if self.threads >= limit("own_threads_cpus") else ""
        started = {"its workers": self.workers, "the other ranks": self.ranks, "other child processes": self.children}
        parts = (
            f"this process {self.own:.1f}{threads}",
            *(f"{who} {used:.1f}{mean}" for who, used in started.items() if used >= SPEAKS_OF),
            f"others{' on these CPUs' if self.elsewhere else ''} {self.others:.1f}{' or more' if at_least else ''}",
        )
        return f"in CPUs{', where it waits' if self.in_waits else ''}: {', '.join(parts)}"


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
    allowed = cpu_room.quota(facts.run)
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


def _own_threads(facts: Facts) -> float:
    """CPUs that threads of this process used besides the training thread, torch's and ours, at least; 0.0: not known.

    From the readings while steps ran, or from all, if that tells of more: building a model is the training thread's
    doing as well.
    """
    table = facts.run.steps
    start, end = int(table.start_ns[0]), int(table.start_ns[-1] + table.wall_ns[-1])
    during = [h for h in facts.run.host if start <= h.at_ns <= end]
    return max(_between(facts, readings, start, end) for readings in (during, facts.run.host))


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
