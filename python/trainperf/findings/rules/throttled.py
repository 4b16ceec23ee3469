"""TP308: the container's CPU quota stops the process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import cpu_room
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.cpu_room import Quota
    from trainperf.findings.facts import Facts


class Throttled:
    id = "TP308"
    slug = "throttled"
    limits = Limits(limit("rare_warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("throttling",)

    def check(self, facts: Facts) -> Outcome:
        claims = facts.cells("throttled")
        cost = sum(claims.values())
        severity = facts.grade(cost, self.limits, machine=True)
        if severity is None:
            return None
        host = facts.run.host
        seconds = (host[-1].at_ns - host[0].at_ns) / 1e9 if len(host) > 1 else 0.0
        used = (host[-1].process_cpu_ns - host[0].process_cpu_ns) / 1e9 / seconds if seconds else 0.0
        threads = facts.run.meta.get("torch_threads", "")
        quota = cpu_room.quota(facts.run)
        room = max(1, int(quota.cpus)) if quota is not None else max(1, round(used))
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="throttled",
            claims=claims,
            title="the container's CPU quota stops the training",
            affected=facts.affected("throttled"),
            confidence=facts.confidence(),
            evidence=(
                f"{facts.of_step(cost)} the kernel keeps the process off the CPU",
                f"the process gets {used:.1f} CPUs" + (f"; torch uses {threads} threads" if threads else "")
                if used
                else "",
                _told(facts, quota) if quota is not None else "",
            ),
            who=(facts.step_thread_name,),
            why="the cgroup's quota is used up, and all threads wait for its next period",
            fix=f"torch.set_num_threads({room})  # or raise the limit: docker run --cpus, resources.limits.cpu",
            will_not_help="more workers or more threads: they use the quota up sooner",
        )


def _told(facts: Facts, quota: Quota) -> str:
    text = f"the quota is {quota.cpus:g} CPU{'' if quota.cpus == 1 else 's'}"
    if quota.before is None:
        return text
    steps = cpu_room.steps_before(facts.run, quota.at_ns)
    before = f"{quota.before:g}" if quota.before else "there was none"
    return f"{text} since step {steps:,}; before, {before}"
