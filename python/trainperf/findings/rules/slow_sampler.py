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
        inside = loaders.sampler_samples(facts)
        rest = sum(facts.cells("data_wait", ["fetch"]).values()) - cost
        seen = sum(d.count for d in inside)
        spots = facts.spots(inside, keep=_below_loader)
        top = spots[0] if spots else None
        main = max(facts.run.loaders.values(), key=lambda v: v.fetches.wall_ns, default=None)
        named = main.description.get("batch_sampler") or main.description.get("sampler") if main is not None else ""
        name = facts.label(top) if top is not None else str(named or "the sampler")
        workers = loaders.num_workers(main) if main is not None else 0
        waits = claims.get(("fetch", "blocked"), 0) >= limit("half_share") * cost
        call = call_of(inside, facts.machine) if waits else ""
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


def _below_loader(stack: Sequence[frames.FrameLike]) -> bool:
    """Whether its innermost frame of the user's is the sampler's, and not the loop's."""
    at = next((i for i, f in enumerate(stack) if frames.is_users(f, stack)), len(stack))
    return frames.in_sampler(stack[at:])
