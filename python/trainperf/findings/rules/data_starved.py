"""TP101: the loop waits for data that is made on the step thread itself."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trainperf.findings import cpus, frames, loaders
from trainperf.findings.cpu_use import usable_cpus
from trainperf.findings.facts import Affected, function_name, plural
from trainperf.findings.handovers import handover, in_event_loop, told_beside
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.syscalls import call_of, waiting_kind
from trainperf.findings.thresholds import limit
from trainperf.findings.vocabulary import CAUSES
from trainperf.findings.weights import weighed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainperf.findings.facts import Facts, Spot
    from trainperf.findings.handovers import Handover
    from trainperf.findings.model import Confidence
    from trainperf.runfile import Detail, Loader


_NO_WORKERS = {
    True: "workers: to pass on a ready batch costs 1.2 to 1.9 ms, more than this wait",
    False: "workers: to pass on a ready batch costs 1.2 to 1.9 ms, much of this wait",
}
_CHEAPER = "# compute what it waits for once, before training, or make it cheaper"
_FARTHEST = 32  # batches that a worker may be ahead: all of them are in memory


class DataStarved:
    id = "TP101"
    slug = "data-starved"
    limits = Limits(limit("warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("hook_dataloader",)

    def check(self, facts: Facts) -> Outcome:
        drawn = loaders.told_sampler(facts)  # as TP106
        cells = {cell: ns - drawn.get(cell, 0) for cell, ns in facts.cells("data_wait", ["fetch"]).items()}
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
        by_workers = _ByWorkers.of(facts, own, main, cost) if main is not None else None
        if small and facts.loop_share(cost) < limit("in_process_dominant_share"):
            severity = "info"
        blocked = cells.get(("fetch", "blocked"), 0) / max(1, sum(cells.values()))
        samples = facts.samples(phases=["fetch"], states=["python", "native", "parallel", "blocked"])
        if begun or drawn:
            samples = [d for d in samples if not frames.in_sampler(facts.run.stack(d.stack))]
        samples = weighed(samples, cells)
        # A look that took a moment may show what was before the fetch, such as `loss.backward()`.
        spots = facts.spots(samples)
        if all(v.description.get("is_dataloader", True) for v in facts.run.loaders.values()):
            spots = facts.spots(samples, keep=frames.in_loader) or facts.spots(samples, keep=frames.without_torch)
        seen = sum(s.samples for s in spots)
        top = spots[0] if spots else None
        of_top = [d for d in samples if top is not None and facts.is_at(d, top)]
        waits = loaders.blocked_share(of_top) >= limit("half_share") if of_top else blocked >= limit("half_share")
        what = self._waits_in(facts, top, of_top or samples) if waits else ""
        lock = waits and what.startswith("lock")
        beside = facts.beside(["fetch"]) if lock else []
        timed = lock and top is not None and facts.timed(samples, top)
        awaited = [b for b in beside if b.awaited and not timed]  # a timer that runs as waits end looks the same
        busy_threads = self._busy_threads(facts) if lock and not awaited else None
        computed = busy_threads is not None and busy_threads >= limit("own_threads_cpus")
        name = loaders.dataset_name(main) if main is not None else "the data"
        usable = usable_cpus(facts.run)
        rest = max(facts.wall_ns - cost, 1)
        need = max(1, math.ceil(cost / rest))
        if not usable:
            need = min(need, 7)  # of a trace: its machine is not known
        holder = facts.label(awaited[0].spot) if len(awaited) == 1 else ""
        handed = handover(top.frames) if lock and top is not None else None
        long: Affected | None = None
        overlaps = waits and not lock and blocked >= limit("half_share")
        pays = not small and (by_workers is None or by_workers.pays(overlaps))
        is_loader = main is None or bool(main.description.get("is_dataloader", True))
        if not is_loader and not pays:
            fix, wont = f"# make a batch of {name} cheaper, or do ahead of training what it does", _NO_WORKERS[small]
        elif not is_loader:
            part = "" if need == 1 else ", of which each worker reads its own part (get_worker_info)"
            fix = f"# make batches ahead: {name} as an IterableDataset{part}, in a DataLoader(..., num_workers={need})"
            wont = ""
        elif not pays:
            stream = main is not None and loaders.is_stream(main)
            collate = frames.collating(top.frames) if top is not None and not stream else None
            fix = _by_batch(main, name)
            if lock:
                fix = _CHEAPER if computed else _of_lock(handed, holder)
            elif collate is not None:
                makes = frames.label(collate, facts.base)
                fix = f"# make {makes} cheaper: do ahead of training what it does for each sample"
            wont = _NO_WORKERS[small]
            long = _long_ones(facts, cost)
            if long is not None:
                fix = f"# {long.steps:,} batches take long: see what their samples have\n{fix}"
        elif lock and (computed or (busy_threads is not None and usable == 1)):
            fix, wont = _of_threads(main, function_name(top) if top is not None else name, need, usable)
        elif lock:
            # Where threads may compute, unseen, workers are to be no more than CPUs.
            want = need + 1 if busy_threads is None else min(need + 1, usable or 7)
            fix = _of_lock_in_workers(main, handed, holder, want)
            wont = "workers by fork: a lock stays as it was held, and this process' threads are in none of them"
        elif waits:
            call = f"DataLoader(..., num_workers={need + 1}, persistent_workers=True)"
            fix = loaders.with_workers(main, need + 1, call, "its waits then overlap")
            wont = "cheaper transforms or a faster CPU: the dataset waits, it does not compute" if overlaps else ""
        elif usable == 1:
            fix = f"# make one sample of {name} cheaper, or decode ahead of training"
            wont = "num_workers: there is one CPU, and training and loading would share it"
        else:
            want = min(need + 1, usable) if usable else need + 1
            call = f"DataLoader(..., num_workers={want}, persistent_workers=True)"
            fix = loaders.with_workers(main, want, call, _taken(facts))
            wont = "pin_memory or prefetch_factor: nothing is prefetched with num_workers=0"
        affected = long or facts.affected("data_wait")
        if restarts is None and affected.steps < facts.steps and "DataLoader(..., num_workers=" in fix:
            fix, wont = _of_few(facts, affected, fix)
        if restarts is not None and "num_workers=" in fix:
            fix = f"# batches = iter(loader) once, before the loop; if it waits then, workers that start once:\n{fix}"
        if len(own) > 1 and "DataLoader(..." in fix:
            fix = loaders.read_of(fix, name)
        doing = "is read" if facts.of_trace else f"waits{f' ({what})' if what else ''}" if waits else "computes"
        why = f"{name} {doing} on the training thread"
        if top is not None:
            why = f"{facts.label_with_caller(top)} {doing} on the training thread"
        confidence = facts.confidence() if facts.of_trace else facts.confidence(samples=seen)
        meanwhile = ""
        if len(awaited) == 1:  # of several it is not known who is waited for
            why = f"{awaited[0].name} is in {facts.label(awaited[0].spot)} while {why}"
        if computed:
            why += ", while other threads of this process compute"
            meanwhile = f"other threads of this process use {busy_threads:.1f} CPUs or more, beside torch's"
            confidence = _inferred(confidence)
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="data_wait",
            claims=claims,
            title="the loop waits for data that it makes itself",
            affected=affected,
            confidence=confidence,
            evidence=(
                f"fetching takes {facts.of_step(cost)}"
                + (
                    ""
                    if facts.of_trace
                    else f"; {1 - blocked:.0%} of it on the CPU, {blocked:.0%} blocked{f' in {what}' if what else ''}"
                ),
                *(
                    f"{s.share:.0%} of its {plural(seen, 'sample')} are in {facts.label(s)}"
                    for s in spots[:2]
                    if s is top or s.share >= limit("felt_share")
                ),
                meanwhile,
                *(told_beside(facts, b) for b in beside[:3]),
                f"num_workers=0, {plural(usable, 'CPU')} usable"
                if main is not None and usable and (wont or meanwhile)
                else "",
            ),
            who=(facts.step_thread_name, awaited[0].name if len(awaited) == 1 else ""),
            where=facts.where(top) or (loaders.dataset_place(main, facts) if main is not None else ""),
            why=why,
            fix=fix,
            fix_share=by_workers.share(cost, 0 if waits and not computed else usable)
            if by_workers is not None and "num_workers=" in fix
            else long.share
            if long is not None
            else 1.0,
            will_not_help=wont,
        )

    @staticmethod
    def _busy_threads(facts: Facts) -> float | None:
        """CPUs that other threads use, at least, while it waits for a lock: such as a library's, which make the data.
        None: they are known to use none."""
        between = cpus.threads_beside(facts)
        if between is None:
            return 0.0
        least, most = between
        return None if most < limit("own_threads_cpus") else least

    @staticmethod
    def _waits_in(facts: Facts, top: Spot | None, samples: Sequence[Detail]) -> str:
        if top is not None and in_event_loop(top.frames):
            return "asyncio's event loop"
        name = call_of(samples, facts.machine)
        kind = waiting_kind(name)
        return f"{kind}: {name}" if kind != "other" else name


@dataclass(frozen=True, slots=True)
class _ByWorkers:
    """What workers of the costliest loader would change."""

    ahead_ns: int  # of the cost: batches that they could make ahead, all but an iterator's first
    taking_ns: int  # to take these out of their queue
    wall_ns: int  # of the run
    cpu_ns: int  # of it, on the CPU

    @classmethod
    def of(cls, facts: Facts, own: Sequence[Loader], main: Loader, cost: int) -> _ByWorkers:
        every = sum(v.fetches.wall_ns for v in own)
        mine = cost * main.fetches.wall_ns // every if every else cost
        fetches = main.fetches
        ahead = mine * fetches.wall_ns // max(1, fetches.wall_ns + fetches.first_wall_ns)
        cpu = sum(ns for (_, mechanism), ns in facts.matrix.items() if mechanism in ("python", "native"))
        return cls(ahead, round(fetches.count * 1e6 * limit("ready_batch_ms")), facts.wall_ns, cpu)

    def pays(self, overlaps: bool) -> bool:
        """`overlaps`: making the batches is mostly waiting, so that workers take little CPU from the training."""
        least = limit("overlapping_share") if overlaps else limit("half_share")
        return self.ahead_ns - self.taking_ns >= least * self.ahead_ns

    def share(self, cost: int, cpus: int) -> float:
        """What they save of the cost, at most. `cpus`: that share the work, which stays as much; 0: it is no work."""
        saved = self.ahead_ns - self.taking_ns
        if cpus > 1:
            saved = min(saved, self.wall_ns - (self.cpu_ns + self.taking_ns) // cpus)
        return max(0, saved) / cost


def _long_ones(facts: Facts, cost: int) -> Affected | None:
    """The few steps that wait much longer than the others, where they have most of the cost."""
    table = facts.run.steps
    column = table.causes_ns[:, CAUSES.index("data_wait")]
    each = column / table.count
    long = each >= limit("alike_ratio") * np.median(each)
    steps, ns = int(table.count[long].sum()), int(column[long].sum())
    if not steps or 10 * steps > facts.steps or ns < limit("half_share") * cost:
        return None
    return Affected(steps, min(1.0, ns / cost))


def _of_few(facts: Facts, affected: Affected, fix: str) -> tuple[str, str]:
    """For batches that few steps wait for: workers must be far ahead of them, and each has a cache of its own."""
    if facts.is_of_the_first(affected, "data_wait"):
        fills = f"# if a cache fills in the first {affected.steps:,} steps: fill it before training, or keep it on disk"
        own = "workers, where a cache fills: each has its own, and fills it anew"
        return f"{fills}\n# if files are read for the first time: by workers, ahead\n{fix}", own
    workers = re.search(r"num_workers=(\d+)", fix)
    between = facts.steps / affected.steps / int(workers[1] if workers else 1)
    ahead = f"prefetch_factor={min(_FARTHEST, max(2, math.ceil(between)))}, persistent_workers"
    call = fix.partition("  # ")[0].replace("persistent_workers", ahead)
    few = f"# {affected.steps:,} batches take long: see what their samples have, or let workers run ahead of them"
    return f"{few}\n{call}", "more workers alone: batches come in order, and each worker is only two ahead"


def _inferred(confidence: tuple[Confidence, str]) -> tuple[Confidence, str]:
    sure, why = confidence
    return "low" if sure == "low" else "medium", f"{why}; that it waits for those threads is inferred"


def _taken(facts: Facts) -> str:
    """When workers help, where other processes leave less than half of a CPU; else ""."""
    wants, load = cpus.demand(facts), cpus.load(facts)
    if not load.known or load.others < limit("competing_cpus") or cpus.free(wants, load)[1] >= limit("free_cpus"):
        return ""
    return f"once CPUs are free: others use {load.others:.1f} of the {wants.cpus}"


def _of_threads(loader: Loader | None, work: str, need: int, cpus: int) -> tuple[str, str]:
    """For who waits in a lock for threads that compute: they need the CPUs."""
    want = min(need + 1, cpus or 7)
    if want < 2:
        once = f"# compute what {work} makes once, before training, or make it cheaper"
        return once, "num_workers: there is one CPU, and training and loading would share it" if cpus else ""
    call = f"DataLoader(..., num_workers={want}, persistent_workers=True)"
    once = f"# compute what {work} makes once, before training, or in workers, as far as CPUs are free:"
    wont = "more workers than CPUs: what it waits for computes"
    return f"{once}\n{loaders.with_workers(loader, want, call)}", wont


def _of_lock(handed: Handover | None, holder: str) -> str:
    """For who waits in a lock, or for what threads of this process hand over."""
    return "# make what feeds it faster" if handed else f"# hold the lock for less{f' in {holder}' if holder else ''}"


def _of_lock_in_workers(loader: Loader | None, handed: Handover | None, holder: str, workers: int) -> str:
    """A fork copies neither as it should be."""
    in_each = "; in workers, make it in each of them: a fork takes no threads along"
    first = f"{_of_lock(handed, holder)}{in_each if handed is not None else ', or give each worker its own'}"
    call = f'DataLoader(..., num_workers={workers}, persistent_workers=True, multiprocessing_context="spawn")'
    return f"{first}:\n{loaders.with_workers(loader, workers, call, 'forked, they would wait for ever')}"


def _by_batch(loader: Loader | None, name: str) -> str:
    """How to fetch a whole batch by one indexing; torch's own classes are not the user's to change."""
    if loader is not None and loaders.is_stream(loader):
        return f"# yield whole batches in {name}.__iter__, with DataLoader(..., batch_size=None)"
    names = loaders.dataset_names(loader) if loader is not None else (name,)
    own = next((n for n in names if n not in loaders.TORCHS_DATASETS), "")
    outer = set(names[: names.index(own)]) if own else set(names)
    if own and outer <= {"Subset"}:  # which passes a batch's indices on
        return (
            f"# give class {own} a __getitems__(indices) that makes a whole batch at once, by one indexing:\n"
            f"class {own}:\n    def __getitems__(self, indices): ..."
        )
    if loader is None or own or not outer <= {"Subset", "TensorDataset"}:
        return f"# index a whole batch at once: wrap {name} in a class of yours with __getitems__(self, indices)"
    size = loader.description.get("batch_size") or "batch_size"
    kind = loader.description.get("sampler") or "RandomSampler"
    sampler = f"{kind}(dataset)" if kind in ("RandomSampler", "SequentialSampler") else "sampler"
    return (
        "# fetch a whole batch by one indexing: a BatchSampler (torch.utils.data) as sampler, and batch_size=None:\n"
        f"DataLoader(dataset, sampler=BatchSampler({sampler}, {size}, drop_last=False), batch_size=None)"
    )
