"""TP101: the loop waits for data that is made on the step thread itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import loaders
from trainperf.findings.cpu_use import usable_cpus
from trainperf.findings.facts import plural
from trainperf.findings.fetch_advice import advice
from trainperf.findings.fetching import Fetching
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts


class DataStarved:
    id = "TP101"
    slug = "data-starved"
    limits = Limits(limit("warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("hook_dataloader",)

    def check(self, facts: Facts) -> Outcome:
        drawn = loaders.told_sampler(facts)  # as TP106
        dropped = loaders.told_skipped(facts)
        cells = {
            cell: max(0, ns - drawn.get(cell, 0) - dropped.get(cell, 0))
            for cell, ns in facts.cells("data_wait", ["fetch"]).items()
        }
        in_process = any(loaders.num_workers(v) == 0 for v in facts.run.loaders.values())
        restarts = facts.restarts  # told as TP104
        begun = restarts.in_process_ns - (restarts.sampled_ns if drawn else 0) if restarts is not None else 0
        if facts.run.loaders and not in_process:
            return None  # all of it is the workers'
        if facts.of_trace and not facts.run.loaders:
            return None  # who makes the batches is not known
        with_workers = loaders.with_workers_of(facts, without_sampler=bool(drawn))
        elsewhere = sum(v.fetches.wall_ns + v.fetches.first_wall_ns - v.fetches.gil_wait_ns for v in with_workers)
        claims = loaders.spread(cells, sum(cells.values()) - max(0, elsewhere) - begun)
        cost = sum(claims.values())
        severity = facts.grade(cost, self.limits)
        if severity is None:
            return None
        own = [v for v in facts.run.loaders.values() if loaders.num_workers(v) == 0 and v.fetches.count]
        batches = max(facts.steps, sum(v.fetches.count for v in own))  # several a step, where gradients are accumulated
        small = cost / batches < 1e6 * limit("in_process_min_ms")
        main = max(own, key=lambda v: v.fetches.wall_ns, default=None)
        if small and facts.loop_share(cost) < limit("in_process_dominant_share"):
            severity = "info"
        fetching = Fetching.of(facts, cells, without_sampler=bool(begun or drawn))
        todo = advice(facts, own, fetching, cost, small=small)
        name = loaders.dataset_name(main) if main is not None else "the data"
        usable = usable_cpus(facts.run)
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="data_wait",
            claims=claims,
            title="data loading runs in the training process",
            affected=todo.affected,
            confidence=fetching.confidence(facts),
            evidence=(
                f"fetching takes {facts.of_step(cost)}" + ("" if facts.of_trace else f"; {_on_cpu_or_not(fetching)}"),
                *fetching.evidence(facts),
                f"num_workers=0, {plural(usable, 'CPU')} usable"
                if main is not None and usable and (todo.will_not_help or fetching.for_threads)
                else "",
            ),
            who=(facts.step_thread_name, fetching.waited_for.name if fetching.waited_for is not None else ""),
            where=facts.where(fetching.top) or (loaders.dataset_place(main, facts) if main is not None else ""),
            why=fetching.why(facts, name),
            fix=todo.fix,
            fix_share=todo.share,
            will_not_help=todo.will_not_help,
        )


def _on_cpu_or_not(fetching: Fetching) -> str:
    blocked = f"{fetching.blocked:.0%} blocked" + (f" in {fetching.call}" if fetching.call else "")
    return f"{1 - fetching.blocked:.0%} of it on the CPU, {blocked}"
