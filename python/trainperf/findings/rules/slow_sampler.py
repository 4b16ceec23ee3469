"""TP106: what draws the batches' indices takes long: it runs on the training thread, with workers too."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from trainperf.findings import frames, loaders
from trainperf.findings.facts import ms, plural
from trainperf.findings.model import Outcome
from trainperf.findings.syscalls import call_of, waiting_kind
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainperf.findings.facts import Facts, Spot
    from trainperf.runfile import Detail

_READS = {"__getitem__", "__getitems__", "open", "load", "read", "read_image", "imread"}
_MINES = re.compile(r"hard|mining|miner|loss|priorit|curriculum|adaptive|difficult|active_?learn|importance", re.I)


class SlowSampler:
    id = "TP106"
    slug = "slow-sampler"
    limits = loaders.SAMPLER_LIMITS
    needs: tuple[str, ...] = ("hook_dataloader",)

    def check(self, facts: Facts) -> Outcome:
        claims = loaders.told_sampler(facts)
        cost = sum(claims.values())
        severity = facts.grade(cost, self.limits)
        if severity is None:
            return None
        inside = loaders.sampler_samples(facts, claims)
        rest = sum(facts.cells("data_wait", ["fetch"]).values()) - cost
        seen = sum(d.count for d in inside)
        spots = facts.spots(inside, keep=_below_loader)
        top = spots[0] if spots else None
        of_top = [d for d in inside if top is None or facts.is_at(d, top)]
        waits = loaders.blocked_share(of_top) >= limit("half_share")
        call = call_of(of_top, facts.machine) if waits else ""
        name = facts.label(top) if top is not None else _torchs_own(facts, inside)
        used = [v for v in facts.run.loaders.values() if v.fetches.count]
        # Of several it is not known whose sampler it is.
        workers = loaders.num_workers(used[0]) if len(used) == 1 else 0
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="data_wait",
            claims=claims,
            title="the loop waits for its sampler",
            affected=facts.affected("data_wait"),
            confidence=facts.confidence(samples=seen, tier="sampled"),
            evidence=(
                f"drawing the batches' indices takes {facts.of_step(cost)}, on the training thread",
                f"the rest of the fetches takes another {ms(rest / facts.steps)} a step",
                f"{top.share:.0%} of its {plural(seen, 'sample')} are in {facts.label(top)}" if top is not None else "",
                f"it waits: the system call is {call}" if call else "",
                f"{plural(workers, 'worker')}, which read the data and draw no indices" if workers else "",
            ),
            who=(facts.step_thread_name,),
            where=facts.where(top),
            why=f"{name} draws the batches' indices on the training thread" + (f", and waits ({call})" if call else ""),
            fix=_fix(facts, inside, top, waits=waits),
            will_not_help="more workers or a larger prefetch_factor: the sampler runs in the training process",
        )


def _fix(facts: Facts, inside: Sequence[Detail], top: Spot | None, *, waits: bool) -> str:
    """What is drawn by the results of training cannot be drawn ahead; what is read to decide can be read once."""
    if _follows_training(facts, inside, top):
        return "# choose by scores of the training for many batches at a time: again every N batches, by torch or NumPy"
    if _reads_data(facts, inside):
        return (
            "# what it decides by (length, label, size): read it once, before the epochs, into an array or a file, and "
            "choose by that"
        )
    if waits:
        return "# take the wait out of the sampler: read what it needs once, before the epoch"
    return "# draw a whole epoch's indices at once in __iter__, by torch or NumPy, and yield slices of them"


def _reads_data(facts: Facts, inside: Sequence[Detail]) -> bool:
    """It reads samples, or files, as it draws."""

    def reads(d: Detail) -> bool:
        drawing = itertools.takewhile(lambda f: not frames.in_sampler((f,)), facts.run.stack(d.stack))
        return any(f.function.rpartition(".")[2] in _READS for f in drawing)

    mine = sum(d.ns for d in inside if reads(d) or _of_file(facts, d))
    return mine >= limit("half_share") * sum(d.ns for d in inside)


def _of_file(facts: Facts, d: Detail) -> bool:
    return d.state == "blocked" and waiting_kind(call_of([d], facts.machine)) in ("file", "socket")


def _follows_training(facts: Facts, inside: Sequence[Detail], top: Spot | None) -> bool:
    """By its name, or as the loop calls the sampler's class elsewhere, such as to give it losses."""
    names = {f.function for d in inside for f in _drawing(facts, d)}
    if any(_MINES.search(name) for name in names):
        return True
    if top is None or not (kind := top.frame.function.partition(".")[0]) or kind == top.frame.function:
        return False
    return any(
        f.file == top.frame.file and f.function.startswith(f"{kind}.")
        for d in facts.samples(phases=["forward", "backward", "optimizer", "other"])
        for f in facts.run.stack(d.stack)
    )


def _drawing(facts: Facts, d: Detail) -> Iterator[frames.FrameLike]:
    """The user's frames of the sampler."""
    stack = facts.run.stack(d.stack)
    below = itertools.takewhile(lambda f: not frames.in_sampler((f,)), stack)
    return (f for f in below if frames.is_users(f, stack))


def _torchs_own(facts: Facts, inside: Sequence[Detail]) -> str:
    """The class of a sampler that is not the user's, as far as its frames tell; CPython 3.10's tell no class."""
    names: dict[str, int] = {}
    for d in inside:
        name = next(filter(None, map(_sampler, facts.run.stack(d.stack))), "")
        names[name] = names.get(name, 0) + d.ns
    return max(names, key=lambda name: names[name], default="") or "the sampler"


def _sampler(frame: frames.FrameLike) -> str:
    kind, _, method = frame.function.rpartition(".")
    return kind if method == "__iter__" and kind.endswith("Sampler") else ""


def _below_loader(stack: Sequence[frames.FrameLike]) -> bool:
    """Whether its innermost frame of the user's is the sampler's, and not the loop's."""
    at = next((i for i, f in enumerate(stack) if frames.is_users(f, stack)), len(stack))
    return frames.in_sampler(stack[at:])
