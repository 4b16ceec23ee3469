"""Why a loader's workers cannot keep up, and what to do about it: by what they do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings import cpus as cpu_load
from trainperf.findings import loaders
from trainperf.findings.cpu_use import usable_cpus
from trainperf.findings.text import plural
from trainperf.findings.thresholds import limit
from trainperf.findings.trainer_words import arguments, own_loader
from trainperf.findings.worker_locks import lock_share

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.runfile import Loader


@dataclass(frozen=True, slots=True)
class SlowWorkers:
    """What to say of them."""

    title: str
    why: str
    fix: str
    will_not_help: str
    evidence: str = ""
    saves: float = 1.0  # of what the loop waits for all loaders
    finds_out: bool = False  # the fix is to look again


@dataclass(frozen=True, slots=True)
class Fetches:
    """Of all the run's loaders with workers."""

    total: int
    empty: int  # found no batch ready
    few_are_late: (
        bool  # few batches take nearly all of the wait: while the loop uses the others, they can be made ahead
    )

    @property
    def between(self) -> int:
        """From one that takes long to the next; 0: all take alike."""
        return self.total // self.empty if self.few_are_late else 0

    @property
    def no_help(self) -> str:
        if self.few_are_late or 2 * self.empty < self.total:
            return "pin_memory: the wait is for a batch to be made"
        return "pin_memory, or a larger prefetch_factor: the queue is empty"


def in_any_order(facts: Facts, loader: Loader) -> str:
    """A line of a fix; none where the loader does so, for a PyTorch that has no such option, or for a Trainer, which
    cannot be told."""
    its = arguments(facts.run.meta) and not own_loader(facts.run.meta)
    if facts.torch_version < (2, 6) or its or loader.description.get("in_order") is False:
        return ""
    if loaders.is_stream(loader):
        return "DataLoader(..., in_order=False)  # take batches as they are made: the faster workers' come more often\n"
    return "DataLoader(..., in_order=False)  # a batch is passed on when it is made\n"


def slow_workers(facts: Facts, main: Loader, view: loaders.WorkerView, fetches: Fetches, cost: int) -> SlowWorkers:
    """Where they all are. `cost`: of their waits, in ns."""
    have, name, cpus = loaders.num_workers(main), loaders.dataset_name(main), usable_cpus(facts.run)
    # Workers make one batch per (step / have): to hide the wait they must be faster by step / (step - wait).
    need = math.ceil(have * facts.wall_ns / max(facts.wall_ns - cost, facts.wall_ns // 20))
    one = have == 1 and bool(main.description.get("num_workers_known", True))
    who, compute = f"{loaders.workers_text(main)} of {name}", "computes" if one else "compute"
    share = f"on the CPU {view.cpu_share:.0%}"
    wider = max(need, have + 1)
    training, others = _own_cpus(facts), _others_cpus(facts)

    def more(workers: int, note: str = "") -> str:
        return loaders.with_workers(main, workers, _call(main, workers, fetches.between), note)

    made = " and ".join((f"one sample of {name}", *loaders.collate_names(main, facts)))
    cheaper = f"# make {made} cheaper: decode ahead of training, or on the device"
    same_cpus = "more workers: they would wait for the same CPUs"
    too_slow, bound = "the DataLoader's workers are too slow", "the DataLoader's workers are CPU-bound"
    if not view.told:
        verb, whether = ("is", "it computes or waits") if one else ("are", "they compute or wait")
        unseen = "is in no trace" if facts.of_trace else "was not seen for long enough"
        look = "# run longer to see whether the workers compute or wait\n# if they wait, or CPUs are free:"
        if fetches.few_are_late:
            look = "# let the workers run further ahead (prefetch_factor); if they wait, or CPUs are free, also more:"
        return SlowWorkers(
            too_slow,
            f"{who} {verb} too slow; whether {whether} {unseen}",
            f"{look}\n{more(wider)}",
            fetches.no_help,
            finds_out=not fetches.few_are_late,
        )
    if view.one_computes:
        any_order = main.description.get("in_order") is False
        return SlowWorkers(
            too_slow,
            f"{who} wait for the busiest of them, which computes all the time (on the CPU {view.slowest:.0%}, all of "
            f"them {view.cpu_share:.0%} on average)"
            f"{', as it has more to do than they have' if any_order else ': batches are passed on in order'}",
            f"# make the batches of {name} cost alike (mix long and short samples), and its long ones cheaper\n"
            f"{in_any_order(facts, main)}".rstrip(),
            fetches.no_help,
            # Even work takes the mean of it, while the rest of the loop runs, too.
            saves=min(1.0, facts.wall_ns * (1 - view.cpu_share / view.slowest) / max(1, cost)),
        )
    if locked := lock_share(facts, main, have):
        return SlowWorkers(
            "the DataLoader's workers wait for one another, at a lock that they share",
            f"{who} are in a wait for a lock of several processes {locked:.0%} of the time: one at a time works",
            "# one handle for each worker, without the lock: open the file in worker_init_fn, or at the first "
            "__getitem__\n# or split the data into a file for each worker",
            "more workers, or a larger prefetch_factor: one worker at a time gets the lock",
            evidence=f"{locked:.0%} of the looks at the workers' system calls: a futex, flock or fcntl lock",
            # The workers then run at the same time.
            saves=min(1.0, facts.wall_ns * locked / max(1, cost)),
        )
    if view.waits:
        further = "" if fetches.few_are_late else ", or a larger prefetch_factor"
        return SlowWorkers(
            "the DataLoader's workers wait for something",
            f"{who} {'waits itself' if one else 'wait themselves'} (on the CPU only {view.cpu_share:.0%} of the time: "
            "storage, network or a lock)",
            more(wider, "their waits overlap"),
            f"cheaper transforms{further}: the workers do not compute, they wait",
        )
    beside = f", of which other processes use {others:.1f}," if others else ""
    no_room = (
        f"there is no CPU for more of them: {plural(cpus, 'CPU')}{beside} for {plural(have, 'worker')} and the training"
    )
    with_one_more, saves = view.cpu_share * (have + 1) + training, _room_saves(facts, cost)
    in_vain = facts.share(int(saves * cost)) < limit("least_share")
    if not view.computes and (in_vain or with_one_more + others > (cpus or math.inf)):
        return SlowWorkers(
            too_slow,
            f"{who} {compute} for {view.cpu_share:.0%} of the time, and {no_room}",
            f"{cheaper}; or stop what else runs" if with_one_more <= cpus else cheaper,
            same_cpus,
        )
    if not view.computes:
        return SlowWorkers(
            too_slow,
            f"{who} {compute} for {view.cpu_share:.0%} of the time, and {'waits' if one else 'wait'} for the rest "
            "(for storage, network, a lock or a CPU, or to be asked for more)",
            more(max(have + 1, min(wider, int((cpus - training - others) / view.cpu_share))) if cpus else wider),
            fetches.no_help,
            saves=saves,
        )
    if view.short_of_cpu and others:
        fewer = "fewer torch threads (torch.set_num_threads), " if facts.torch_threads > 1 else ""
        return SlowWorkers(
            bound,
            f"{who} {compute}, but {'gets' if one else 'get'} a CPU only {view.cpu_share:.0%} of the time: the CPUs "
            "are busy with others",
            f"# free the CPUs: {fewer}stop what else runs",
            same_cpus,
        )
    if cpus and cpus <= (have + 1 if view.short_of_cpu else have):
        when = "whenever they get one" if view.short_of_cpu else "all the time"
        return SlowWorkers(
            bound,
            f"{who} {compute} {when} ({share}), on {plural(cpus, 'CPU')}",
            cheaper,
            f"more workers: {plural(cpus, 'CPU')} for {plural(have, 'worker')} and the training are all in use",
        )
    if view.short_of_cpu:
        return SlowWorkers(
            bound,
            f"{who} {compute}, but {'gets' if one else 'get'} a CPU only {view.cpu_share:.0%} of the time",
            "# see which CPUs they may use (taskset, a container's cpuset), and what else runs there",
            same_cpus,
        )
    if in_vain or (others and cpus - 1 - others < have + 1):
        return SlowWorkers(
            bound,
            f"{who} {compute} all the time ({share}), and {no_room}",
            f"{cheaper}; or stop what else runs" if others else cheaper,
            same_cpus,
        )
    want = max(min(need, int(cpus - 1 - others)) if cpus else need, have + 1)
    return SlowWorkers(
        bound,
        f"{who} {compute} all the time ({share})",
        more(want, f"{cpus} CPUs here" if cpus else ""),
        fetches.no_help,
        saves=saves,
    )


def _call(loader: Loader, workers: int, ahead: int) -> str:
    """`ahead`: the batches from one that takes long to the next, which can be made meanwhile; 0: all take alike."""
    if not ahead:
        return f"DataLoader(..., num_workers={workers})"
    prefetched = loader.description.get("prefetch_factor")
    least = 2 * (prefetched if isinstance(prefetched, int) else 2)
    return f"DataLoader(..., num_workers={workers}, prefetch_factor={max(least, math.ceil(ahead / workers))})"


def _room_saves(facts: Facts, cost: int) -> float:
    """Of the cost, what more workers save at most: the batches take as much of the CPUs as before, and the run can use
    no more than those that are free."""
    wants, load = cpu_load.demand(facts), cpu_load.load(facts)
    if not load.known or not wants.cpus:
        return 1.0
    _, free = cpu_load.free(wants, load)
    spared = facts.wall_ns * free / max(load.run + free, limit("free_cpus"))
    return min(1.0, spared / cost)


def _own_cpus(facts: Facts) -> float:
    """What this process uses beside its workers; one CPU where it was not read."""
    load = cpu_load.load(facts)
    return load.own if load.known else 1.0


def _others_cpus(facts: Facts) -> float:
    """What processes that are none of this run's use, where that is enough to compete for."""
    load = cpu_load.load(facts)
    return load.others if load.known and load.others >= limit("competing_cpus") else 0.0
