"""TP101, TP104, TP106 and TP107: the loop waits for what the training thread does itself to have a batch, or for a
loader to begin."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import statistics
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trainperf.findings import children, cpus, frames, framework, loaders
from trainperf.findings.cpus import storage, usable_cpus
from trainperf.findings.model import (
    Affected,
    Cell,
    Claim,
    Diagnosis,
    Limits,
    Outcome,
    Params,
    Said,
    Saves,
    Sure,
    Unsure,
)
from trainperf.findings.places import function_name, weighed
from trainperf.findings.rule import PURE_LOSS, WARNS, rule
from trainperf.findings.text import Count, Ns, Share
from trainperf.findings.thresholds import limit
from trainperf.findings.waits import Wait, awaited, call_of, handover, waiting_kind, waits_in
from trainperf.runfile.schema import CAUSES

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts, Spot
    from trainperf.findings.loaders import Restarts
    from trainperf.findings.places import Part
    from trainperf.findings.waits import Handover
    from trainperf.runfile import Detail, Loader
    from trainperf.runfile.records import Span

    _Times = list[list[Span]]  # of each time that a loader began, its spans

# -- what it does in the fetches whose batches it makes itself


@dataclass(frozen=True, slots=True)
class Fetching(Wait):
    """Where its time goes, as samples tell; and whom it waits for, as they stand meanwhile."""

    blocked: float  # of the time
    waits: bool  # in the costliest place
    call: str  # in which it waits: "sleep: nanosleep"; "" where it does not, or where it is not known
    # CPUs that other threads used, at least, while it waited for a lock; None: none, or not asked.
    busy_threads: float | None
    of_top: Sequence[Detail]  # samples in the costliest place

    @classmethod
    def of(cls, facts: Facts, cells: Mapping[Cell, int], *, without_sampler: bool) -> Fetching:
        """`cells`: the fetches' time."""
        samples = facts.samples(phases=["fetch"], states=["python", "native", "parallel", "blocked"])
        if without_sampler:
            samples = [d for d in samples if not frames.in_sampler(facts.run.stack(d.stack))]
        samples = weighed(samples, cells)
        # A look that took a moment may show what was before the fetch, such as `loss.backward()`.
        spots = facts.spots(samples)
        if all(v.description.get("is_dataloader", True) for v in facts.run.loaders.values()):
            spots = facts.spots(samples, keep=frames.in_loader) or facts.spots(samples, keep=frames.without_torch)
        top = spots[0] if spots else None
        of_top = [d for d in samples if top is not None and facts.is_at(d, top)]
        blocked = cells.get(("fetch", "blocked"), 0) / max(1, sum(cells.values()))
        waits = (loaders.blocked_share(of_top) if of_top else blocked) >= limit("half_share")
        call = waits_in(facts, top, of_top or samples) if waits else ""
        if not call.startswith("lock"):
            return cls(
                spots=spots,
                beside=(),
                timed=False,
                blocked=blocked,
                waits=waits,
                call=call,
                busy_threads=None,
                of_top=of_top,
            )
        beside = facts.beside(["fetch"])
        timed = top is not None and facts.timed(samples, top)
        return cls(
            spots=spots,
            beside=beside,
            timed=timed,
            blocked=blocked,
            waits=waits,
            call=call,
            busy_threads=None if awaited(beside, timed=timed) else _busy_threads(facts),
            of_top=of_top,
        )

    @property
    def in_lock(self) -> bool:
        return self.call.startswith("lock")

    @property
    def overlaps(self) -> bool:
        """Most of it is waiting, of which workers could do several at once."""
        return self.waits and not self.in_lock and self.blocked >= limit("half_share")

    @property
    def for_threads(self) -> bool:
        """It waits for threads that compute."""
        return self.busy_threads is not None and self.busy_threads >= limit("own_threads_cpus")

    @property
    def handover(self) -> Handover | None:
        """What it waits at for other threads."""
        return handover(self.top.frames) if self.in_lock and self.top is not None else None

    def params(self, facts: Facts, name: str | Said) -> Params:
        """What it does, where, and what others do meanwhile. `name`: of the data."""
        by_trace = facts.of_trace  # which tells no states of threads
        return {
            **self._place(facts, name),
            "doing": Said("is_read" if by_trace else "waits_in_call" if self.waits else "computes"),
            "call": None if by_trace else self.call or None,
            "on_cpu": None if by_trace else Share(1 - self.blocked),
            "blocked": Share(self.blocked),
            "busy": self.busy_threads if self.for_threads else None,  # CPUs
            "samples": Count(self.samples),
            "spots": tuple(
                {"share": Share(spot.share), "place": facts.label(spot) if _is_of_users(spot) else Said("library_code")}
                for spot in self.spots[:2]
                if spot is self.top or spot.share >= limit("felt_share")
            ),
            **self.others(facts),
            **children.at_work(facts, self.helpers(facts)),
        }

    def helpers(self, facts: Facts) -> Sequence[children.Group]:
        """Processes that it may wait for; none where that is a thread."""
        if self.top is None or self.timed or self.waited_for is not None or not self.waits:
            return ()
        return children.waited_for(facts, handover(self.top.frames) or "", self.top.frames)

    def _place(self, facts: Facts, name: str | Said) -> Params:
        top = self.top
        users = top is not None and _is_of_users(top)
        return {
            "at": facts.label(top, with_caller=True) if top is not None and users else name,
            "library_by": frames.label(top.frame, facts.base) if top is not None and not users else None,
        }

    def sure(self, facts: Facts) -> Sure:
        return Sure(
            samples=None if facts.of_trace else self.samples,
            doubts=(Said("threads_inferred"),) if self.for_threads else (),
        )


def _is_of_users(spot: Spot) -> bool:
    """Code that the loader calls, or a loop that makes its batches without one; else the loop's line that fetches."""
    at = next((i for i, f in enumerate(spot.frames) if frames.is_users(f, spot.frames)), 0)
    return at < frames.in_loaders(spot.frames)


def _busy_threads(facts: Facts) -> float | None:
    """CPUs that other threads use, at least, such as a library's, which may make the data. None: they are known to use
    none."""
    between = cpus.threads_beside(facts)
    if between is None:
        return 0.0
    least, most = between
    return None if most < limit("own_threads_cpus") else least


_NEEDS = ("hook_dataloader",)
_FARTHEST = 32  # batches that a worker may be ahead: all of them are in memory

# -- batches that the training thread makes


@rule("TP101", "data-starved", WARNS, needs=_NEEDS)
def data_starved(facts: Facts, limits: Limits) -> Outcome:
    own = [v for v in facts.run.loaders.values() if loaders.num_workers(v) == 0]
    if not own and (facts.run.loaders or facts.of_trace):
        return None  # all of it is the workers'; of a trace it is not known who makes the batches
    claims, without_sampler = _made_here(facts)
    cost = sum(claims.values())
    severity = facts.grade(cost, limits)
    if severity is None:
        return None
    own = [v for v in own if v.fetches.count]
    main = max(own, key=lambda v: v.fetches.wall_ns, default=None)
    fetched = sum(v.fetches.count - loaders.dropped_count(facts, v) for v in own)
    batches = max(facts.steps, fetched)  # several a step, where gradients are accumulated
    small = cost / batches < 1e6 * limit("in_process_min_ms")
    fetching = Fetching.of(facts, _cells(facts), without_sampler=without_sampler)
    todo = _advice(facts, own, fetching, cost, small=small)
    usable, moved, cheaper = usable_cpus(facts.run), storage(facts), loaders.cheaper_call_of(facts, fetching.of_top)
    reads = loaders.reads(facts, main, cheaper, moved)
    return Diagnosis(
        variant=todo.variant,
        severity="info" if small and facts.loop_share(cost) < limit("in_process_dominant_share") else severity,
        claim=Claim("data_wait", claims),
        params={
            "name": _name(main),
            **fetching.params(facts, _name(main)),
            "usable": Count(usable) if main is not None and usable and _is_dataloader(facts, main) else None,
            "making": Ns(cost / batches),
            "overlaps": fetching.overlaps,
            "each_backward": loaders.many_for_a_backward(facts, main),
            "few": Count(todo.affected.steps) if todo.affected is not None else None,
            "fix": todo.fix(main, several=len(own) > 1),
            "cheaper": cheaper,
            **moved,
            **reads,
        },
        place=facts.where(fetching.top) or (loaders.dataset_place(main, facts) if main is not None else ""),
        who=(facts.step_thread_name, fetching.who),
        affected=todo.affected,
        sure=fetching.sure(facts),
        saves=Saves(share=1.0 if cheaper is not None and reads else todo.share),
    )


def _cells(facts: Facts) -> dict[Cell, int]:
    """The fetches' time, without what TP106 and TP107 report."""
    return loaders.fetch_cells(facts, loaders.told_sampler(facts))


def _made_here(facts: Facts) -> tuple[dict[Cell, int], bool]:
    """Of these: what is not the workers', nor TP104's; and whether the samplers' samples are none of it."""
    cells, drawn = _cells(facts), bool(loaders.told_sampler(facts))
    restarts = facts.once(loaders.restarts)
    begun = restarts.in_process_ns - (restarts.sampled_ns if drawn else 0) if restarts is not None else 0
    with_workers = loaders.with_workers_of(facts, without_sampler=drawn)
    elsewhere = sum(v.fetches.wall_ns + v.fetches.first_wall_ns - v.fetches.gil_wait_ns for v in with_workers)
    return loaders.spread(cells, sum(cells.values()) - max(0, elsewhere) - begun), bool(begun) or drawn


def _name(loader: Loader | None) -> str | Said:
    return loaders.dataset_name(loader) if loader is not None else Said("the_data")


@dataclass(frozen=True, slots=True)
class _Advice:
    """How to spend less time in fetches."""

    variant: str
    lead: tuple[Said, ...] = ()  # lines of the fix, before the code
    workers: int = 0  # that it advises
    note: Said | None = None
    ahead: int | None = None
    spawn: bool = False
    affected: Affected | None = None  # the few steps that it is about; None: all that have the cost
    share: float = 1.0  # of the cost that it can save

    def fix(self, main: Loader | None, *, several: bool) -> tuple[Said, ...]:
        if not self.workers:
            return self.lead
        of = Said("of_data", {"name": _name(main)}) if several else None
        notes = [of, self.note]
        how = {"persistent": True, "spawn": self.spawn}
        return (*self.lead, loaders.with_workers(main, self.workers, notes=notes, ahead=self.ahead, **how))


def _advice(facts: Facts, own: Sequence[Loader], fetching: Fetching, cost: int, *, small: bool) -> _Advice:
    """`own`: the loaders that the training thread reads itself. `cost`: the time of these fetches, in ns. `small`: a
    batch takes less than to pass one on."""
    main = max(own, key=lambda v: v.fetches.wall_ns, default=None)
    if not _is_dataloader(facts, main):
        return _by_hand(facts, fetching, cost)
    by_workers = _ByWorkers.of(facts, own, main, cost) if main is not None else None
    helpers = fetching.helpers(facts)
    if helpers and helpers[0].computes:  # workers would wait for them as well
        return _Advice("cheaper", (Said("cheaper_helpers", {"work": children.work_of(helpers[0])}),))
    if small or (by_workers is not None and not by_workers.pays(fetching.overlaps)):
        todo = _cheaper(facts, main, fetching, cost)
    else:
        todo = _workers(facts, main, fetching, _needed(facts, cost))
    # Which steps have it is not known where the same steps have what TP107 reports.
    every = Affected(facts.steps, 1.0) if loaders.told_skipped(facts) else facts.affected("data_wait")
    todo = dataclasses.replace(todo, affected=todo.affected or every)
    if not todo.workers:
        return todo
    if facts.once(loaders.restarts) is not None:
        todo = dataclasses.replace(todo, lead=(Said("begin_once"), *todo.lead))
    elif every.steps < facts.steps:
        todo = _of_few(facts, every, todo)
    if by_workers is None:
        return todo
    room = None if fetching.waits and not fetching.for_threads else cpus.room(facts)
    left = max(0.0, cost / todo.workers - (facts.wall_ns - cost))  # where more would be needed than are advised
    return dataclasses.replace(todo, share=min(by_workers.share(cost, room), 1 - left / cost))


def _needed(facts: Facts, cost: int) -> int:
    """Workers that make batches as fast as the rest of the loop uses them."""
    need = max(1, math.ceil(cost / max(facts.wall_ns - cost, 1)))
    return need if usable_cpus(facts.run) else min(need, 7)  # of a trace: its machine is not known


def _cheaper(facts: Facts, main: Loader | None, fetching: Fetching, cost: int) -> _Advice:
    """Where workers would cost about as much as they save."""
    long = _long_ones(facts, cost)
    lead = _cheaper_batch(facts, main, fetching)
    if long is None:
        return _Advice("cheaper", (lead,))
    return _Advice("cheaper", (Said("see_long_ones"), lead), affected=long, share=long.share)


def _cheaper_batch(facts: Facts, main: Loader | None, fetching: Fetching) -> Said:
    if fetching.for_threads:
        return Said("compute_awaited_once")
    if fetching.in_lock:
        return Said("feed_faster" if fetching.handover else "hold_for_less")
    stream = main is not None and loaders.is_stream(main)
    collate = frames.collating(fetching.top.frames) if fetching.top is not None and not stream else None
    if collate is not None:
        return Said("cheaper_collate", {"collate": frames.label(collate, facts.base)})
    return _by_batch(main)


def _workers(facts: Facts, main: Loader | None, fetching: Fetching, need: int) -> _Advice:
    """`need`: so many make batches as fast as the loop uses them."""
    usable = usable_cpus(facts.run)
    # Where threads may compute, unseen, workers are to be no more than CPUs.
    may_compute = fetching.busy_threads is not None
    want = min(need + 1, usable or 7) if may_compute else need + 1
    if fetching.in_lock and (fetching.for_threads or (may_compute and usable == 1)):
        work = function_name(fetching.top) if fetching.top is not None else _name(main)
        if want < 2:
            return _Advice("one_cpu", (Said("compute_once", {"work": work}),))
        return _Advice("threads", (Said("compute_once_or_in_workers", {"work": work}),), want)
    if fetching.in_lock:  # a fork copies neither a lock nor threads as they should be
        lead = Said("feed_faster_in_each" if fetching.handover else "hold_for_less_or_own")
        return _Advice("lock", (lead,), want, note=Said("forked_wait"), spawn=True)
    if fetching.waits:
        most = max(limit("waiting_workers"), limit("waiting_workers_each_cpu") * (usable or 1))
        return _Advice("waiting", workers=min(need + 1, int(most)), note=Said("waits_then_overlap"))
    if usable == 1:
        return _Advice("one_cpu", (Said("cheaper_sample"),))
    return _Advice("computing", workers=min(need + 1, usable or need + 1), note=cpus.once_free(facts))


def _by_hand(facts: Facts, fetching: Fetching, cost: int) -> _Advice:
    """Where no DataLoader makes them, such as samples from a replay buffer: there is nothing to give workers to."""
    if fetching.for_threads:
        return _Advice("by_hand", (Said("compute_awaited_once"),))
    if fetching.in_lock:
        return _Advice("by_hand", (Said("feed_faster" if fetching.handover else "hold_for_less"),))
    if fetching.waits:  # no longer than the rest of the loop takes
        share = min(1.0, fetching.blocked, (facts.wall_ns - cost) / max(1, cost))
        return _Advice("by_hand_waiting", (Said("fetch_ahead"),), share=share)
    return _Advice("by_hand", (Said("index_arrays"),))


def _is_dataloader(facts: Facts, main: Loader | None) -> bool:
    if main is None:
        return bool(facts.run.loaders) or facts.of_trace
    return bool(main.description.get("is_dataloader", True))


@dataclass(frozen=True, slots=True)
class _ByWorkers:
    """What workers of the costliest loader would change."""

    ahead_ns: int  # of the cost: batches that they could make ahead, all but an iterator's first
    taking_ns: int  # to take these out of their queue; as much again is a worker's, to put them there
    wall_ns: int  # of the run
    cpu_ns: int  # that this process used in it, on all CPUs

    @classmethod
    def of(cls, facts: Facts, own: Sequence[Loader], main: Loader, cost: int) -> _ByWorkers:
        every = sum(v.fetches.wall_ns for v in own)
        mine = cost * main.fetches.wall_ns // every if every else cost
        fetches = main.fetches
        ahead = mine * fetches.wall_ns // max(1, fetches.wall_ns + fetches.first_wall_ns)
        taking = round((fetches.count - loaders.dropped_count(facts, main)) * 1e6 * limit("ready_batch_ms"))
        return cls(ahead, taking, facts.wall_ns, cpus.own_ns(facts))

    def pays(self, overlaps: bool) -> bool:
        """`overlaps`: making the batches is mostly waiting, so that workers take little CPU from the training."""
        least = limit("overlapping_share") if overlaps else limit("half_share")
        return self.ahead_ns - self.taking_ns >= least * self.ahead_ns

    def share(self, cost: int, room: float | None) -> float:
        """What they save of the cost, at most. `room`: CPUs for the training and for them, who compute as much as it
        did; None: they only wait, or it is not known."""
        saved: float = self.ahead_ns - self.taking_ns
        if room is not None:
            work = self.cpu_ns + 2 * self.taking_ns
            saved = min(saved, self.wall_ns - work / (room * limit("shared_cpus_use")))
        return max(0.0, saved) / cost


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


def _of_few(facts: Facts, affected: Affected, of_all: _Advice) -> _Advice:
    """For batches that few steps wait for: workers must be far ahead of them, and each has a cache of its own."""
    if facts.is_of_the_first(affected, "data_wait"):
        return dataclasses.replace(of_all, variant="filling", lead=(Said("fill_before"), *of_all.lead))
    ahead = min(_FARTHEST, max(2, math.ceil(facts.steps / affected.steps / of_all.workers)))
    lead = (Said("see_long_ones_or_run_ahead"), *of_all.lead)
    return dataclasses.replace(of_all, variant="seldom", lead=lead, note=None, ahead=ahead)


def _by_batch(loader: Loader | None) -> Said:
    """How to fetch a whole batch by one indexing; torch's own classes are not the user's to change."""
    if loader is None:
        return Said("wrap_data")
    if loader.description.get("sampler") == "BatchSampler":
        return Said("cheaper_batch")  # it is fetched so
    if loaders.is_stream(loader):
        return Said("yield_batches")
    names = loaders.dataset_names(loader)
    own = next((n for n in names if n not in loaders.TORCHS_DATASETS), "")
    outer = set(names[: names.index(own)]) if own else set(names)
    if own and outer <= {"Subset"}:  # which passes a batch's indices on
        return Said("make_batch_at_once", {"own": own})
    if own or not outer <= {"Subset", "TensorDataset"}:
        return Said("wrap_data")
    kind = loader.description.get("sampler") or "RandomSampler"
    sampler = f"{kind}(dataset)" if kind in ("RandomSampler", "SequentialSampler") else "sampler"
    return Said(
        "by_batch_sampler", {"sampler": sampler, "size": str(loader.description.get("batch_size") or "batch_size")}
    )


# -- samplers

_READS = {"__getitem__", "__getitems__", "open", "load", "read", "read_image", "imread"}
_MINES = re.compile(r"hard|mining|miner|loss|priorit|curriculum|adaptive|difficult|active_?learn|importance", re.I)


@rule("TP106", "slow-sampler", loaders.SAMPLER_LIMITS, needs=_NEEDS)
def slow_sampler(facts: Facts, limits: Limits) -> Outcome:
    """What draws the batches' indices takes long: it runs on the training thread, with workers too."""
    claims = loaders.told_sampler(facts)
    cost = sum(claims.values())
    if facts.grade(cost, limits) is None:
        return None
    inside = loaders.sampler_samples(facts, claims)
    seen = sum(d.count for d in inside)
    spots = facts.spots(inside, keep=lambda stack: frames.in_sampler(frames.from_users(stack)))
    top = spots[0] if spots else None
    of_top = [d for d in inside if top is None or facts.is_at(d, top)]
    waits = loaders.blocked_share(of_top) >= limit("half_share")
    call = call_of(of_top, facts.machine) if waits else ""
    used = [v for v in facts.run.loaders.values() if v.fetches.count]
    # Of several it is not known whose sampler it is.
    workers = loaders.num_workers(used[0]) if len(used) == 1 else 0
    rest = sum(facts.cells("data_wait", ["fetch"]).values()) - cost
    return Diagnosis(
        variant=_drawn_by(facts, inside) or ("waiting" if waits else "computing"),
        claim=Claim("data_wait", claims),
        params={
            "rest": Ns(rest / facts.steps),
            "name": facts.label(top) if top is not None else _torchs_own(facts, inside) or Said("the_sampler"),
            "place": facts.label(top),
            "share": Share(top.share) if top is not None else None,
            "call": call or None,
            "workers": Count(workers) if workers else None,
        },
        place=facts.where(top),
        affected=facts.affected("data_wait"),
        sure=Sure(seen, "sampled"),
    )


def _drawn_by(facts: Facts, inside: Sequence[Detail]) -> str:
    """What is drawn by the results of training cannot be drawn ahead; what is read to decide can be read once."""
    return "by_scores" if _follows_training(facts, inside) else "reading" if _reads_data(facts, inside) else ""


def _reads_data(facts: Facts, inside: Sequence[Detail]) -> bool:
    """It reads samples, or files, as it draws."""

    def reads(d: Detail) -> bool:
        drawing = itertools.takewhile(lambda f: not frames.in_sampler((f,)), facts.run.stack(d.stack))
        return any(f.function.rpartition(".")[2] in _READS for f in drawing)

    mine = sum(d.ns for d in inside if reads(d) or _of_file(facts, d))
    return mine >= limit("half_share") * sum(d.ns for d in inside)


def _of_file(facts: Facts, d: Detail) -> bool:
    return d.state == "blocked" and waiting_kind(call_of([d], facts.machine)) in ("file", "socket")


def _follows_training(facts: Facts, inside: Sequence[Detail]) -> bool:
    """By its name, or as the loop calls the sampler's class elsewhere, such as to give it losses."""
    names = {f.function for d in inside for f in _drawing(facts, d)}
    if any(_MINES.search(name) for name in names):
        return True
    # What is iterated is the sampler, which may call other classes, such as the dataset, to choose.
    iterated = {
        (f.file, name[: -len(".__iter__")])
        for d in inside
        for f in _drawing(facts, d)
        if (name := f.function).endswith(".__iter__")
    }
    stacks = map(
        facts.run.stack, {d.stack for d in facts.samples(phases=["forward", "backward", "optimizer", "other"])}
    )
    return any(
        (f.file, f.function.rpartition(".")[0]) in iterated
        for stack in stacks
        if not frames.in_sampler(stack)
        for f in stack
    )


def _drawing(facts: Facts, d: Detail) -> Iterator[frames.FrameLike]:
    """The user's frames of the sampler."""
    stack = facts.run.stack(d.stack)
    below = itertools.takewhile(lambda f: not frames.in_sampler((f,)), stack)
    return (f for f in below if frames.is_users(f, stack))


def _torchs_own(facts: Facts, inside: Sequence[Detail]) -> str:
    """The class of a sampler that is not the user's, as far as its frames tell; CPython 3.10's tell no class."""
    names: dict[str, int] = {}
    for d in inside:
        name = next(filter(None, map(_sampler, facts.run.stack(d.stack))), "")
        names[name] = names.get(name, 0) + d.ns
    return max(names, key=lambda name: names[name], default="")


def _sampler(frame: frames.FrameLike) -> str:
    kind, _, method = frame.function.rpartition(".")
    return kind if method == "__iter__" and kind.endswith("Sampler") else ""


# -- batches that are dropped

_TRAINER = re.compile(r"[/\\]transformers[/\\]trainer\w*\.py$")


@rule("TP107", "skipped-batches", loaders.SKIPPED_LIMITS, needs=_NEEDS)
def skipped_batches(facts: Facts, limits: Limits) -> Outcome:
    """Batches are made and dropped, as where a training resumes within an epoch."""
    mine = facts.once(loaders.skipped)
    if mine is None or facts.grade(mine.ns, limits) is None:
        return None
    workers, name = loaders.num_workers(mine.main), loaders.dataset_name(mine.main)
    fetching = Fetching.of(facts, facts.cells("data_wait", ["fetch"]), without_sampler=False) if not workers else None
    resumed = "resumed_stream" if loaders.is_stream(mine.main) else "resumed"
    table = facts.run.steps
    order = sorted((table.fetches / table.count).tolist())
    return Diagnosis(
        variant=resumed if mine.in_first else "later",
        claim=Claim("data_wait", mine.claims),
        params={
            **(fetching.params(facts, name) if fetching is not None else {}),
            "name": name,
            "batches": Count(mine.batches),  # ten or more
            "steps": Count(mine.steps),
            "all": Ns(mine.ns),
            "each": Ns(mine.ns / mine.batches),
            "usual": Count(max(1, round(order[len(order) // 2]))),
            "workers": Count(workers) if workers else None,
            "caller": _caller(facts),
            "in_trainer": _in_trainer(facts),
        },
        place=(facts.where(fetching.top) if fetching is not None else "") or loaders.dataset_place(mine.main, facts),
        who=loaders.who(facts, workers),
        affected=Affected(mine.steps, 1.0),
        sure=Sure(fetching.samples if fetching is not None else None, doubts=(Said("other_use"),)),
    )


def _caller(facts: Facts) -> str | None:
    """The user's line that fetches; None where a library's loop does, or it was not seen."""
    seen = [d for d in facts.samples(phases=["fetch"]) if frames.in_loader(facts.run.stack(d.stack))]
    spots = facts.spots(seen, seen_from=lambda stack: stack[frames.in_loaders(stack) :])
    return facts.label(spots[0]) if spots and spots[0].frame.function != "<module>" else None


def _in_trainer(facts: Facts) -> bool:
    """Hugging Face's, with our callback or without."""
    return bool(framework.arguments(facts.run.meta)) or any(
        _TRAINER.search(f.file) for d in facts.samples(phases=["fetch"]) for f in facts.run.stack(d.stack)
    )


# -- loaders that begin


@rule("TP104", "worker-startup", PURE_LOSS, needs=_NEEDS)
def worker_startup(facts: Facts, limits: Limits) -> Outcome:
    """Worker processes start, or have an empty queue; or a loader begins again for each batch."""
    restarts = facts.once(loaders.restarts)
    if restarts is not None and (found := _each_batch(facts, restarts, limits)) is not None:
        return found
    waits = _waits(facts)
    if waits is None:
        return None
    if waits.again:
        return _again(facts, waits, limits) or _once(facts, waits, limits)
    if waits.refilled_ns > waits.started_ns:
        return _empty_queue(facts, waits, limits)
    return _once(facts, waits, limits)


def _each_batch(facts: Facts, restarts: Restarts, limits: Limits) -> Diagnosis | None:
    claims, main = restarts.claims, restarts.main
    cost = sum(claims.values())
    if facts.grade(cost, limits) is None:
        return None
    workers, persistent = loaders.num_workers(main), bool(main.description.get("persistent_workers"))
    samples = facts.samples(phases=["fetch"])
    begins = [d for d in samples if frames.begins_loader(facts.run.stack(d.stack))] or samples
    called = facts.spots(begins, seen_from=lambda stack: stack[frames.in_loaders(stack) :])
    drawn = sum(d.count for d in samples if frames.in_sampler(facts.run.stack(d.stack)))
    left = restarts.left.ns
    return Diagnosis(
        variant="each_batch_in_process" if not workers else "each_batch_kept" if persistent else "each_batch",
        claim=Claim("data_wait", claims),
        slug="loader-restarts",
        params={
            "starts": Count(restarts.starts),
            "batches": Count(restarts.batches),
            "second": restarts.batches >= 1.5 * restarts.starts,
            "each": Ns(cost / restarts.starts),
            "drawing": Ns(restarts.sampled_ns / restarts.starts) if restarts.sampled_ns else None,
            "left": Ns(left / restarts.starts) if left > cost / 20 else None,
            "workers": Count(workers),
            "persistent": str(persistent),
            "shuffles": main.description.get("sampler") != "SequentialSampler",  # or is not known to do otherwise
            **_drawn_by_what(main),
            "anew": restarts.anew,
        },
        place=facts.where(called[0] if called else None) or loaders.dataset_place(main, facts),
        who=loaders.who(facts, workers),
        sure=Sure() if workers else Sure(drawn, "sampled"),
    )


def _drawn_by_what(loader: Loader) -> Params:
    named = loader.description.get("batch_sampler")
    named = loader.description.get("sampler") if named in (None, "", "BatchSampler") else named
    length = loader.description.get("dataset_length")
    return {
        "sampler": str(named) if named else Said("its_sampler"),
        "length": Count(length) if isinstance(length, int) else None,
    }


@dataclass(frozen=True, slots=True)
class _Waits:
    """What iter(loader) and the first batch after it took: ns by step."""

    main: Loader  # that took the most
    starts: int
    started: Mapping[int, int]  # worker processes started there: in one step, or in the last of an epoch and the next
    refills: int
    refilled: Mapping[int, int]  # those of an earlier epoch went on
    first_ns: int  # of started_ns: each loader's first start; where loaders are made anew, the first of all
    imports: bool  # later starts take as long: each imports the program again, or what a fork server has not imported
    ended_ns: int  # what stopping them took at the end of an epoch
    left: Part  # and where the loop left an epoch before
    again: bool  # workers of a loader started more than once, or each start was of a loader made anew
    anew: bool

    @property
    def started_ns(self) -> int:
        return sum(self.started.values())

    @property
    def refilled_ns(self) -> int:
        return sum(self.refilled.values())

    @property
    def stopping_ns(self) -> int:
        return self.ended_ns + self.left.ns

    @property
    def stops(self) -> bool:
        """Whether it takes notable time to stop them."""
        return self.stopping_ns > self.started_ns / 20

    @property
    def method(self) -> str:
        """ "fork", "spawn", "forkserver" or ""."""
        return str(self.main.description.get("multiprocessing_context") or "")

    def first_share(self, loaders: int) -> float:
        """Of all of it, what the first start of each of so many loaders takes, and to stop its workers."""
        stopping = self.stopping_ns * min(loaders, self.starts) // self.starts
        return min(1.0, (self.first_ns + stopping) / max(1, self.started_ns + self.stopping_ns))

    def claims(self, facts: Facts) -> dict[Cell, int]:
        """Of starting the workers, and stopping them: with the waits for a CPU, which the same processes compete
        for."""
        cells = facts.cells("data_wait", ["fetch"]) | facts.cells("descheduled", ["fetch"])
        return loaders.spread(cells, self.started_ns + self.ended_ns) | self.left.claims

    def diagnosis(self, facts: Facts, variant: str, claims: Mapping[Cell, int], **differs: Any) -> Diagnosis:
        """With what all variants say of the workers; `differs`: the rest of it."""
        workers = loaders.num_workers(self.main)
        params: Params = {
            "workers": Count(workers),
            "persistent": str(bool(self.main.description.get("persistent_workers"))),
            "method": self.method or None,
            **differs.pop("params"),
        }
        return Diagnosis(
            variant=variant,
            claim=Claim("data_wait", claims),
            params=params,
            place=loaders.dataset_place(self.main, facts),
            who=loaders.who(facts, workers),
            **differs,
        )


def _again(facts: Facts, waits: _Waits, limits: Limits) -> Diagnosis | None:
    claims = waits.claims(facts)
    # A first start may be most of it: that of a fork server, which imports the program once.
    again = 1 - waits.first_share(1 if waits.anew else len(loaders.with_workers_of(facts)))
    severity = facts.grade(int(_waited(facts, claims) * again), limits)
    if severity is None:
        return None
    count = len(waits.started)
    # Where each start imports what the program has imported: another way to start, as long as workers start again.
    imports = waits.imports and waits.method in ("spawn", "forkserver")
    return waits.diagnosis(
        facts,
        "anew" if waits.anew else "each_epoch",
        claims,
        role="once",
        severity=severity,
        params={
            "count": Count(count),
            "others": Count(facts.steps - count),
            "starts": Count(waits.starts),
            "each": Ns(sum(claims.values()) / waits.starts),
            "first": Ns(waits.first_ns) if waits.method == "forkserver" and not waits.imports else None,
            "stopping": Ns(waits.stopping_ns / waits.starts) if waits.stops else None,
            "imports": imports,
            "by_spawn": imports and waits.method == "spawn",
        },
        affected=count,
        saves=Saves(share=again),
    )


def _once(facts: Facts, waits: _Waits, limits: Limits) -> Diagnosis | Unsure | None:
    claims = waits.claims(facts)
    if facts.grade(_waited(facts, claims), limits) is None:
        return None
    if facts.steps < limit("critical_min_steps"):
        return Unsure("one_start")
    affected = len(waits.started) + waits.stops  # it stops in the last step
    return waits.diagnosis(
        facts,
        "once",
        claims,
        role="once",
        severity="info",
        params={
            "cost": Ns(sum(claims.values())),
            "first": Ns(waits.first_ns),
            "stopping": Ns(waits.stopping_ns) if waits.stops else None,
            "others": Count(facts.steps - affected),
        },
        affected=affected,
        saves=Saves(share=0.0),
    )


def _empty_queue(facts: Facts, waits: _Waits, limits: Limits) -> Diagnosis | None:
    claims = loaders.spread(facts.cells("data_wait", ["fetch"]), waits.refilled_ns)
    if facts.grade(sum(claims.values()), limits) is None:
        return None
    count = len(waits.refilled)
    return waits.diagnosis(
        facts,
        "empty_queue_of_stream" if loaders.is_stream(waits.main) else "empty_queue",
        claims,
        slug="first-batches",
        severity="info",
        params={
            "count": Count(count),
            "others": Count(facts.steps - count),
            "refills": Count(waits.refills),
            "each": Ns(sum(claims.values()) / waits.refills),
        },
        affected=count,
    )


def _waits(facts: Facts) -> _Waits | None:
    trained = {k: v for k, v in facts.run.loaders.items() if not loaders.only_validates(v)}
    with_workers = {k: v for k, v in trained.items() if loaders.num_workers(v) > 0}
    times = _times(facts, with_workers)
    if not times:
        return None
    starts = {k: loaders.worker_starts(with_workers[k], len(of)) for k, of in times.items()}
    started, refilled = Counter[int](), Counter[int]()
    for k, of in times.items():
        for i, s in ((i, s) for i, time in enumerate(of) for s in time):
            (started if i < starts[k] else refilled)[s.step] += s.end_ns - s.start_ns
    # What no fetch has: the last next() of an epoch, which stops the workers and waits for their end. Walls, as these
    # are: with what kept the thread off the CPU meanwhile.
    known = started.total() + refilled.total() + sum(v.fetches.wall_ns for v in with_workers.values())
    ended = max(0, facts.run.phase_ns("fetch") - known) if len(with_workers) == len(trained) else 0
    anew = _made_anew(times.values())
    # What each start took: by loader, in the order in which they began.
    took = [[_ns(time) for time in of[: starts[k]]] for k, of in times.items()]
    firsts, later = _firsts([[first for (first,) in took]] if anew else took)
    return _Waits(
        main=with_workers[max(times, key=lambda k: sum(map(_ns, times[k])))],
        starts=sum(starts.values()),
        refills=sum(len(of) - starts[k] for k, of in times.items()),
        started=started,
        refilled=refilled,
        first_ns=sum(firsts),
        imports=_as_long(firsts, later),
        ended_ns=ended,
        left=facts.once(loaders.loaders_end),
        again=anew or max(starts.values()) > 1,
        anew=anew,
    )


def _made_anew(times: Collection[_Times]) -> bool:
    """Each loader began once: what would persist are the workers of a loader that is not used again."""
    return all(len(of) == 1 for of in times) and len({of[0][0].step for of in times}) > 1


def _as_long(firsts: Sequence[int], later: Sequence[int]) -> bool:
    return bool(later) and statistics.median(later) > limit("half_share") * statistics.median(firsts)


def _firsts(took: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """And the later ones."""
    return [of[0] for of in took], [ns for of in took for ns in of[1:]]


def _times(facts: Facts, with_workers: Mapping[int, Loader]) -> dict[int, _Times]:
    """By loader."""
    times: dict[int, _Times] = {}
    # A first fetch lies beside its start, never in it, so the two add up.
    spans = itertools.chain(facts.run.spans("loader_start"), facts.run.spans("first_fetch"))
    for s in sorted(spans, key=lambda s: s.start_ns):
        if s.object in with_workers and s.step >= 0:
            began = times.setdefault(s.object, [])
            if began and _belongs(began[-1], s):
                began[-1].append(s)
            else:
                began.append([s])
    return times


def _belongs(time: Sequence[Span], s: Span) -> bool:
    """Whether it is of that time too: each start has its first fetch, and zip(loader, loader) starts a loader twice."""
    fetched = sum(t.kind == "first_fetch" for t in time)
    return fetched == 0 if s.kind == "loader_start" else fetched < len(time) - fetched


def _ns(spans: Sequence[Span]) -> int:
    return sum(s.end_ns - s.start_ns for s in spans)


def _waited(facts: Facts, claims: Mapping[Cell, int]) -> int:
    """Of these: without waits for a CPU. A warning is measured by what the machine left to the run."""
    return sum(ns for cell, ns in claims.items() if facts.cause_of(cell) != "descheduled")
