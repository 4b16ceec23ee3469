"""TP510: collectives run while the device computes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import gpu
from trainperf.findings.facts import ms, plural
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.rule import DeviceRule
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.gpu import Gpu


class ExposedCommunication(DeviceRule):
    id = "TP510"
    slug = "exposed-communication"
    limits = Limits(limit("warn_share"), limit("critical_share"))

    def look(self, facts: Facts, device: Gpu) -> Outcome:
        totals = device.device.totals
        exposed = int(totals.exposed_collective_ns)
        idle = facts.ledger.idle(["collective"])
        severity = facts.grade(exposed + sum(idle.values()), self.limits)
        if severity is None:
            return None
        names = [k for k in device.kernels if k.kind == "collective"]
        top = names[0].name.lower() if names else ""
        reduces = not top or "allreduce" in top or "all_reduce" in top or "reducescatter" in top
        hidden = 1 - exposed / totals.collective_ns if totals.collective_ns else 0.0
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="collective",
            claims=facts.ledger.cells("collective"),
            idle=idle,
            exposed_ns=exposed,
            title=f"{device.name} waits for other ranks: communication that no computation hides",
            affected=facts.affected_by(device.column(["collective"]) + device.device.steps.exposed_collective_ns),
            confidence=facts.confidence(doubts=device.doubts),
            evidence=(
                f"collectives run {ms(totals.collective_ns / facts.steps)} a step, "
                f"{ms(exposed / facts.steps)} of it with nothing else on {device.name} ({hidden:.0%} is hidden)",
                *(
                    f"{gpu.short_kernel(k.name)}: {plural(k.count, 'time')}, {ms(k.ns / k.count)} each"
                    for k in names[:2]
                ),
                "a collective also waits for the slowest rank: compare the ranks' runs before you blame the network",
            ),
            who=[gpu.short_kernel(k.name) for k in names[:1]],
            why="gradients are exchanged when the computation that could hide it is over"
            if reduces
            else f"nothing else is computed while {gpu.short_kernel(names[0].name)} runs",
            fix="# exchange less often (no_sync() while gradients accumulate), or in other pieces:\n"
            "DistributedDataParallel(model, bucket_cap_mb=50, gradient_as_bucket_view=True)"
            if reduces
            else "# start it as soon as its input is there, and wait where the result is used:\n"
            "work = dist.all_to_all_single(output, input, async_op=True); ...; work.wait()",
            will_not_help="a faster GPU: it would wait longer",
        )
