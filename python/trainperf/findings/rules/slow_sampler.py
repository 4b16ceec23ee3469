"""TP106: what draws the batches' indices takes long: it runs on the training thread, with workers too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import frames, loaders
from trainperf.findings.facts import ms, plural
from trainperf.findings.model import Outcome
from trainperf.findings.syscalls import call_of
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainperf.findings.facts import Facts
    from trainperf.runfile import Detail


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
            fix="# take the wait out of the sampler: draw a whole epoch's indices at once in __iter__"
            if waits
            else "# draw a whole epoch's indices at once in __iter__, by torch or NumPy, and yield slices of them",
            will_not_help="more workers or a larger prefetch_factor: the sampler runs in the training process",
        )


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
