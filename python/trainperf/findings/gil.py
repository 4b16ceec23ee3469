"""Who held the GIL while the training thread waited for it: what the rules about the GIL share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings import loaders
from trainperf.findings.facts import Holder, ms, plural
from trainperf.findings.frames import is_other_library, is_stdlib_file, is_users, short_path
from trainperf.findings.model import Abstained, Cell, Severity
from trainperf.findings.places import body_of_thread, function_name
from trainperf.findings.rule import Rule
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts, Spot

WILL_NOT_HELP = "more DataLoader workers, a larger batch, a faster GPU"
FETCHES_WILL_NOT_HELP = "a larger batch, a faster GPU"  # where the training thread makes the batches, and waits there
THREAD_WILL_NOT_HELP = "more threads that make batches; a larger queue; a faster GPU"  # of a thread that feeds the loop

# A thread that runs Python gives the GIL up when asked, after sys.getswitchinterval(); a C call need not. So waits for
# the former last this long, or longer where it lacks a CPU; for the latter what is left of the call: anything.
_SWITCH_INTERVAL_NS = 5_000_000
_SHORTEST, _LONGEST = 0.98 * _SWITCH_INTERVAL_NS, 1.1 * _SWITCH_INTERVAL_NS


@dataclass(frozen=True, slots=True)
class Waits:
    """The training thread's waits for the GIL, where they are large enough to speak of."""

    claims: dict[Cell, int]
    ns: int
    severity: Severity
    holders: tuple[Holder, ...]  # costliest first
    hog: bool  # the first of them causes most of it
    losing: int  # steps that lose 10 % or more
    in_fetch: bool  # most of it where the training thread makes the batches itself: workers would not wait there

    def evidence(self, facts: Facts) -> str:
        losing = f"({self.losing:,} of {facts.steps:,} steps lose 10% or more)"
        return f"{facts.of_step(self.ns)} is waiting for the GIL {losing}"


def look(facts: Facts, rule: Rule) -> Waits | Abstained | None:
    """Abstained: no tier, or one that does not know who waits. None: too little to speak of."""
    why = facts.off("gil_waits")
    if why is None and facts.tier("gil_waits").startswith("busy-only"):
        why = "gil_waits: only who holds the GIL is known here, not who waits for it"
    if why is not None:
        return Abstained(rule.id, rule.slug, why)
    claims = facts.cells("gil_wait")
    ns = sum(claims.values())
    severity = facts.grade(ns, rule.limits)
    if severity is None:
        return None
    holders = tuple(facts.holders())
    hog = bool(holders) and holders[0].share >= limit("hog_share")
    in_fetch = sum(of for (phase, _), of in claims.items() if phase == "fetch") >= limit("most_share") * ns
    trains = [v for v in facts.run.loaders.values() if not loaders.only_validates(v)]
    in_workers = sum(v.fetches.count for v in trains if loaders.num_workers(v))
    by_itself = sum(v.fetches.count for v in trains if not loaders.num_workers(v)) > in_workers
    return Waits(claims, ns, severity, holders, hog, facts.run.steps_with("gil_wait"), in_fetch and by_itself)


def holder_text(facts: Facts, holder: Holder) -> str:
    at = f", in {facts.label(holder.spot)}" if holder.spot is not None else ""
    if holder.spot is not None and holder.second is not None:
        at = f": {facts.label_of_two(holder.spot, holder.second, 'in ')}"
    return f"{holder.name} held it for {holder.share:.0%} of the wait{at}"


def package_that_started(spot: Spot | None) -> str:
    """The package that started the thread for itself: "tensorboard"; "" for none, or PyTorch and its frameworks."""
    if spot is None or any(is_users(f, spot.frames) for f in spot.frames):
        return ""
    outermost = next((f.file for f in reversed(spot.frames) if not is_stdlib_file(f.file)), "")
    return short_path(outermost).replace("\\", "/").partition("/")[0] if is_other_library(outermost) else ""


def in_a_process(holder: Holder | None) -> str:
    """A fix: the holder's function, or all that its thread does where that is not one, beside training's GIL."""
    spot = holder.spot if holder is not None else None
    if package := package_that_started(spot):
        return f"# the thread is {package}'s own: give it less to do, by fewer calls of {package} or smaller ones"
    function, body = function_name(spot), body_of_thread(spot)
    several = holder is not None and holder.second is not None
    if not body or not (several or body.rpartition(".")[2] == function):
        if spot is not None and spot.frame.function.endswith("<lambda>"):  # it can be sent to no process
            return "# run what that lambda does in a process: threads share one GIL"
        first = f"# run {function} in a process: threads share one GIL\n"
        return f"{first}concurrent.futures.ProcessPoolExecutor(1).submit({function}, ...)"
    of_class, _, name = body.rpartition(".")
    how = f"multiprocessing.Process(target={name}, ...).start()"
    if name == "run":  # without its class before CPython 3.11
        how = f"class {of_class or '...'}(multiprocessing.Process): ..."
        body = (of_class and body) or "that thread"
    return f"# run {body} in a process: threads share one GIL\n{how}  # and a multiprocessing.Queue to it"


def device_text(facts: Facts) -> str:
    """ "the GPU waited 31 ms a step for indexer, which held the GIL in json.loads"; "" without a device."""
    holders = facts.holders(kind="idle_gil_wait")
    if facts.gpu is None or not holders:
        return ""
    at = f" in {facts.label(holders[0].spot)}" if holders[0].spot is not None else ""
    each = ms(sum(h.ns for h in holders) / facts.steps)
    most = "" if holders[0].share >= limit("hog_share") else f" ({holders[0].share:.0%} of it)"
    return f"{facts.gpu.name} waited {each} a step for {holders[0].name}{most}, which held the GIL{at}"


def average_text(holders: Sequence[Holder]) -> str:
    """ "60 waits of 5.1 ms on average"; "" when none of them was seen to its end."""
    waits = sum(h.waits for h in holders)
    return f"{plural(waits, 'wait')} of {ms(sum(h.ns for h in holders) / waits)} on average" if waits else ""


def gives_up(facts: Facts, hog: Holder) -> bool | None:
    """Whether the hog gives the GIL up when it is asked to (Python), or holds it to the end of a C call; None: unclear.

    Only waits that are timed exactly can tell.
    """
    if facts.tier("gil_waits") != "exact":
        return None
    waits = _single_waits(facts, hog)
    if not waits:
        return None
    # Measured with two threads on two busy cores. Python: 50 to 75 % of the waits last an interval, none is shorter;
    # json.dumps of 10 ms: 5 %, and a third is shorter.
    shorter = sum(ns < _SHORTEST for ns in waits) / len(waits)
    an_interval = sum(_SHORTEST <= ns <= _LONGEST for ns in waits) / len(waits)
    longer_ns = sum(ns for ns in waits if ns > _LONGEST)
    if an_interval >= 0.4 and shorter <= 0.1:
        return True
    return False if longer_ns > 0.25 * sum(waits) and an_interval < 0.2 else None


def _single_waits(facts: Facts, hog: Holder) -> list[int]:
    """Of the steps that keep their timeline. A wait's slices (each <= 5 ms) follow each other without a gap."""
    waits: list[int] = []
    for step in facts.run.kept_steps.index.tolist():
        end = -1
        for s in facts.run.segments(step):
            if s.mechanism != "gil_wait" or s.thread != hog.thread:
                continue
            if s.start_ns == end:
                waits[-1] += s.end_ns - s.start_ns
            else:
                waits.append(s.end_ns - s.start_ns)
            end = s.end_ns
    return waits
