"""Where the fetches' time went, by loader: what the rules about data share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainperf.findings import frames
from trainperf.findings.model import Cell, Limits
from trainperf.findings.text import plural
from trainperf.findings.thresholds import limit
from trainperf.findings.vocabulary import MECHANISM_OF
from trainperf.findings.weights import weighed

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.runfile import Detail, Loader, Worker


SAMPLER_LIMITS = Limits(limit("warn_share"), limit("critical_share"))
SKIPPED_LIMITS = Limits(limit("rare_warn_share"), limit("critical_share"))
TORCHS_DATASETS = {"TensorDataset", "Subset", "ConcatDataset", "StackDataset", "ChainDataset"}


@dataclass(frozen=True, slots=True)
class WorkerView:
    """The worker processes of one loader, or of several of a kind, summed up."""

    count: int
    read: int  # of how many the CPU share is known
    cpu_share: float  # mean over those; of one CPU
    slowest: float  # the largest share
    looks: int  # at all of them together
    running: float  # share of the looks at which a worker ran, or was ready to

    @property
    def told(self) -> bool:
        """Whether there is enough to say what they do."""
        return self.read > 0 and self.looks >= limit("min_looks")

    @property
    def looked(self) -> str:
        return f"{plural(self.looks, 'look')} at the workers"

    @property
    def text(self) -> str:
        if not self.read:
            return "the workers' CPU time was not seen" + (" (they lived under two seconds)" if self.looks else "")
        if not self.told:
            return f"only {self.looked}: too few to tell whether they compute or wait"
        each = f"each on the CPU {self.cpu_share:.0%}" if self.count > 1 else f"on the CPU {self.cpu_share:.0%}"
        busiest = f" (the busiest {self.slowest:.0%})" if self.count > 1 else ""
        return (
            f"{plural(self.count, 'worker')}, {each} of the time{busiest}, "
            f"ready to run at {self.running:.0%} of {self.looked}"
        )

    @property
    def computes(self) -> bool:
        """They are on the CPU; or, where CPUs are short, wait for one. Never so of workers that were hardly seen."""
        return self.told and (self.cpu_share >= limit("cpu_bound_share") or self.running >= limit("cpu_bound_share"))

    @property
    def one_computes(self) -> bool:
        """One does, if not all: batches are passed on in order, so that the others wait for it."""
        return self.told and not self.computes and self.slowest >= limit("cpu_bound_share")

    @property
    def waits(self) -> bool:
        """They hardly compute."""
        return (
            self.told and not self.computes and not self.one_computes and self.cpu_share <= 1 - limit("cpu_bound_share")
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
    states: dict[str, int] = {}
    for w in workers:
        for state, readings in w.states.items():
            states[state] = states.get(state, 0) + readings
    shares = [w.cpu_share for w in workers if w.cpu_share is not None]
    return WorkerView(
        count=num_workers(loader) or len(workers),
        read=len(shares),
        cpu_share=sum(shares) / len(shares) if shares else 0.0,
        slowest=max(shares, default=0.0),
        looks=sum(states.values()),
        running=states.get("R", 0) / max(1, sum(states.values())),
    )


def is_stream(loader: Loader) -> bool:
    """An IterableDataset: each worker has a copy, and reads all of it unless the copies share it out."""
    return loader.description.get("kind") == "iterable" and bool(loader.description.get("is_dataloader", True))


def with_workers(loader: Loader | None, workers: int, call: str, note: str = "") -> str:
    """A fix that gives a loader so many workers: `call`, and of a stream what each of them must do."""
    code = f"{call}  # {note}" if note else call
    if loader is None or workers < 2 or not is_stream(loader):
        return code
    share = "once __iter__ reads only its worker's part (get_worker_info): else each repeats the whole stream"
    return f"# num_workers={workers}, {share}\n{code}"


def read_by(fix: str, reader: str) -> str:
    """A fix of a loader says whose it is: not the training's."""
    return _noted(fix, f"of the loader that {reader} reads")


def read_of(fix: str, dataset: str) -> str:
    """A fix of one of several loaders."""
    return _noted(fix, f"of {dataset}")


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
    out: dict[Cell, int] = {}
    for d in inside:
        cell = (d.phase, MECHANISM_OF[d.state])
        out[cell] = out.get(cell, 0) + d.ns
    out = {cell: min(ns, cells.get(cell, 0)) for cell, ns in out.items()}
    # What has no samples that tell (its mechanism is not known, say) is shared out as the rest is.
    sampled = {(d.phase, MECHANISM_OF[d.state]) for d in seen}
    share = drawn / sum(d.ns for d in seen)
    return out | {cell: round(ns * share) for cell, ns in cells.items() if cell not in sampled}


def sampler_share(facts: Facts) -> float:
    return sum(facts.sampler_cells.values()) / max(1, sum(facts.cells("data_wait", ["fetch"]).values()))


def told_sampler(facts: Facts) -> dict[Cell, int]:
    """What TP106 tells; nothing of a sampler that is slow only where it begins, which is TP104's."""
    cells, restarts = facts.sampler_cells, facts.restarts
    ns = sum(cells.values())
    if restarts is not None and restarts.began_ns >= limit("half_share") * ns:
        return {}
    return cells if facts.grade(ns, SAMPLER_LIMITS) is not None else {}


def told_skipped(facts: Facts) -> dict[Cell, int]:
    """What TP107 reports."""
    mine = facts.skipped
    return mine.claims if mine is not None and facts.grade(mine.ns, SKIPPED_LIMITS) is not None else {}


def workers_cells(facts: Facts) -> dict[Cell, int]:
    """The waits of fetches, without their samplers and what TP107 reports."""
    drawn, dropped = facts.sampler_cells, told_skipped(facts)
    return {
        cell: max(0, ns - drawn.get(cell, 0) - dropped.get(cell, 0))
        for cell, ns in facts.cells("data_wait", ["fetch"]).items()
    }


def with_workers_of(facts: Facts, *, without_sampler: bool = True) -> list[Loader]:
    """The loaders that have workers; their fetches without the samplers' time."""
    left = 1 - sampler_share(facts) if without_sampler else 1
    found = [v for v in facts.run.loaders.values() if num_workers(v) > 0]
    if left == 1:
        return found
    return [
        replace(
            v,
            fetches=replace(
                v.fetches,
                wall_ns=round(v.fetches.wall_ns * left),
                ready_wall_ns={ready: round(ns * left) for ready, ns in v.fetches.ready_wall_ns.items()},
            ),
        )
        for v in found
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


def _late_by_workers(loader: Loader, view: WorkerView) -> bool:
    """Fetches are blocked, and workers mostly compute and are not as far ahead as they may be: each hands its batches'
    tensors over in a thread of its own, which then waits for its GIL. To unpack them is the training thread's own work.
    """
    fetches, most = loader.fetches, _most_ahead(loader)
    blocked_ns = fetches.wall_ns - fetches.cpu_ns - fetches.gil_wait_ns
    ahead_ns = sum(ns for ready, ns in fetches.ready_wall_ns.items() if ready >= most - most // 8)
    late_ns = min(blocked_ns, fetches.wall_ns - ahead_ns)
    mostly = max(view.cpu_share, view.running) >= limit("half_share")
    return view.told and mostly and late_ns >= limit("half_share") * fetches.wall_ns


def mostly_starved(loader: Loader, slow_ns: float) -> bool:
    """Where most fetches find nothing ready, or a worker never stops computing, a batch that is ready has only just
    come (the worker counts it before its own thread has sent it): it tells nothing of delivery. So too where batches
    come late (`slow_ns`) and most fetches find one a worker at most: of a slow delivery workers run ahead."""
    view = worker_view(loader)
    if (
        starved_count(loader) > ready_count(loader)
        or view.computes
        or view.one_computes
        or _late_by_workers(loader, view)
    ):
        return True
    if ready_ns(loader) - loader.fetches.gil_wait_ns < slow_ns * ready_count(loader):
        return False
    enough = min(num_workers(loader) + 1, _most_ahead(loader))
    ahead = sum(n for ready, n in loader.fetches.ready.items() if ready > 0 and ready >= enough)
    return ready_count(loader) > 2 * ahead


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
