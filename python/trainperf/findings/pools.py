"""What can make those faster whom the loop waits for: more of them only where there are CPUs for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings import cpus
from trainperf.findings.facts import plural
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.handovers import Handover
    from trainperf.findings.places import Beside

_ONE_THREAD_EACH = (
    "# if its libraries start threads of their own: OPENBLAS_NUM_THREADS=1, OMP_NUM_THREADS=1, or threadpoolctl\n"
)
_MORE: dict[Handover, str] = {
    "future": "submit further ahead than one batch, and give the pool more workers",
    "queue": "make its producer faster, or run several",
    "process queue": "make its producer faster, or start several processes that put into it",
    "pipe": "let it work ahead: send the next request before the step, receive after it; or start several of them",
}
_NO_MORE: dict[Handover, str] = {
    "future": "submit further ahead than one batch; more workers",
    "queue": "make its producer faster; more producers",
    "process queue": "make its producer faster; more producers",
    "pipe": "send the next request before the step, receive after it; more such processes",
}


@dataclass(frozen=True, slots=True)
class Advice:
    fix: str
    will_not_help: str = ""  # beside what does not help whoever waits there
    why: str = ""
    evidence: str = ""


def advice(facts: Facts, kind: Handover, beside: Sequence[Beside]) -> Advice:
    """`beside`: the threads that stand in the user's code while the loop waits."""
    wants, used = cpus.demand(facts), cpus.load(facts)
    more, no_more = _MORE[kind], _NO_MORE[kind]
    if not used.known or not wants.cpus:
        return Advice(f"# {no_more} help if they wait, or if CPUs are free for them: that is not known")
    least, most = cpus.free(wants, used)
    if least >= limit("free_cpus"):
        how = "" if kind in ("process queue", "pipe") else ": threads if they wait, processes if they compute"
        return Advice(f"# {more}{how}")
    if most >= limit("free_cpus"):
        return Advice(f"# {no_more} help if they wait, or if CPUs are free for them: that is not known")
    usable = (
        plural(wants.cpus, "usable CPU")
        if wants.room == wants.cpus
        else f"a quota of {wants.quota:g} CPU{'' if wants.quota == 1 else 's'}"
    )
    evidence = (
        f"in CPUs: this process {used.own:.1f}"
        + (f" ({used.threads:.1f} or more in own threads)" if used.threads >= limit("own_threads_cpus") else "")
        + (f", its workers {used.workers:.1f}" if wants.workers else "")
        + (f", the other ranks {used.ranks:.1f}" if used.ranks >= 0.05 else "")
        + (f", other child processes {used.children:.1f}" if used.children >= 0.05 else "")
        + f", others {used.others:.1f}; {usable}"
    )
    working = [b for b in beside if b.works]
    if max(used.threads + used.children, len(working)) < limit("most_share") * wants.room:
        return Advice(f"# {no_more} help only if they wait: no CPU is free for one that computes", "", "", evidence)
    felt = limit("own_threads_cpus")
    parts = {"threads": used.threads, "child processes": used.children}
    named = {who: amount for who, amount in parts.items() if amount >= felt} or {"threads": used.threads}
    why = f"{' and '.join(named)} of this run compute meanwhile, and no CPU is free"
    if sum(named.values()) >= limit("most_share") * wants.room:
        why = f"meanwhile {' and '.join(named)} of this run use {sum(named.values()):.1f} of {usable}"
    work = {"future": "what the pool does", "pipe": "what that process does"}.get(kind, "what its producer does")
    fix = f"# make {work} cheaper, or do it once, before training: no CPU is free for more of it"
    if "threads" in named and any(b.spot.leaf for b in working):
        fix = _ONE_THREAD_EACH + fix
    return Advice(fix, "more workers: no CPU is free for them", why, evidence)
