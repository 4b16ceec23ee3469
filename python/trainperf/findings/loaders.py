"""Where the fetches' time went, by loader, and what DataLoader workers do: what the rules about data share."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from trainperf.findings import frames
from trainperf.findings.inside import CPU, WAITING, Line, state_of
from trainperf.findings.model import Cell, Limits, Params, Said
from trainperf.findings.places import NOTHING, Part, by_cell, library_call, weighed
from trainperf.findings.text import Bytes, Count, Number, plural
from trainperf.findings.thresholds import limit
from trainperf.findings.waits import syscall_name
from trainperf.runfile.schema import CAUSES, MECHANISM_OF, PHASES, described

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.runfile import Detail, Frame, Int64Array, Loader, Worker

SAMPLER_LIMITS = Limits(limit("warn_share"), limit("critical_share"))
SKIPPED_LIMITS = Limits(limit("rare_warn_share"), limit("critical_share"))
TORCHS_DATASETS = {"TensorDataset", "Subset", "ConcatDataset", "StackDataset", "ChainDataset"}
_FILE_LOCKS = {"flock", "fcntl"}


@dataclass(frozen=True, slots=True)
class WorkerView:
    """The worker processes of one loader, or of several of a kind, summed up."""

    count: int
    read: int  # of how many the CPU share is known
    cpu_share: float  # mean over those; of one CPU
    slowest: float  # the largest share
    looks: int  # at all of them together
    running: float  # share of the looks at which a worker ran, or was ready to
    least_running: float  # likewise, of the worker that ran least

    @property
    def told(self) -> bool:
        """Whether there is enough to say what they do."""
        return self.read > 0 and self.looks >= limit("min_looks")

    @property
    def computes(self) -> bool:
        """They are on the CPU; or, where CPUs are short, wait for one. Never so of workers that were hardly seen."""
        return self.told and (self.cpu_share >= limit("cpu_bound_share") or self.running >= limit("cpu_bound_share"))

    @property
    def busiest_computes(self) -> bool:
        """One of them at least."""
        return self.told and self.slowest >= limit("cpu_bound_share")

    @property
    def one_computes(self) -> bool:
        """Only one does: batches are passed on in order, so that the others wait for it. Shares that differ by less
        come of even work, too, where the workers do not get a CPU each."""
        rest = (self.cpu_share * self.read - self.slowest) / max(1, self.read - 1)
        even = self.all_run or rest > limit("half_share") * self.slowest
        return self.busiest_computes and not self.computes and not even

    @property
    def all_run(self) -> bool:
        """Each runs, or is ready to, for at least half of the time."""
        return self.told and self.least_running >= limit("half_share")

    @property
    def waits(self) -> bool:
        """They hardly compute."""
        return (
            self.told
            and not (self.computes or self.busiest_computes)
            and self.cpu_share <= 1 - limit("cpu_bound_share")
        )

    @property
    def short_of_cpu(self) -> bool:
        return self.computes and self.cpu_share < limit("cpu_bound_share")


def num_workers(loader: Loader) -> int:
    value = loader.description.get("num_workers", 0)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def workers_text(loader: Loader) -> str:
    """ "4 workers"; a trace tells that there are some, but not how many."""
    return plural(num_workers(loader), "worker") if loader.description.get("num_workers_known", True) else "the workers"


def dataset_name(loader: Loader) -> str:
    return str(loader.description.get("dataset") or "the dataset")


def dataset_names(loader: Loader) -> tuple[str, ...]:
    """("Subset", "MyImages") of "Subset(MyImages)"."""
    return tuple(dataset_name(loader).rstrip(")").split("("))


def dataset_place(loader: Loader, facts: Facts) -> str:
    """ "train.py:41" where the dataset reads, "" when it was not recorded."""
    at = loader.description.get("dataset_at") or ""
    if isinstance(at, str) and at:
        file, _, line = at.rpartition(":")
        return f"{frames.short_path(file, facts.base)}:{line}" if file else at
    return ""


def dataset_file(loader: Loader) -> str:
    """Where that is; "" when it was not recorded."""
    return str(loader.description.get("dataset_at") or "").rpartition(":")[0]


def collate_names(loader: Loader, facts: Facts) -> tuple[str, ...]:
    """("pad (train.py:41)",) of a collate_fn that is neither torch's nor a trainer's."""
    name, at = (str(loader.description.get(key) or "") for key in ("collate_fn", "collate_at"))
    file, _, line = at.rpartition(":")
    if not name or frames.is_framework(file):
        return ()
    place = f" ({frames.short_path(file, facts.base)}:{line})" if file else ""
    return (f"{name.rpartition('.')[2]}{place}",)


def worker_view(loader: Loader, *others: Loader) -> WorkerView:
    """`others`: loaders of the same kind, such as a new one in each epoch."""
    workers: list[Worker] = [w for v in (loader, *others) for w in v.workers]
    looks, running = sum(sum(w.states.values()) for w in workers), sum(w.states.get("R", 0) for w in workers)
    shares = [w.cpu_share for w in workers if w.cpu_share is not None]
    return WorkerView(
        count=num_workers(loader) or len(workers),
        read=len(shares),
        cpu_share=sum(shares) / len(shares) if shares else 0.0,
        slowest=max(shares, default=0.0),
        looks=looks,
        running=running / max(1, looks),
        least_running=min((w.states.get("R", 0) / max(1, sum(w.states.values())) for w in workers), default=0.0),
    )


@dataclass(frozen=True, slots=True)
class SharedLock:
    """A lock of several processes, which workers wait for."""

    share: float  # of the looks at them at work
    call: str  # in which most of these waits are: "futex", "flock"

    @property
    def of_file(self) -> bool:
        """Whoever opens that file waits for it, by whatever handle."""
        return self.call in _FILE_LOCKS


def shared_lock(facts: Facts, loader: Loader, workers: int) -> SharedLock | None:
    """None where the looks that found one waiting are too few, or fewer than serialized workers have: of w workers that
    wait for one lock all the time, 1 - 1/w wait.

    An idle worker is in no such wait: it polls the queue of its indices.
    """
    looks, calls = 0, Counter[str]()
    for worker in loader.workers:
        for (call, shared), count in worker.waits.items():
            looks += count
            name = syscall_name(call, facts.machine)
            if shared or name in _FILE_LOCKS:
                calls[name] += count
    locked = calls.total()
    if workers < 2 or locked < limit("min_samples") or locked < limit("half_share") * (1 - 1 / workers) * looks:
        return None
    return SharedLock(locked / looks, calls.most_common(1)[0][0])


def is_stream(loader: Loader) -> bool:
    """An IterableDataset: each worker has a copy, and reads all of it unless the copies share it out."""
    return loader.description.get("kind") == "iterable" and bool(loader.description.get("is_dataloader", True))


def who(facts: Facts, workers: int) -> tuple[str, str]:
    """Who waits, and for whom."""
    return facts.step_thread_name, f"{Count(workers):worker process|worker processes}" if workers else ""


def with_workers(
    loader: Loader | None,
    workers: int,
    *,
    notes: Iterable[Said | None] = (),
    ahead: int | None = None,
    persistent: bool = False,
    spawn: bool = False,
) -> Said:
    """Code that gives a loader so many workers, and of a stream what each of them must do. `ahead`: a prefetch_factor.
    `notes`: behind the code."""
    said = tuple(note for note in notes if note is not None)
    params: Params = {
        "workers": workers,
        "ahead": ahead,
        "persistent": persistent,
        "spawn": spawn,
        "stream": loader is not None and workers > 1 and is_stream(loader),
        "notes": said or None,
    }
    return Said("with_workers", params)


def many_for_a_backward(facts: Facts, main: Loader | None) -> Number | None:
    """The batches that are fetched for each, where the loop may drop most of them, such as of a filter: not told from
    losses summed over several. None where nothing trains."""
    backwards = int(facts.run.steps.backwards.sum())
    if main is None or not backwards or told_skipped(facts):
        return None
    each = (main.fetches.count + main.fetches.first_count) / backwards
    return Number(each) if each >= limit("dropped_ratio") else None


def read_by(fix: str, reader: str) -> str:
    """A fix of a loader says whose it is: not the training's."""
    return _noted(fix, f"of the loader that {reader} reads")


def made_in(fix: str, method: str) -> str:
    return _noted(fix, f"in {method}")


def _noted(fix: str, what: str) -> str:
    before, call, after = fix.rpartition("DataLoader(")
    if not call:
        return fix
    options, note, why = after.partition("  # ")
    return f"{before}{call}{options}  # {what}{'; ' if note else ''}{why}"


def sampler_samples(facts: Facts, cells: Mapping[Cell, int]) -> list[Detail]:
    """Weighed by the samplers' exact times, `cells`."""
    inside = [d for d in facts.samples(phases=["fetch"]) if frames.in_sampler(facts.run.stack(d.stack))]
    return weighed(inside, cells)


def blocked_share(samples: Sequence[Detail]) -> float:
    return sum(d.ns for d in samples if d.state == "blocked") / max(1, sum(d.ns for d in samples))


def sampler_cells(facts: Facts) -> dict[Cell, int]:
    """Of the fetches' time: what the samplers take, which run on the training thread whatever the workers do. Of each
    mechanism's exact time by its samples; empty where those of the samplers are too few."""
    cells = facts.cells("data_wait", ["fetch"])
    seen = weighed(facts.samples(phases=["fetch"]), cells)
    inside = [d for d in seen if frames.in_sampler(facts.run.stack(d.stack))]
    drawn = sum(d.ns for d in inside)
    if not drawn or sum(d.count for d in inside) < limit("min_samples"):
        return {}
    out = {cell: min(ns, cells.get(cell, 0)) for cell, ns in by_cell(inside).items()}
    # What has no samples that tell (its mechanism is not known, say) is shared out as the rest is.
    sampled = {(d.phase, MECHANISM_OF[d.state]) for d in seen}
    share = drawn / sum(d.ns for d in seen)
    return out | {cell: round(ns * share) for cell, ns in cells.items() if cell not in sampled}


def sampler_share(facts: Facts) -> float:
    return sum(facts.once(sampler_cells).values()) / max(1, sum(facts.cells("data_wait", ["fetch"]).values()))


def seen_in_sampler(facts: Facts) -> float:
    """The share of all that was seen of fetches that samplers take, few samples as these may be; 0 of too few."""
    seen = facts.samples(phases=["fetch"])
    drawn = sum(d.ns for d in seen if frames.in_sampler(facts.run.stack(d.stack)))
    enough = sum(d.count for d in seen) >= limit("min_samples")
    return drawn / max(1, sum(d.ns for d in seen)) if enough else 0.0


def told_sampler(facts: Facts) -> dict[Cell, int]:
    """What TP106 tells; nothing of a sampler that is slow only where it begins, which is TP104's."""
    cells, begun = facts.once(sampler_cells), facts.once(restarts)
    ns = sum(cells.values())
    if begun is not None and begun.began_ns >= limit("half_share") * ns:
        return {}
    return cells if facts.grade(ns, SAMPLER_LIMITS) is not None else {}


def told_skipped(facts: Facts) -> dict[Cell, int]:
    """What TP107 reports."""
    mine = facts.once(skipped)
    return mine.claims if mine is not None and facts.grade(mine.ns, SKIPPED_LIMITS) is not None else {}


def dropped_count(facts: Facts, loader: Loader) -> int:
    """Its batches of those that TP107 reports."""
    mine = facts.once(skipped) if told_skipped(facts) else None
    return mine.batches if mine is not None and mine.main.id == loader.id else 0


def workers_cells(facts: Facts) -> dict[Cell, int]:
    """The waits of fetches, without their samplers and what TP107 reports."""
    return fetch_cells(facts, facts.once(sampler_cells))


def fetch_cells(facts: Facts, drawn: Mapping[Cell, int]) -> dict[Cell, int]:
    """Likewise. `drawn`: the samplers' part."""
    dropped = told_skipped(facts)
    return {
        cell: max(0, ns - drawn.get(cell, 0) - dropped.get(cell, 0))
        for cell, ns in facts.cells("data_wait", ["fetch"]).items()
    }


def with_workers_of(facts: Facts, *, without_sampler: bool = True) -> list[Loader]:
    """The loaders that have workers; their fetches without the samplers' time, and without garbage collection, which
    has a cause of its own: it comes with the objects of a batch, so that each fetch has its part, however long it
    waits."""
    left = 1 - sampler_share(facts) if without_sampler else 1
    fetches = sum(v.fetches.count + v.fetches.first_count for v in facts.run.loaders.values())
    collecting = facts.matrix["fetch", "gc"] / max(1, fetches)

    def own(ns: int, count: int) -> int:
        return round(max(0.0, ns - collecting * count) * left)

    return [
        replace(
            v,
            fetches=replace(
                v.fetches,
                wall_ns=own(v.fetches.wall_ns, v.fetches.count),
                ready_wall_ns={r: own(ns, v.fetches.ready.get(r, 0)) for r, ns in v.fetches.ready_wall_ns.items()},
            ),
        )
        for v in facts.run.loaders.values()
        if num_workers(v) > 0
    ]


def worker_starts(loader: Loader, epochs: int) -> int:
    """How often its worker processes started, in as many epochs: persistent ones once, unless more were seen."""
    if not loader.description.get("persistent_workers"):
        return epochs
    return min(epochs, max(1, len(loader.workers) // num_workers(loader)))


def only_validates(loader: Loader) -> bool:
    return loader.fetches.validation_count > 0 and not (loader.fetches.count or loader.fetches.first_count)


def starved_ns(loader: Loader) -> int:
    """Wall time of fetches that found no batch ready (or: it is not known), an iterator's first left out."""
    return sum(ns for ready, ns in loader.fetches.ready_wall_ns.items() if ready <= 0)


def starved_count(loader: Loader) -> int:
    return sum(n for ready, n in loader.fetches.ready.items() if ready <= 0)


def ready_ns(loader: Loader) -> int:
    return sum(ns for ready, ns in loader.fetches.ready_wall_ns.items() if ready > 0)


def ready_count(loader: Loader) -> int:
    return sum(n for ready, n in loader.fetches.ready.items() if ready > 0)


def ready_mean_ns(loader: Loader) -> float:
    """Of at least one such fetch."""
    return ready_ns(loader) / ready_count(loader)


def _most_ahead(loader: Loader) -> int:
    """Batches that its workers may have made before they are asked for."""
    prefetched = loader.description.get("prefetch_factor")
    return num_workers(loader) * (prefetched if isinstance(prefetched, int) else 2)


def late_by_workers(loader: Loader, view: WorkerView) -> bool:
    """Fetches are blocked, and workers mostly compute and are not as far ahead as they may be: each hands its batches'
    tensors over in a thread of its own, which then waits for its GIL or a CPU. To unpack them is the training thread's
    own work.
    """
    fetches, most = loader.fetches, _most_ahead(loader)
    blocked_ns = fetches.wall_ns - fetches.cpu_ns - fetches.gil_wait_ns
    ahead_ns = sum(ns for ready, ns in fetches.ready_wall_ns.items() if ready >= most - most // 8)
    late_ns = min(blocked_ns, fetches.wall_ns - ahead_ns)
    mostly = max(view.cpu_share, view.running) >= limit("half_share")
    return view.told and mostly and late_ns >= limit("half_share") * fetches.wall_ns


def mostly_starved(loader: Loader, slow_ns: float) -> bool:
    """Where most fetches find nothing ready, or a worker never stops computing, a batch that is ready has only just
    come (the worker counts it before its own thread has sent it): it tells nothing of delivery. So too where workers
    mostly compute, or batches come late (`slow_ns`), unless most fetches find more than one a worker: of these all but
    one each are sent, so that the workers keep up."""
    view = worker_view(loader)
    if starved_count(loader) > ready_count(loader) or view.busiest_computes:
        return True
    if _mostly_finds(loader, num_workers(loader) + 1):
        return False
    if view.computes or late_by_workers(loader, view):
        return True
    slow = ready_ns(loader) - loader.fetches.gil_wait_ns >= slow_ns * ready_count(loader)
    return slow and not _mostly_finds(loader, _most_ahead(loader))


def _mostly_finds(loader: Loader, enough: int) -> bool:
    """Half or more of the fetches that find a batch ready find so many."""
    found = sum(n for ready, n in loader.fetches.ready.items() if ready >= enough)
    return ready_count(loader) <= 2 * found


def slow_delivery_ns(facts: Facts) -> float:
    """The wait from which a ready batch was not delivered; longer where the threads that pass it on lack CPU."""
    short = min(0.75, facts.share(facts.cause_ns("descheduled")))
    return limit("ready_wait_ms") * 1e6 / (1 - short)


def spread(cells: Mapping[Cell, int], amount: int) -> dict[Cell, int]:
    """`amount` (at most the cells' sum) over the cells in proportion, to the nanosecond."""
    whole = sum(cells.values())
    amount = max(0, min(amount, whole))
    if not amount:
        return {}
    out: dict[Cell, int] = {}
    left = amount
    for i, (cell, ns) in enumerate(cells.items()):
        part = left if i == len(cells) - 1 else min(ns, amount * ns // whole)
        part = min(part, ns)
        if part:
            out[cell] = part
        left -= part
    for cell, ns in cells.items():  # what integer division and the caps left over
        if left <= 0:
            break
        room = min(ns - out.get(cell, 0), left)
        if room > 0:
            out[cell] = out.get(cell, 0) + room
            left -= room
    return out


# -- loaders that begin again for each batch, as `next(iter(loader))` does: what all that beginning costs


@dataclass(frozen=True, slots=True)
class Restarts:
    main: Loader  # of those, the one that costs most
    starts: int
    batches: int
    anew: bool  # each start was of a loader made anew
    sampled_ns: int  # by samples: what drew the indices of those without workers
    in_process_ns: int  # of the fetches' time: that and iter(loader), of those without workers
    began_ns: int  # of the fetches' time, in all
    left: Part  # what came after a batch: its workers stop, its indices go
    claims: dict[Cell, int]


def restarts(facts: Facts) -> Restarts | None:
    """None: each loader goes on, to the end of its epoch or for several batches; or a framework's loop begins them, for
    as few batches as it was told to."""
    if facts.run.meta.get("framework"):
        return None
    found = [v for v in facts.run.loaders.values() if _begins_again(v)]
    starts = sum(v.fetches.first_count for v in found)
    if starts < limit("restart_min_starts") or 2 * starts < facts.steps:
        return None
    cells = facts.cells("data_wait", ["fetch"])
    began = _starts_ns(facts, found)
    in_process = [v for v in found if not num_workers(v)]
    # What a batch itself takes they take however they go on.
    sampled = min(sum(facts.once(sampler_cells).values()), sum(v.fetches.first_wall_ns for v in in_process))
    in_process_ns = sum(began[v.id] for v in in_process) + sampled
    by_workers = {v.id: began[v.id] + v.fetches.first_wall_ns for v in found if num_workers(v)}
    began_ns = in_process_ns + sum(by_workers.values())
    left = _outside(facts, frames.stops_workers if by_workers else frames.gives_back)
    return Restarts(
        main=max(found, key=lambda v: by_workers.get(v.id, began[v.id] + v.fetches.first_wall_ns)),
        starts=starts,
        batches=sum(v.fetches.count + v.fetches.first_count for v in found),
        anew=all(v.fetches.first_count == 1 for v in found),
        sampled_ns=sampled,
        in_process_ns=in_process_ns,
        began_ns=began_ns,
        left=left,
        claims=spread(cells, began_ns) | left.claims,
    )


def loaders_end(facts: Facts) -> Part:
    """What loaders take outside of fetches, to stop workers or to give back what they did not use."""
    begun = facts.once(restarts)
    return begun.left if begun is not None else workers_stop(facts)


def reported_end(facts: Facts) -> frozenset[Detail]:
    """The samples of that, where a rule before this one claimed it."""
    end = facts.once(loaders_end)
    told = end.ns > 0 and all(facts.matrix[c] - facts.ledger.left(c) >= ns for c, ns in end.claims.items())
    return frozenset(end.details if told else ())


def workers_stop(facts: Facts) -> Part:
    """Outside of a fetch workers stop where the loop leaves an epoch before its end, or lets an iterator go."""
    found = [v for v in facts.run.loaders.values() if num_workers(v)]
    if not found or any(map(only_validates, found)):  # may be a validation's
        return NOTHING
    return _outside(facts, frames.stops_workers)


def _begins_again(loader: Loader) -> bool:
    """Each time after a batch or two, and most times before the end of an epoch, which may be that short."""
    f = loader.fetches
    few = f.first_count > 0 and f.count + f.first_count <= limit("restart_batches") * f.first_count
    return few and f.exhausted_count <= limit("half_share") * f.first_count


def _starts_ns(facts: Facts, found: Sequence[Loader]) -> dict[int, int]:
    """What iter(loader) took. Only the longest spans are kept: the rest is of who begins most often."""
    took = {v.id: 0 for v in found}
    whole = facts.run.span_total("loader_start").ns
    for s in facts.run.spans("loader_start"):
        whole -= s.end_ns - s.start_ns
        if s.object in took:
            took[s.object] += s.end_ns - s.start_ns
    most = max(found, key=lambda v: v.fetches.first_count, default=None)
    if most is not None:
        took[most.id] += max(0, whole)
    return took


def _outside(facts: Facts, is_it: Callable[[Sequence[Frame]], bool]) -> Part:
    """Of the time outside of fetches."""
    cells = itertools.product(("forward", "backward", "optimizer", "other"), ("python", "native", "blocked"))
    return facts.part_of(cells, lambda d: is_it(facts.run.stack(d.stack)))


# -- batches that the loop fetches and does not train on before a step, as where a training resumes within an epoch


@dataclass(frozen=True, slots=True)
class Skipped:
    """The steps that fetched many times as many batches as the others, and did little else with them."""

    main: Loader
    batches: int
    steps: int
    in_first: bool  # all of them before the first backward
    claims: dict[Cell, int]

    @property
    def ns(self) -> int:
        return sum(self.claims.values())


def skipped(facts: Facts) -> Skipped | None:
    """None: each step fetches about as many, or trains on what it fetches."""
    table = facts.run.steps
    read = [v for v in facts.run.loaders.values() if v.fetches.count]
    if facts.of_trace or not read or not len(table.count):
        return None
    each = table.fetches / table.count
    usual = max(1.0, float(np.median(each)), float(np.median(table.backwards / table.count)))
    fetching = table.phases_ns[:, PHASES.index("fetch")]
    many = (table.count == 1) & (table.fetches >= limit("skipped_ratio") * np.maximum(usual, table.backwards))
    many &= fetching >= limit("most_share") * table.wall_ns
    if not many.any():
        return None
    dropped = np.where(many, table.fetches - round(usual), 0)
    waited = table.causes_ns[:, CAUSES.index("data_wait")] - _starting(facts, table.index)
    ns = int((np.maximum(waited, 0)[many] * (dropped[many] / table.fetches[many])).sum())
    return Skipped(
        main=max(read, key=lambda v: v.fetches.count),
        batches=int(dropped.sum()),
        steps=int(many.sum()),
        in_first=bool(many[0]) and int(many.sum()) == 1 and int(table.index[0]) == 0,
        claims=spread(facts.cells("data_wait", ["fetch"]), ns),
    )


def _starting(facts: Facts, steps: Int64Array) -> Int64Array:
    """What iterators' starts and first batches took in these steps, which is TP104's."""
    took: dict[int, int] = {}
    for s in (*facts.run.spans("loader_start"), *facts.run.spans("first_fetch")):
        took[s.step] = took.get(s.step, 0) + s.end_ns - s.start_ns
    return np.array([took.get(int(step), 0) for step in steps], dtype=np.int64)


# -- what workers do, by samples of their main threads: by activity, and by line of the user's

Activity = Literal["samples", "transforms", "collate", "shared memory", "queue", "idle", "other"]

_LOOP: Final = re.compile(r"[/\\]torch[/\\]utils[/\\]data[/\\]_utils[/\\]worker\.py$")
_FETCH: Final = re.compile(r"[/\\]torch[/\\]utils[/\\]data[/\\]_utils[/\\]fetch\.py$")
_COLLATE: Final = re.compile(r"[/\\]torch[/\\]utils[/\\]data[/\\]_utils[/\\]collate\.py$")
_QUEUE: Final = re.compile(r"[/\\](multiprocessing[/\\](queues|connection)|queue)\.py$")
_SHARES: Final = re.compile(r"_new_shared|share_memory|_share_|^reduce_")
_TRANSFORMS: Final = re.compile(
    r"[/\\](torchvision[/\\]transforms|torchaudio[/\\]transforms|albumentations|kornia|monai[/\\]transforms|imgaug)[/\\]"
)
_TRANSFORM: Final = re.compile(r"transform|augment", re.IGNORECASE)


@dataclass(slots=True)
class WorkLine(Line):
    activity: Activity = "other"


@dataclass(frozen=True, slots=True)
class Inside:
    """The samples of one loader's workers at work, or of several loaders of a kind."""

    samples: int
    activities: Counter[Activity]
    lines: Sequence[WorkLine]  # most samples first; none of idle workers

    @property
    def busy(self) -> int:
        return self.samples - self.activities["idle"]

    @property
    def told(self) -> bool:
        """Whether there is enough to give shares of."""
        return self.busy >= limit("good_samples")

    def waits_by(self) -> str:
        """What most of the busy time is spent in, off the CPU: "sleeping"; "" where there is no such thing."""
        states = sum((line.states for line in self.lines), Counter[str]())
        state, count = states.most_common(1)[0] if states else ("", 0)
        known = self.told and state not in (CPU, WAITING) and count >= limit("most_share") * self.busy
        return state if known else ""

    def main(self) -> WorkLine | None:
        """The line that most of the busy time goes to, if that is enough to name it."""
        if not self.told or not self.lines:
            return None
        return self.lines[0] if self.lines[0].count >= limit("critical_share") * self.busy else None


def inside(facts: Facts, found: Iterable[Loader]) -> Inside:
    activities: Counter[Activity] = Counter()
    lines: dict[tuple[Activity, str, int, str], WorkLine] = {}
    for sample in (s for loader in found for s in loader.inside):
        stack = _of_worker(facts.run.stack(sample.stack))
        if not stack:
            continue
        activity = activity_of(stack)
        activities[activity] += sample.count
        if activity == "idle":
            continue
        frame = _frame(stack)
        calls = library_call(stack, frame) if frames.is_users(frame, stack) else ""
        line = lines.setdefault((activity, frame.file, frame.line, calls), WorkLine(frame, calls, activity=activity))
        line.states[state_of(sample.state, sample.syscall, facts.machine)] += sample.count
    return Inside(sum(activities.values()), activities, sorted(lines.values(), key=lambda v: -v.count))


def _of_worker(stack: Sequence[Frame]) -> Sequence[Frame]:
    """Without the callers of a worker's loop: of a forked one they are the training's."""
    loop = next((i for i, f in enumerate(stack) if _LOOP.search(f.file)), len(stack))
    return stack[: loop + 1]


def activity_of(stack: Sequence[Frame]) -> Activity:
    """`stack`: innermost frame first."""
    loop = next((i for i, f in enumerate(stack) if _LOOP.search(f.file)), None)
    if loop is None:
        return "other"
    below = stack[:loop]
    if _SHARES.search(" ".join(f.function.rpartition(".")[2] for f in below if "/torch/" in f.file)):
        return "shared memory"
    fetch = next((i for i, f in enumerate(below) if _FETCH.search(f.file)), None)
    if fetch is None:
        if below and _QUEUE.search(below[-1].file):
            return "idle" if below[-1].function.rpartition(".")[2] == "get" else "queue"
        return "other"
    if any(_COLLATE.search(f.file) for f in below) or frames.collating(stack) is not None:
        return "collate"
    if any(_is_transform(f, stack) for f in below[:fetch]):
        return "transforms"
    return "samples"


def _is_transform(frame: Frame, stack: Sequence[Frame]) -> bool:
    if _TRANSFORMS.search(frame.file):
        return True
    return frames.is_users(frame, stack) and _TRANSFORM.search(frame.function) is not None


def _frame(stack: Sequence[Frame]) -> Frame:
    """The innermost of the user's; else what the loader called; else the innermost."""
    for f in stack:
        if frames.is_users(f, stack):
            return f
    fetch = next((i for i, f in enumerate(stack) if _FETCH.search(f.file)), 0)
    return stack[max(0, fetch - 1)]


# Libraries whose calls have a cheaper way, by what `library_call` says of a call.
_CHEAPER_CALLS: Final = {
    "cheaper_images": re.compile(r"PIL\.|imageio\.|skimage\.io\.|torchvision\.io\."),
    "cheaper_transforms": re.compile(r"torchvision\.transforms\.|albumentations\.|monai\.transforms\.|imgaug\."),
    "cheaper_sound": re.compile(r"torchaudio\.|librosa\.|soundfile\.|resampy\."),
    "cheaper_text": re.compile(r"(json|simplejson|csv|xml|ast|yaml|pickle|lxml|bs4|html)\."),
    "cheaper_table": re.compile(r"pandas\."),
    "cheaper_rows": re.compile(r"(datasets|pyarrow|polars)\."),
    "cheaper_chunks": re.compile(r"(h5py|zarr|netCDF4|xarray)\."),
    "cheaper_archive": re.compile(r"(gzip|bz2|lzma|zipfile|tarfile|_compression)\."),
    "cheaper_remote": re.compile(
        r"(fsspec|gcsfs|s3fs|adlfs|smart_open|requests|urllib3?|http|httpx|aiohttp|botocore|boto3|huggingface_hub)\."
    ),
    "cheaper_tokens": re.compile(
        r"(transformers\.(tokenization|models\.\w+\.tokenization)|tokenizers|sentencepiece|spacy)"
    ),
    "cheaper_tensors": re.compile(r"torch\.serialization\.|numpy\.lib\.(_?npyio|format)|safetensors\."),
}


def reads(facts: Facts, loader: Loader | None, cheaper: Said | None, received: Params) -> Params:
    """How much is read for a batch, from storage or the page cache, or received, and how many times the batch's size
    that is: what Parquet's row groups, chunks of HDF5 or a remote file's blocks have besides the samples, or what
    becomes smaller samples. `cheaper`: of the library that takes most of the time. Empty where it is little or not
    known, or takes too little time to matter."""
    of = loader.description if loader is not None else None
    number = next((n for n, v in facts.run.loaders.items() if v.description is of), None)
    told = described(facts.run.meta, "reads").get(str(number))
    if loader is None or not isinstance(told, list) or len(told) != 4 or not all(isinstance(n, int) for n in told):
        return {}
    read, batches, sizes, sized = told
    fetches = loader.fetches
    by_network = cheaper is not None and cheaper.key == "cheaper_remote" and "received_each" in received
    if not sizes or (not batches and not by_network) or not fetches.count:
        return {}
    each, size = read / max(1, batches), sizes / sized
    if not num_workers(loader) and cheaper is not None and cheaper.key in _READ_BY_THREADS:
        each = 0.0  # the training thread alone was looked at
    if by_network and received["interface"] is None:
        each = max(each, float(received["received_each"]) * facts.steps / fetches.count)  # type: ignore[arg-type]
    takes_ns = each / limit("read_bytes") * 1e9
    matters = takes_ns >= limit("warn_share") * fetches.wall_ns / fetches.count
    if each < limit("read_times") * size or not (matters or cheaper is not None):
        return {}
    times = Count(each / size)
    return {"read_each": Bytes(each), "batch": Bytes(size), "times": times, "far_more": times > _MANY_TIMES}


_MANY_TIMES: Final = 100
_READ_BY_THREADS: Final = ("cheaper_rows", "cheaper_remote")  # of Arrow, fsspec


def cheaper_call(calls: Iterable[tuple[str, int]], of: int) -> Said | None:
    """What is said of the kind of library that most of the samples are in. `calls`: what the user's line called, and in
    how many samples; `of`: so many in all."""
    counts: Counter[str] = Counter()
    for call, count in calls:
        kind = next((kind for kind, names in _CHEAPER_CALLS.items() if names.match(call)), "")
        counts[kind] += count if kind else 0
    kind, count = max(counts.items(), key=lambda item: item[1], default=("", 0))
    return Said(kind) if count and count >= max(limit("half_share") * of, limit("good_samples")) else None


def cheaper_call_of(facts: Facts, samples: Iterable[Detail]) -> Said | None:
    """Likewise, of samples of the training thread."""
    calls: list[tuple[str, int]] = []
    seen = 0
    for d in samples:
        stack = facts.run.stack(d.stack)
        at = next((f for f in stack if frames.is_users(f, stack)), None)
        seen += d.count
        if at is not None:
            calls.append((library_call(stack, at), d.count))
    return cheaper_call(calls, seen)
