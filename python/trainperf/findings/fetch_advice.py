"""What to do about batches that the training thread makes itself."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trainperf.findings import cpus, frames, loaders
from trainperf.findings.cpu_use import usable_cpus
from trainperf.findings.facts import Affected, function_name
from trainperf.findings.thresholds import limit
from trainperf.findings.vocabulary import CAUSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainperf.findings.facts import Facts
    from trainperf.findings.fetching import Fetching
    from trainperf.findings.handovers import Handover
    from trainperf.runfile import Loader

_ITS_COST = "workers: to pass on a ready batch costs 1.2 to 1.9 ms"
_FARTHEST = 32  # batches that a worker may be ahead: all of them are in memory


@dataclass(frozen=True, slots=True)
class Advice:
    """How to spend less time in fetches."""

    fix: str
    will_not_help: str
    workers: int = 0  # that it advises
    affected: Affected | None = None  # the few steps that it is about; None: all that have the cost
    share: float = 1.0  # of the cost that it can save


def advice(facts: Facts, own: Sequence[Loader], fetching: Fetching, cost: int, *, small: bool) -> Advice:
    """`own`: the loaders that the training thread reads itself. `cost`: the time of these fetches, in ns. `small`: a
    batch takes less than to pass one on."""
    main = max(own, key=lambda v: v.fetches.wall_ns, default=None)
    by_workers = _ByWorkers.of(facts, own, main, cost) if main is not None else None
    pays = not small and (by_workers is None or by_workers.pays(fetching.overlaps))
    if not pays:
        result = _cheaper_batches(facts, main, fetching, cost, small=small)
    else:
        result = _workers(facts, main, fetching, _needed(facts, cost))
    # Which steps have it is not known where the same steps have what TP107 reports.
    affected = result.affected or (_all(facts) if loaders.told_skipped(facts) else facts.affected("data_wait"))
    if facts.restarts is None and affected.steps < facts.steps and result.workers:
        result = _of_few(facts, affected, result)
    fix, share = result.fix, result.share
    if facts.restarts is not None and result.workers:
        fix = f"# batches = iter(loader) once, before the loop; if it waits then, workers that start once:\n{fix}"
    dropped = many_for_a_backward(facts, main)
    if dropped:
        fix = f"{dropped}\n{fix}"
    if len(own) > 1 and main is not None and "DataLoader(..." in fix:
        fix = loaders.read_of(fix, loaders.dataset_name(main))
    if by_workers is not None and result.workers:
        share = by_workers.share(cost, 0 if fetching.waits and not fetching.for_threads else usable_cpus(facts.run))
    return dataclasses.replace(result, fix=fix, affected=affected, share=share)


def many_for_a_backward(facts: Facts, main: Loader | None) -> str:
    """Where the loop may drop most batches, such as of a filter: not told from losses summed over several."""
    if main is None or loaders.told_skipped(facts):
        return ""
    each = (main.fetches.count + main.fetches.first_count) / max(1, int(facts.run.steps.backwards.sum()))
    if each < limit("dropped_ratio"):
        return ""
    return (
        f"# {each:.0f} batches are fetched for each backward: if the loop drops some, filter before they are made, in "
        "the sampler or by an index"
    )


def _needed(facts: Facts, cost: int) -> int:
    """Workers that make batches as fast as the rest of the loop uses them."""
    need = max(1, math.ceil(cost / max(facts.wall_ns - cost, 1)))
    return need if usable_cpus(facts.run) else min(need, 7)  # of a trace: its machine is not known


def _cheaper_batches(facts: Facts, main: Loader | None, fetching: Fetching, cost: int, *, small: bool) -> Advice:
    """Where workers would cost about as much as they save."""
    wont = f"{_ITS_COST}, {'more than' if small else 'much of'} this wait"
    name = loaders.dataset_name(main) if main is not None else "the data"
    if not _is_dataloader(main):
        return Advice(_cheaper(name), wont)
    stream = main is not None and loaders.is_stream(main)
    collate = frames.collating(fetching.top.frames) if fetching.top is not None and not stream else None
    if fetching.for_threads:
        fix = "# compute what it waits for once, before training, or make it cheaper"
    elif fetching.in_lock:
        fix = _of_lock(fetching.handover, fetching.holder(facts))
    elif collate is not None:
        fix = f"# make {frames.label(collate, facts.base)} cheaper: do ahead of training what it does for each sample"
    else:
        fix = _by_batch(main, name)
    long = _long_ones(facts, cost)
    if long is None:
        return Advice(fix, wont)
    return Advice(
        f"# {_take_long(long.steps)}: see what their samples have\n{fix}",
        wont,
        affected=long,
        share=long.share,
    )


def _workers(facts: Facts, main: Loader | None, fetching: Fetching, need: int) -> Advice:
    """`need`: so many make batches as fast as the loop uses them."""
    usable = usable_cpus(facts.run)
    name = loaders.dataset_name(main) if main is not None else "the data"
    if not _is_dataloader(main):
        part = "" if need == 1 else ", of which each worker reads its own part (get_worker_info)"
        fix = f"# make batches ahead: {name} as an IterableDataset{part}, in a DataLoader(..., num_workers={need})"
        return Advice(fix, "", need)
    may_compute = fetching.busy_threads is not None
    if fetching.in_lock and (fetching.for_threads or (may_compute and usable == 1)):
        work = function_name(fetching.top) if fetching.top is not None else name
        return _of_threads(main, work, min(need + 1, usable or 7), usable)
    if fetching.in_lock:
        # Where threads may compute, unseen, workers are to be no more than CPUs.
        want = min(need + 1, usable or 7) if may_compute else need + 1
        return _of_lock_in_workers(main, fetching.handover, fetching.holder(facts), want)
    if not fetching.waits and usable == 1:
        return Advice(
            f"# make one sample of {name} cheaper, or decode ahead of training",
            "num_workers: there is one CPU, and training and loading would share it",
        )
    want, note = need + 1, "its waits then overlap"
    wont = "cheaper transforms or a faster CPU: the dataset waits, it does not compute" if fetching.overlaps else ""
    if not fetching.waits:
        want, note = min(want, usable or want), once_free(facts)
        wont = "pin_memory or prefetch_factor: nothing is prefetched with num_workers=0"
    call = f"DataLoader(..., num_workers={want}, persistent_workers=True)"
    return Advice(loaders.with_workers(main, want, call, note), wont, want)


def _is_dataloader(loader: Loader | None) -> bool:
    return loader is None or bool(loader.description.get("is_dataloader", True))


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

    def share(self, cost: int, usable: int) -> float:
        """What they save of the cost, at most. `usable`: CPUs that share the work, which stays as much; 0: it is
        none."""
        saved = self.ahead_ns - self.taking_ns
        if usable > 1:
            saved = min(saved, self.wall_ns - (self.cpu_ns + self.taking_ns) // usable)
        return max(0, saved) / cost


def _long_ones(facts: Facts, cost: int) -> Affected | None:
    """The few steps that wait much longer than the others, where they have most of the cost."""
    if loaders.told_skipped(facts):
        return None
    table = facts.run.steps
    column = table.causes_ns[:, CAUSES.index("data_wait")]
    each = column / table.count
    long = each >= limit("alike_ratio") * np.median(each)
    steps, ns = int(table.count[long].sum()), int(column[long].sum())
    if not steps or 10 * steps > facts.steps or ns < limit("half_share") * cost:
        return None
    return Affected(steps, min(1.0, ns / cost))


def _all(facts: Facts) -> Affected:
    return Affected(facts.steps, 1.0)


def _take_long(batches: int) -> str:
    return "1 batch takes long" if batches == 1 else f"{batches:,} batches take long"


def _of_few(facts: Facts, affected: Affected, of_all: Advice) -> Advice:
    """For batches that few steps wait for: workers must be far ahead of them, and each has a cache of its own."""
    if facts.is_of_the_first(affected, "data_wait"):
        fills = f"# if a cache fills in the first {affected.steps:,} steps: fill it before training, or keep it on disk"
        fix = f"{fills}\n# if files are read for the first time: by workers, ahead\n{of_all.fix}"
        wont = "workers, where a cache fills: each has its own, and fills it anew"
    else:
        between = facts.steps / affected.steps / of_all.workers
        ahead = f"prefetch_factor={min(_FARTHEST, max(2, math.ceil(between)))}, persistent_workers"
        call = of_all.fix.partition("  # ")[0].replace("persistent_workers", ahead)
        few = f"# {_take_long(affected.steps)}: see what their samples have, or let workers run ahead of them"
        fix, wont = f"{few}\n{call}", "more workers alone: batches come in order, and each worker is only two ahead"
    return dataclasses.replace(of_all, fix=fix, will_not_help=wont)


def once_free(facts: Facts) -> str:
    """When workers help, where other processes leave less than half of a CPU; else ""."""
    wants, load = cpus.demand(facts), cpus.load(facts)
    if not load.known or load.others < limit("competing_cpus") or cpus.free(wants, load)[1] >= limit("free_cpus"):
        return ""
    return f"once CPUs are free: others use {load.others:.1f} of the {wants.cpus}"


def _of_threads(loader: Loader | None, work: str, want: int, usable: int) -> Advice:
    """For who waits in a lock for threads that compute: they need the CPUs."""
    if want < 2:
        once = f"# compute what {work} makes once, before training, or make it cheaper"
        return Advice(once, "num_workers: there is one CPU, and training and loading would share it" if usable else "")
    call = f"DataLoader(..., num_workers={want}, persistent_workers=True)"
    once = f"# compute what {work} makes once, before training, or in workers, as far as CPUs are free:"
    wont = "more workers than CPUs: what it waits for computes"
    return Advice(f"{once}\n{loaders.with_workers(loader, want, call)}", wont, want)


def _of_lock(handed: Handover | None, holder: str) -> str:
    """For who waits in a lock, or for what threads of this process hand over."""
    return "# make what feeds it faster" if handed else f"# hold the lock for less{f' in {holder}' if holder else ''}"


def _of_lock_in_workers(loader: Loader | None, handed: Handover | None, holder: str, workers: int) -> Advice:
    """A fork copies neither as it should be."""
    in_each = "; in workers, make it in each of them: a fork takes no threads along"
    first = f"{_of_lock(handed, holder)}{in_each if handed is not None else ', or give each worker its own'}"
    call = f'DataLoader(..., num_workers={workers}, persistent_workers=True, multiprocessing_context="spawn")'
    fix = f"{first}:\n{loaders.with_workers(loader, workers, call, 'forked, they would wait for ever')}"
    wont = "workers by fork: a lock stays as it was held, and this process' threads are in none of them"
    return Advice(fix, wont, workers)


def _cheaper(name: str) -> str:
    return f"# make a batch of {name} cheaper, or do ahead of training what it does"


def _by_batch(loader: Loader | None, name: str) -> str:
    """How to fetch a whole batch by one indexing; torch's own classes are not the user's to change."""
    if loader is not None and loader.description.get("sampler") == "BatchSampler":
        return _cheaper(name)  # it is fetched so
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
