"""TP501: the device idles while the host does something that no other finding tells of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import gpu
from trainperf.findings.facts import ms
from trainperf.findings.model import Abstained, Limits, Outcome
from trainperf.findings.rule import DeviceRule
from trainperf.findings.thresholds import limit
from trainperf.findings.vocabulary import CAUSES

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.gpu import Gpu

# What the host does meanwhile, and what to do about it.
_DOING = {
    "data_wait": ("fetches its batch", "make batches ahead: DataLoader workers"),
    "h2d_copy": ("copies to it", "copy from pinned memory, with non_blocking=True"),
    "gpu_wait": ("has waited for it", "wait for it less often: .item(), .cpu(), synchronize()"),
    "launch": ("prepares its next kernels", "torch.compile(model), or larger batches"),
    "cuda_alloc": ("allocates memory", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
    "module_load": ("loads kernels", "few shapes; a warm-up before the run"),
    "collective": ("waits for other ranks", "compare the ranks' runs: which one is late?"),
    "gil_wait": ("waits for the GIL", "find the thread that holds it"),
    "gc": ("collects garbage", "gc.freeze() after the model is built"),
    "checkpoint": ("writes a checkpoint", "write it from a thread"),
    "validation": ("validates", "validate less often"),
    "logging": ("writes its log", "log less often, or from a thread"),
    "descheduled": ("waits for a CPU", "fewer threads or workers"),
    "throttled": ("is stopped by its CPU quota", "a higher quota, or fewer threads"),
    "blocked_io": ("is blocked: a lock, a file, a socket, a sleep", "do that in another thread"),
    "python": ("runs Python", "do less of it between launches, or launch more at once"),
    "compute": ("computes on the CPU", "move that to the device, or to a worker"),
}


class GpuIdle(DeviceRule):
    id = "TP501"
    slug = "gpu-idle"
    limits = Limits(limit("warn_share"), limit("critical_share"))

    def look(self, facts: Facts, device: Gpu) -> Outcome:
        left = facts.ledger.idle(cause for cause in CAUSES if cause != "unknown")
        cause = max(left, key=lambda c: left[c], default="")
        severity = facts.grade(left[cause], self.limits) if cause else None
        if severity is None:
            unseen = facts.share(device.unseen_ns)
            if unseen >= limit("unknown_share"):
                why = f"{device.name} idles {unseen:.0%} of the time {gpu.NOT_SEEN}"
                return Abstained(self.id, self.slug, why)
            return None
        ns = left[cause]
        doing, advice = _DOING[cause]
        claims = facts.ledger.cells(cause)
        spots = facts.spots(facts.samples(phases={phase for phase, _ in claims}))
        top = spots[0] if spots and spots[0].samples >= limit("min_samples") else None
        others = [f"{c} {ms(n / facts.steps)}" for c, n in sorted(left.items(), key=lambda kv: -kv[1]) if c != cause]
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause=cause,
            claims=claims,
            idle={cause: ns},
            title=f"{device.name} has no work while the training thread {doing}",
            affected=facts.affected_by(device.column([cause])),
            confidence=facts.confidence(doubts=device.doubts),
            evidence=(
                f"{device.name} idled {ms(ns / facts.steps)} a step for {cause}: "
                f"{ns / device.idle_ns:.0%} of its idle time",
                f"the training thread spends {facts.of_step(sum(claims.values()))} in it" if claims else "",
                f"{top.share:.0%} of its samples then are in {facts.label(top)}" if top is not None else "",
                f"besides, a step: {', '.join(others[:3])}" if others else "",
            ),
            who=(facts.step_thread_name,),
            where=facts.where(top),
            why=f"{facts.step_thread_name} {doing}, and nothing is queued meanwhile",
            fix=f"# {advice}",
            will_not_help="a faster GPU: it would idle longer",
        )
