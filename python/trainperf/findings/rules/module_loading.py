"""TP509: kernels are loaded or compiled by the driver while steps run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings.facts import ms, plural
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.rule import DeviceRule
from trainperf.findings.text import NOTHING
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.gpu import Gpu


class ModuleLoading(DeviceRule):
    id = "TP509"
    slug = "module-loading"
    limits = Limits(limit("rare_warn_share"), limit("critical_share"))
    needs_calls = True

    def look(self, facts: Facts, device: Gpu) -> Outcome:
        idle = facts.ledger.idle(["module_load"])
        cost = sum(idle.values())
        severity = facts.grade(cost, self.limits)
        if severity is None:
            return None
        lasts = device.late_share(device.column(["module_load"])) >= self.limits.warn
        loads, jits = device.calls("module_load"), device.calls("jit")
        spots = facts.call_spots("module_load", "jit")
        top = spots[0] if spots else None
        doing = "compiled" if jits.ns > loads.ns else "loaded"
        return facts.finding(
            (self.id, self.slug),
            severity=severity if lasts else "info",
            cause="module_load",
            claims=facts.ledger.cells("module_load"),
            idle=idle,
            title=f"kernels are {doing} again and again" if lasts else f"kernels were {doing} at the run's start",
            affected=facts.affected_by(device.column(["module_load"])),
            confidence=facts.confidence(doubts=device.doubts),
            evidence=(
                f"{device.name} idled {ms(cost / facts.steps)} a step for it",
                f"{plural(loads.count, 'module')} loaded ({ms(loads.ns)}), {jits.count} compiled ({ms(jits.ns)})",
                "" if lasts else "the run's second half has little of it: a warm-up",
            ),
            who=(facts.step_thread_name,),
            where=facts.where(top),
            why=f"the driver {'compiles' if doing == 'compiled' else 'loads'} kernels that were not used before"
            + (f", for {facts.label(top)}" if top is not None else ""),
            fix="# few shapes: pad batches; compile with dynamic=True; torch.backends.cudnn.benchmark = False"
            if lasts
            else f"{NOTHING}; a warm-up before it: CUDA_MODULE_LOADING=EAGER",
            fix_share=1.0 if lasts else 0.0,
            will_not_help="a larger batch, more DataLoader workers",
        )
