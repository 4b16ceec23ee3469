"""TP305: writing logs or metrics takes a notable part of the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import loaders
from trainperf.findings.facts import ms, plural
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.syscalls import call_of, waiting_kind
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.runfile import Detail

_TO_A_THREAD = (
    "# log every N steps, or hand records to a thread:\n"
    "q = queue.Queue(); logging.handlers.QueueListener(q, handler).start()\n"
    "logger.handlers = [logging.handlers.QueueHandler(q)]"
)
# QueueHandler formats a record before it hands it over; a thread that formats would take the GIL from training.
_LESS = "# log every N steps, and less of it: a few numbers instead of whole tensors\nif step % 50 == 0: ..."


class Logging:
    id = "TP305"
    slug = "logging"
    limits = Limits(limit("rare_warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("hook_logging",)

    def check(self, facts: Facts) -> Outcome:
        whole = facts.ledger.cells("logging")  # what loggers are told of is not told once more, nor are our figures
        claims = loaders.spread(whole, sum(whole.values()) - facts.figures_ns)
        cost = sum(claims.values())
        severity = facts.grade(cost, self.limits)
        if severity is None:
            return None
        total = facts.run.span_total("logging")
        spots = facts.spots(facts.samples(phases=["logging"]))
        seen = sum(s.samples for s in spots)
        top = spots[0] if spots else None
        blocked = sum(ns for (_, m), ns in claims.items() if m == "blocked") / cost
        waits = blocked >= limit("half_share")
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="logging",
            claims=claims,
            title="writing logs and metrics holds up the loop",
            affected=facts.affected("logging"),
            confidence=facts.confidence(samples=seen),
            evidence=(
                f"{facts.of_step(cost)} the training thread writes logs",
                # Shorter ones have no span, but are part of the cost.
                f"{plural(total.count, 'log call')} of 1 ms or more "
                f"in {min(facts.steps, total.steps):,} of {facts.steps:,} steps, {ms(total.ns / total.count)} each"
                if total.count
                else "no single log call takes 1 ms: there are many of them",
                f"{blocked:.0%} of it blocked (file, terminal, network, a lock), the rest on the CPU",
                f"{top.share:.0%} of {plural(seen, 'sample')} in {facts.label(top)}" if top is not None else "",
                _for_the_lock(facts),
            ),
            who=(facts.step_thread_name,),
            where=facts.where(top),
            why=f"{facts.step_thread_name} writes its log itself"
            + (f", in {facts.label(top)}" if top is not None else ""),
            fix=_TO_A_THREAD if waits else _LESS,
            will_not_help="more workers, a larger model batch"
            + ("" if waits else "; a faster disk, a thread: most of it is formatting, on the CPU"),
        )


def _for_the_lock(facts: Facts) -> str:
    """That the training thread waits for a handler that another thread is in, where that is a notable part."""
    asleep = facts.samples(phases=["logging"], states=["blocked"])
    locked = [d for d in asleep if waiting_kind(call_of([d], facts.machine)) == "lock"]
    ns, every = sum(d.ns for d in locked), sum(d.ns for d in facts.samples(phases=["logging"]))
    if sum(d.count for d in locked) < limit("min_samples") or ns < limit("felt_share") * every:
        return ""
    by_thread: dict[int, list[Detail]] = {}
    for d in facts.run.detail_totals("beside"):
        if d.thread is not None and d.phase == "logging":
            by_thread.setdefault(d.thread.id, []).append(d)
    most = max(by_thread.values(), key=lambda group: sum(d.ns for d in group), default=[])
    spots = facts.spots(most)
    said = f"{ns / every:.0%} of it waits for a lock, such as a handler's that another thread writes by"
    if not spots or sum(d.ns for d in most) < limit("most_share") * ns:
        return said
    return f"{said}: meanwhile {facts.thread_name(most[0].thread)} is in {facts.label(spots[0])}"
