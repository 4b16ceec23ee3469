"""TP102: worker processes cannot make batches as fast as the loop uses them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from trainperf.findings import cpus as cpu_load
from trainperf.findings import loaders
from trainperf.findings.cpu_use import usable_cpus
from trainperf.findings.facts import ms, plural
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.thresholds import limit
from trainperf.findings.unlike_workers import in_any_order, unlike_work

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.model import Confidence
    from trainperf.runfile import Loader


# What will not help where the queue is empty: always, or only before the few batches that take long.
_EMPTY = {
    False: "pin_memory, or a larger prefetch_factor: the queue is empty",
    True: "pin_memory: the wait is for a batch to be made",
}
_UNEVEN = "# make the batches of {} cost alike (mix long and short samples), and its long ones cheaper"


def _call(loader: Loader, workers: int, ahead: int) -> str:
    """`ahead`: the batches from one that takes long to the next, which can be made meanwhile; 0: all take alike."""
    if not ahead:
        return f"DataLoader(..., num_workers={workers})"
    prefetched = loader.description.get("prefetch_factor")
    least = 2 * (prefetched if isinstance(prefetched, int) else 2)
    return f"DataLoader(..., num_workers={workers}, prefetch_factor={max(least, math.ceil(ahead / workers))})"


def _fetches(found: Sequence[Loader], late: Sequence[Loader], slow_ns: float) -> Iterator[str]:
    """Of `late` also what the fetches took that found a batch ready."""
    starved, waited = sum(map(loaders.starved_count, found)), sum(map(loaders.starved_ns, found))
    total = starved + sum(map(loaders.ready_count, found))
    if starved and sum(v.fetches.ready.get(-1, 0) for v in found) == starved:
        yield f"{total} fetches took {ms(waited / starved)} each; whether a batch was ready was not seen"
    elif starved:
        yield f"{starved} of {total} fetches found no batch ready, and waited {ms(waited / starved)} each"
    ready, took = sum(map(loaders.ready_count, late)), sum(map(loaders.ready_ns, late))
    if ready:
        computes = not starved and all(loaders.worker_view(v).computes for v in late)
        just = ": it had only just been made" if computes or took >= slow_ns * ready else ""
        yield f"{ready} of {total} fetches found a batch ready, and took {ms(took / ready)} each{just}"


def _own_cpus(facts: Facts) -> float:
    """What this process uses beside its workers; one CPU where it was not read."""
    load = cpu_load.load(facts)
    return load.own if load.known else 1.0


def _others_compete(facts: Facts) -> bool:
    """Processes that are none of this run's."""
    load = cpu_load.load(facts)
    return load.known and load.others >= limit("competing_cpus")


class WorkersTooSlow:
    id = "TP102"
    slug = "workers-too-slow"
    limits = Limits(limit("warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("hook_dataloader",)

    def check(self, facts: Facts) -> Outcome:
        found = loaders.with_workers_of(facts)
        slow = loaders.slow_delivery_ns(facts)
        late = [v for v in found if loaders.mostly_starved(v, slow)]
        starved = sum(loaders.starved_ns(v) + (loaders.ready_ns(v) if v in late else 0) for v in found)
        count = sum(loaders.starved_count(v) + (loaders.ready_count(v) if v in late else 0) for v in found)
        if not count:
            return None
        gil = sum(v.fetches.gil_wait_ns for v in found if v in late)
        claims = loaders.spread(loaders.workers_cells(facts), starved - min(gil, starved))
        cost = sum(claims.values())
        severity = facts.grade(cost, self.limits)
        if severity is None:
            return None
        main = max(found, key=loaders.starved_ns)
        have, name = loaders.num_workers(main), loaders.dataset_name(main)
        alike = [
            v for v in found if v is not main and (loaders.num_workers(v), loaders.dataset_name(v)) == (have, name)
        ]
        view = loaders.worker_view(main, *alike)
        unlike = unlike_work(facts, main, alike)
        cpus = usable_cpus(facts.run)
        # Workers make one batch per (step / have): to hide the wait they must be faster by step / (step - wait).
        need = math.ceil(have * facts.wall_ns / max(facts.wall_ns - cost, facts.wall_ns // 20))
        cpu_bound = view.computes
        one = have == 1 and bool(main.description.get("num_workers_known", True))
        compute = "computes" if one else "compute"
        total = sum(loaders.starved_count(v) + loaders.ready_count(v) for v in found)
        few = sum(map(loaders.starved_count, found))
        waited = sum(map(loaders.starved_ns, found))
        # Few batches take long: while the loop uses the others, they can be made ahead.
        uneven = 0 < 2 * few < total and waited >= limit("held_share") * starved
        wider = max(need, have + 1)
        more = loaders.with_workers(main, wider, _call(main, wider, total // few if uneven else 0))
        made = " and ".join((f"one sample of {name}", *loaders.collate_names(main, facts)))
        training = _own_cpus(facts)
        if unlike is not None:
            state, fix, wont = "", unlike.fix, unlike.will_not_help
        elif not view.told:
            verb, whether = ("is", "it computes or waits") if one else ("are", "they compute or wait")
            unseen = "is in no trace" if facts.of_trace else "was not seen for long enough"
            state = f"{verb} too slow; whether {whether} {unseen}"
            fix = f"# run longer to see whether the workers compute or wait\n# if they wait, or CPUs are free:\n{more}"
            if uneven:
                fix = f"# let the workers run further ahead; if they wait, or CPUs are free, also more of them:\n{more}"
            wont = _EMPTY[uneven]
        elif view.one_computes:
            state = f"wait for the busiest of them, which computes all the time (on the CPU {view.slowest:.0%}, all of "
            state += f"them {view.cpu_share:.0%} on average): batches are passed on in order"
            fix = f"{_UNEVEN.format(name)}\n{in_any_order(facts, main)}".rstrip()
            wont = _EMPTY[uneven]
        elif view.waits:
            state = (
                f"{'waits itself' if one else 'wait themselves'} (on the CPU only {view.cpu_share:.0%} of the time: "
            )
            state += "storage, network or a lock)"
            fix = f"{more}  # their waits overlap"
            further = "" if uneven else ", or a larger prefetch_factor"
            wont = f"cheaper transforms{further}: the workers do not compute, they wait"
        elif not cpu_bound and view.cpu_share * (have + 1) + training > (cpus or math.inf):
            state = f"{compute} for {view.cpu_share:.0%} of the time, and there is no CPU for more of them: "
            state += f"{plural(cpus, 'CPU')} for {plural(have, 'worker')} and the training"
            fix = f"# make {made} cheaper: decode ahead of training, or on the device"
            wont = f"more workers: they would wait for the same {plural(cpus, 'CPU')}"
        elif not cpu_bound:
            state = f"{compute} for {view.cpu_share:.0%} of the time, and {'waits' if one else 'wait'} for the rest "
            state += "(for storage, network, a lock or a CPU, or to be asked for more)"
            want = min(wider, int((cpus - training) / view.cpu_share)) if cpus else wider
            fix = loaders.with_workers(main, want, _call(main, want, total // few if uneven else 0))
            wont = _EMPTY[uneven or 2 * few < total]
        elif view.short_of_cpu and _others_compete(facts):
            state = f"{compute}, but {'gets' if one else 'get'} a CPU only {view.cpu_share:.0%} of the time: "
            state += "the CPUs are busy with others"
            fewer = "fewer torch threads (torch.set_num_threads), " if facts.torch_threads > 1 else ""
            fix = f"# free the CPUs: {fewer}stop what else runs"
            wont = "more workers: they would wait for the same CPUs"
        elif cpus and cpus <= (have + 1 if view.short_of_cpu else have):
            when = "whenever they get one" if view.short_of_cpu else "all the time"
            state = f"{compute} {when} (on the CPU {view.cpu_share:.0%}), on {plural(cpus, 'CPU')}"
            fix = f"# make {made} cheaper: decode ahead of training, or on the device"
            wont = f"more workers: {plural(cpus, 'CPU')} for {plural(have, 'worker')} and the training are all in use"
        elif view.short_of_cpu:
            state = f"{compute}, but {'gets' if one else 'get'} a CPU only {view.cpu_share:.0%} of the time"
            fix = "# see which CPUs they may use (taskset, a container's cpuset), and what else runs there"
            wont = "more workers: they would wait for the same CPUs"
        else:
            state = f"{compute} all the time (on the CPU {view.cpu_share:.0%})"
            want = max(min(need, cpus - 1) if cpus else need, have + 1)
            here = f"{cpus} CPUs here" if cpus else ""
            fix = loaders.with_workers(main, want, _call(main, want, total // few if uneven else 0), here)
            wont = _EMPTY[uneven]
        if not main.description.get("num_workers_known", True):
            fix = "DataLoader(..., num_workers=...)  # more than it has now"
        what = "are CPU-bound" if cpu_bound else "wait for something" if view.waits else "are too slow"
        saves = 1 - view.cpu_share / view.slowest if view.one_computes else 1.0
        if unlike is not None:
            saves = unlike.saves
        level, steps = facts.confidence()[0], plural(facts.steps, "step")
        confidence: tuple[Confidence, str]
        if facts.of_trace:
            confidence = ("medium" if level == "high" else level, f"{steps}; what the workers do was not seen")
        else:
            confidence = (level if view.told else "low", f"{steps}, {view.looked}" + ("" if view.told else ": too few"))
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="data_wait",
            claims=claims,
            title=unlike.title if unlike is not None else f"the DataLoader's workers {what}",
            affected=count,
            confidence=confidence,
            evidence=(
                *_fetches(found, late, slow),
                unlike.evidence if unlike is not None else "",
                view.text if not facts.of_trace else "",
                f"{plural(cpus, 'CPU')} usable" if cpus else "",
            ),
            who=(f"{loaders.workers_text(main)} of {name}", facts.step_thread_name),
            where=loaders.dataset_place(main, facts),
            why=unlike.why if unlike is not None else f"{loaders.workers_text(main)} of {name} {state}",
            fix=fix,
            fix_share=saves,
            will_not_help=wont,
            finds_out=unlike is None and not view.told and not uneven,
        )
