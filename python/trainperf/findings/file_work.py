"""Native code that is the kernel's, at work on files for a function of the user's."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from trainperf.findings.frames import is_stdlib_file, is_users
from trainperf.findings.own_functions import of_function
from trainperf.findings.syscalls import call_of, waiting_kind
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.own_code import OwnCode

_AT_FILES = ("fetch", "checkpoint", "validation", "logging")  # phases in which the kernel may do so for others


def file_call(facts: Facts, mine: OwnCode) -> str:
    """The call on files that the costliest of the functions makes: most of the time is its, it waits in such calls as
    well, no library computes below it, and the kernel works for the training thread, beside page faults and
    what others may write or read, for half of that time or more. "" elsewhere."""
    top = mine.spots[0]
    waits = [d for d in facts.samples(states=["blocked"]) if facts.is_at(d, top)]
    call = call_of(waits, facts.machine)
    if waiting_kind(call) != "file" or sum(d.count for d in waits) < limit("min_samples"):
        return ""
    seen = of_function(facts, mine, top)
    plain = sum(d.ns for d, stack in seen if is_users(stack[0], stack) or is_stdlib_file(stack[0].file))
    if min(top.share, plain / max(1, sum(d.ns for d, _ in seen))) < limit("most_share"):
        return ""
    elsewhere = sum(facts.matrix[phase, "native"] for phase in _AT_FILES)
    left = _kernel_share(facts) * facts.wall_ns - elsewhere
    return call if left >= limit("half_share") * mine.ns else ""


def _kernel_share(facts: Facts) -> float:
    """Of the training thread's time: what the kernel does for it on the CPU, but page faults; 0 when not known."""
    known = [h for h in facts.run.host if h.faults >= 0 and h.system_ns >= 0]
    price_ns = facts.number("page_fault_ns")
    if not price_ns:
        return 0.0
    pairs = [(a, b) for a, b in pairwise(known) if b.faults >= a.faults and b.system_ns >= a.system_ns]
    ns = sum(b.system_ns - a.system_ns for a, b in pairs)
    faults_ns = sum(b.faults - a.faults for a, b in pairs) * price_ns
    return max(0.0, ns - faults_ns) / max(1, sum(b.at_ns - a.at_ns for a, b in pairs))
