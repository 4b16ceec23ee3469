"""TP515: the first steps wait for the device's own start: kernels are loaded and tuned, memory is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import loaders
from trainperf.findings.facts import ms
from trainperf.findings.model import Cell, Limits, Outcome
from trainperf.findings.rule import DeviceRule
from trainperf.findings.text import NOTHING
from trainperf.findings.thresholds import limit
from trainperf.findings.vocabulary import CAUSES

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.gpu import Gpu

_SAID = {
    "module_load": "loading kernels",
    "cuda_alloc": "taking memory",
    "gpu_wait": "waiting for the device, as when kernels are tried out",
    "launch": "in native code and in the calls that launch",
    "unknown": "of no cause that was seen: what libraries do at their first use is their own",
}


class GpuWarmUp(DeviceRule):
    id = "TP515"
    slug = "gpu-warm-up"
    limits = Limits(limit("compile_share"), None)

    def look(self, facts: Facts, device: Gpu) -> Outcome:
        warm_up = device.warm_up
        if warm_up is None:
            return None
        claims: dict[Cell, int] = {}
        for cause, ns in warm_up.host.items():
            # At most what nobody has told: torch.compile's own warm-up is in the same steps.
            claims |= loaders.spread(facts.ledger.cells(cause), ns)
        cost = sum(claims.values())
        if facts.share(cost) < self.limits.warn:
            return None
        whole = device.warm_up_idle(CAUSES)
        left = facts.ledger.idle(warm_up.host)
        first = "the first step" if warm_up.steps == 1 else f"the first {warm_up.steps} steps"
        said = _largest_first(warm_up.host)
        return facts.finding(
            (self.id, self.slug),
            severity="info",
            cause=facts.main_cause(claims),
            claims=claims,
            idle={cause: min(ns, device.warm_up_idle([cause])) for cause, ns in left.items()},
            by_device=False,
            title=f"{device.name} warmed up in {first}",
            affected=warm_up.steps,
            confidence=facts.confidence(),
            evidence=(
                f"{first} took {ms(warm_up.wall_ns)}, as long as {warm_up.wall_ns / warm_up.later_ns:,.0f} later ones",
                *(f"{ms(ns)} of it {_SAID[cause]}" for cause, ns in said.items()),
                f"{ms(warm_up.native_left_ns)} more of it in native code, not counted here: so much loading does not "
                "explain it"
                if warm_up.native_left_ns >= limit("compile_share") * cost
                else "",
                f"{device.name} idled {ms(whole)} meanwhile",
            ),
            who=(facts.step_thread_name,),
            why=f"{first} took {ms(cost)} more than later ones do, of what a device's first use is made of",
            fix=f"{NOTHING}; of convolutions torch.backends.cudnn.benchmark = False tries out fewer kernels"
            if "gpu_wait" in said
            else NOTHING,
            fix_share=0.0,
            will_not_help="a faster GPU, a larger batch, more DataLoader workers",
        )


def _largest_first(host: dict[str, int]) -> dict[str, int]:
    """Of the causes those that are a twentieth of all, at least."""
    least = limit("compile_share") * sum(host.values())
    return dict(sorted(((c, ns) for c, ns in host.items() if ns and ns >= least), key=lambda x: -x[1]))
