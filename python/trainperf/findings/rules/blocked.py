"""TP301: the training thread sleeps in the loop: a lock, a queue, a file, a socket, a child process, time.sleep."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainperf.findings import loaders, pools, render
from trainperf.findings.asleep import EMPTY_QUEUES, OF_RANKS, Asleep
from trainperf.findings.cpu_use import usable_cpus
from trainperf.findings.exchange import Exchange
from trainperf.findings.facts import Affected, ms, plural
from trainperf.findings.model import Limits, Outcome, Said
from trainperf.findings.syscalls import opens, writes
from trainperf.findings.thresholds import limit
from trainperf.findings.waiting import FIXES, LATE_RANK

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.runfile import Loader

# What looks without waiting, of what may wait with a timeout.
_LOOKS = {
    "lock": "acquire(blocking=False)",
    "queue": "get_nowait()",
    "full queue": "put_nowait()",
    "timed signal": "is_set(), of a Condition by its own test,",
    "thread end": "is_alive()",
    "future": "done()",
}

_NOW_AND_THEN = (
    "# let its producer run further ahead: a larger queue evens out what takes long now and then",
    "a larger batch, a faster GPU: the producer sets the pace",
)


_FIND_OUT = "# run longer: then it is told which call it is, to be moved out of the loop or into a thread"


def _of_background(facts: Facts, background: Sequence[Loader], cost: int) -> str:
    """Faster loaders that other threads read; `cost`: of the loop, which waits for them."""
    main = max(background, key=lambda v: v.fetches.off_thread_wall_ns)
    have = loaders.num_workers(main)
    if not have:
        return f"DataLoader(..., num_workers={max(2, len(background) * 2)})  # the background loader is too slow"
    cpus, view = usable_cpus(facts.run), loaders.worker_view(main)
    if view.computes and 0 < cpus <= have:
        return (
            f"# make one sample of {loaders.dataset_name(main)} cheaper: the background loader's workers have all CPUs"
        )
    need = max(have + 1, math.ceil(have * facts.wall_ns / max(facts.wall_ns - cost, facts.wall_ns // 20)))
    want = min(need, max(cpus, have + 1)) if view.computes and cpus else need
    note = Said("as_is", {"text": f"the background loader's {plural(have, 'worker')} are too slow"})
    return render.text(facts, loaders.with_workers(main, want, notes=[note]))


class Blocked:
    id = "TP301"
    slug = "blocked"
    limits = Limits(limit("warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ()

    def check(self, facts: Facts) -> Outcome:
        claims = facts.ledger.cells("blocked_io")
        cost = sum(claims.values())
        severity = facts.grade(cost, self.limits)
        if severity is None:
            return None
        # Of a part of the cause it is not known which steps have it.
        whole = cost >= limit("held_share") * facts.cause_ns("blocked_io")
        affected = facts.affected("blocked_io") if whole else Affected(facts.steps, 1.0)
        in_all = affected.steps == facts.steps
        asleep = Asleep.of(facts, claims, affected)
        now_and_then = not in_all and cost < 1e9 * limit("now_and_then_min_s")
        if now_and_then or (asleep.may_read_code(facts) and whole and facts.is_in_first_step("blocked_io")):
            severity = "info"
        if severity == "critical" and asleep.kind in OF_RANKS.values() and not in_all:
            severity = "warning"  # gradients are accumulated already: the exchange is in few of the steps
        where = "" if asleep.kind in (*OF_RANKS.values(), "event loop") else " in the loop"
        pool = _pool(facts, asleep, affected)
        fix, wont = _advice(facts, asleep, affected, pool, cost)
        if asleep.fed_by:
            pool = None  # these loaders are who it waits for
        exchange = None
        if asleep.kind in (*OF_RANKS.values(), "collective"):
            exchange = Exchange.of(facts.run)
            alone = () if facts.standing else (LATE_RANK,)
            less = exchange.ddp_fixes(device=facts.run.feeds_device, accumulates=not in_all)
            by_ddp = asleep.kind != "collective" or exchange.bucket
            fix = "\n".join((*alone, fix, *(less if by_ddp else ())))
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="blocked_io",
            claims=claims,
            title=f"the training thread {asleep.words}{where}",
            affected=affected,
            confidence=asleep.confidence(facts),
            evidence=(
                f"{facts.of_step(cost)} it is asleep, not waiting for the GIL"
                if in_all
                else f"{affected.steps:,} of {facts.steps:,} steps, {ms(cost * affected.share / affected.steps)} each: "
                "asleep, not waiting for the GIL",
                *asleep.evidence(facts),
                pool.evidence if pool is not None else "",
                exchange.evidence(affected.steps, cost) if exchange is not None else "",
            ),
            who=(facts.step_thread_name, asleep.who),
            where=facts.where(asleep.top) or asleep.feeds_at(facts),
            why=asleep.why(facts) + (f"; {pool.why}" if pool is not None and pool.why else ""),
            fix=fix,
            fix_share=asleep.spots[0].share if facts.second(asleep.spots) is not None else 1.0,
            will_not_help=wont,
            finds_out=asleep.kind in OF_RANKS.values() or (asleep.kind == "collective" and not facts.standing),
        )


def _empties_now_and_then(facts: Facts, asleep: Asleep, affected: Affected) -> bool:
    return asleep.kind in EMPTY_QUEUES and affected.steps < facts.steps


def _pool(facts: Facts, asleep: Asleep, affected: Affected) -> pools.Advice | None:
    """Of a wait for what threads or processes make: who these are is all that can be told."""
    generic = bool(FIXES[asleep.kind][0]) or _empties_now_and_then(facts, asleep, affected)
    return None if asleep.handed is None or generic else pools.advice(facts, asleep.handed, asleep.beside)


def _advice(facts: Facts, asleep: Asleep, affected: Affected, pool: pools.Advice | None, cost: int) -> tuple[str, str]:
    """What to do, and what will not help."""
    fix, wont = FIXES[asleep.kind]
    if _empties_now_and_then(facts, asleep, affected):
        fix, wont = _NOW_AND_THEN
    elif asleep.kind == "file" and writes(asleep.call):
        fix, wont = FIXES["written file"]
    elif asleep.kind == "file" and opens(asleep.call):
        fix, wont = FIXES["opened file"]
    elif pool is not None:
        fix, wont = pool.fix, "; ".join(w for w in (pool.will_not_help, wont) if w)
    elif asleep.kind == "other" and asleep.top is None:
        fix = _FIND_OUT
    if asleep.fed_by:
        return _of_background(facts, asleep.fed_by, cost), wont
    if asleep.timed and asleep.kind in _LOOKS:
        look = f"a shorter one, or look by {_LOOKS[asleep.kind]} and go on"
        fix = f"# if its timeout ends the wait: {look}\n{fix}"
    return fix, wont
