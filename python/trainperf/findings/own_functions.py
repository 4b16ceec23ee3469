"""What one of the loop's own functions does, and when: by what was seen of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from trainperf.findings import frames
from trainperf.findings.loaders import only_validates, with_workers_of
from trainperf.findings.module_calls import batch_work
from trainperf.findings.own_code import FORWARD, functions_that_call_modules, hooks, native_cells, of_arrays
from trainperf.findings.syscalls import call_of, waiting_kind
from trainperf.findings.thresholds import limit
from trainperf.findings.weights import total

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts, Spot
    from trainperf.findings.own_code import OwnCode
    from trainperf.findings.stacks import Label
    from trainperf.runfile import Detail

_AT_FILES = ("fetch", "checkpoint", "validation", "logging")  # phases in which the kernel may do so for others


def of_function(facts: Facts, mine: OwnCode, spot: Spot, among: Iterable[Detail] | None = None) -> list[Detail]:
    """What was seen of one of these functions."""
    function = frames.function_of(spot.frame)
    among = mine.details if among is None else among
    seen = ((d, frames.user_frame(mine.seen_from(facts.run.stack(d.stack)))) for d in among)
    return [d for d, at in seen if at is not None and frames.function_of(at) == function]


def share_that(facts: Facts, seen: Sequence[Detail], is_so: Callable[[Label], bool]) -> float:
    """Of the time of what was seen."""
    return total(d for d in seen if is_so(facts.labelled(d))) / max(1, total(seen))


def asks_for(facts: Facts, seen: Sequence[Detail]) -> str:
    """What most of it is that it asks a library for: "text", "metrics", "average"; "" for anything else."""
    times: Counter[str] = Counter()
    for d in seen:
        times[facts.labelled(d).asks_for] += d.ns
    asked, ns = max(times.items(), key=lambda of: of[1], default=("", 0))
    return asked if ns > limit("most_share") * times.total() else ""


def works_on_weights(facts: Facts, seen: Sequence[Detail]) -> bool:
    """It was notably often seen to ask modules for what they keep: an average of the weights, or a copy."""
    return share_that(facts, seen, lambda label: any(map(frames.reads_module, label.below))) >= limit("warn_share")


def computes_loss(facts: Facts, mine: OwnCode, spot: Spot) -> bool:
    """One of these functions was notably often seen to ask PyTorch for a loss, and never to run a layer, as a whole
    training_step does."""
    function, samples = frames.function_of(spot.frame), facts.samples()
    labels = map(facts.labelled, samples)
    if any(label.runs_layer and function in map(frames.function_of, label.stack) for label in labels):
        return False
    seen = of_function(facts, mine, spot, samples)
    return bool(seen) and share_that(facts, seen, lambda label: frames.of_loss(label.stack)) >= limit("warn_share")


def may_be_of_tensors(facts: Facts, seen: Sequence[Detail]) -> bool:
    """Notably much of it is told as of arrays on lines of its own: tensors would look the same."""
    is_of_arrays = facts.once(of_arrays)
    bare = total(
        d for d in seen if d.phase == "forward" and not facts.labelled(d).below and is_of_arrays(facts.labelled(d))
    )
    return bare >= limit("warn_share") * total(seen)


class AroundTheModel(NamedTuple):
    """Shares of what was seen, by the lines on which a function calls the model; the rest is on none of these."""

    before: float
    between: float  # two calls
    after: float  # and before the backward
    updated: float  # after the update


def around_the_model(facts: Facts, seen: Sequence[Detail]) -> AroundTheModel:
    work, whole = facts.once(batch_work), max(1, total(seen))
    forward = [(d.ns, facts.labelled(d)) for d in seen if d.phase == "forward"]
    where = (work.is_before, work.is_between, work.is_after, work.is_after_update)
    return AroundTheModel(*(sum(ns for ns, label in forward if at(label)) / whole for at in where))


def may_free_a_batch(facts: Facts, spot: Spot, seen: Sequence[Detail]) -> bool:
    """Of the loop itself nearly all was seen on one line, with no function of Python's below it, and workers make the
    batches: their memory is given back where the last name of one goes, on the CPU and with the GIL held, which looks
    like Python."""
    function = frames.function_of(spot.frame)
    if spot.frame.function != function[1]:  # a generator's own frame
        return False
    if function not in facts.once(functions_that_call_modules) or all(map(only_validates, with_workers_of(facts))):
        return False
    return share_that(facts, seen, lambda label: label.stack[0] == spot.frame) >= limit("held_share")


def untold_of_line(facts: Facts, mine: OwnCode, spot: Spot) -> int:
    """ns of native code that the function's line runs before the backward beside what is told; 0 where it was seen to
    call a module."""
    if FORWARD not in native_cells(facts):
        return 0
    told = {d.stack for d in mine.details if (d.phase, d.state) == FORWARD}
    samples = facts.samples(phases=["forward"], states=["native"])
    on_line = [d for d in samples if facts.is_at(d, spot, line=True)]
    if any(frames.calls_module(f) for d in on_line for f in facts.run.stack(d.stack)):
        return 0
    ns = total(d for d in on_line if d.stack not in told and facts.labelled(d).beside_training)
    return ns * facts.matrix[FORWARD] // max(1, total(samples))


def share_in_hooks(facts: Facts, mine: OwnCode) -> float:
    in_hook = hooks(facts)
    return total(d for d in mine.details if d.phase == "forward" and in_hook(facts.labelled(d))) / max(
        1, total(mine.details)
    )


def part_of_step(facts: Facts, seen: Sequence[Detail]) -> str:
    """The part of the step that most of it is in: a phase, the "model", a "closure", a "hook"."""
    parts: Counter[str] = Counter()
    for d in seen:
        label = facts.labelled(d)
        part = d.phase
        if part == "forward" and label.in_module:
            part = "model"
        elif part == "optimizer" and frames.in_closure(label.stack):
            part = "closure"
        elif part == "backward" and frames.in_backward_hook(label.stack):
            part = "hook"
        parts[part] += d.ns
    return max(parts, key=lambda part: parts[part], default="")


def file_call(facts: Facts, mine: OwnCode) -> str:
    """The call on files that the costliest of the functions makes: most of the time is its, it waits in such calls as
    well, no library computes below it, and the kernel works for the training thread, beside page faults and
    what others may write or read, for half of that time or more. "" elsewhere."""
    top = mine.spots[0]
    waits = [d for d in facts.samples(states=["blocked"]) if facts.is_at(d, top)]
    call = call_of(waits, facts.machine)
    if waiting_kind(call) != "file" or sum(d.count for d in waits) < limit("min_samples"):
        return ""
    plain = share_that(
        facts,
        of_function(facts, mine, top),
        lambda label: frames.is_users(label.stack[0], label.stack) or frames.is_stdlib_file(label.stack[0].file),
    )
    if min(top.share, plain) < limit("most_share"):
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
