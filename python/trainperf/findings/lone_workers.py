"""Where the loop waits for one worker, while its loader's others have nothing left to do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings import loaders
from trainperf.findings.cpu_use import usable_cpus
from trainperf.findings.text import ms, plural
from trainperf.findings.thresholds import limit
from trainperf.findings.trainer_words import arguments, own_loader

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.runfile import Loader, Worker


_PARTS = "# give each worker an even part, as every n-th sample:\nislice(samples, info.id, None, info.num_workers)"
_MOST_AHEAD = 32  # batches by worker: each lies in memory


@dataclass(frozen=True, slots=True)
class LoneWorker:
    """Of the fetches that waited for one worker alone; `why` and `fix` are what to say of them."""

    fetches: int
    wait_ns: int
    title: str
    why: str
    fix: str
    will_not_help: str
    saves: float  # of the loaders' whole wait, if all workers did alike

    @property
    def evidence(self) -> str:
        return (
            f"{plural(self.fetches, 'fetch', 'es')} waited {ms(self.wait_ns / self.fetches)} each for one worker, as "
            "the others had nothing left to do"
        )


def lone_worker(facts: Facts, main: Loader, alike: Sequence[Loader]) -> LoneWorker | None:
    """None where the loaders' fetches mostly wait for all workers, or it was not recorded for whom."""
    each, count, name = (main, *alike), loaders.num_workers(main), loaders.dataset_name(main)
    workers = [w for v in each for w in v.workers]
    alone_ns = sum(w.awaited_ns for w in workers)
    whole_ns = sum(v.fetches.wall_ns for v in each)
    if count < 2 or alone_ns < limit("half_share") * whole_ns:
        return None
    fetches, of = sum(w.awaited for w in workers), sum(v.fetches.count for v in each)
    tops = [max(together, key=lambda w: w.awaited_ns) for v in each for together in _by_epoch(v.workers, count)]
    read = [w.cpu_share for w in tops if w.cpu_share is not None]
    share = sum(read) / len(read) if read else None
    computes = share is None or share >= limit("cpu_bound_share")
    at_once = min(count, usable_cpus(facts.run) or count) if computes else count
    saves = alone_ns / whole_ns * (1 - 1 / max(2, at_once))
    last, last_ns = sum(w.awaited_last for w in workers), sum(w.awaited_last_ns for w in workers)
    doing = "" if share is None else f" (on the CPU {share:.0%} of the time)"
    if last_ns >= limit("half_share") * alone_ns:
        return LoneWorker(
            fetches,
            alone_ns,
            "one DataLoader worker has more to read than the others",
            f"for {last} of {of} batches only one of {count} workers of {name} reads{doing}: the others have read "
            "their parts",
            _PARTS,
            "more workers, unless they split what this one reads",
            saves,
        )
    if sum(w.awaited_ns for w in tops) >= limit("hog_share") * alone_ns:
        # What makes one slow is in no measurement: its samples, its file, its disk.
        fix = f"# see what is slow in this worker's part of {name}: its samples, its file or disk"
        return LoneWorker(
            fetches,
            alone_ns,
            "one DataLoader worker is slower than the others",
            f"{fetches} of {of} batches wait for the same one of {count} workers of {name}{doing}: the others are "
            "ahead",
            f"{fix}\n{_PARTS if loaders.is_stream(main) else _in_any_order(facts)}".rstrip(),
            "pin_memory, or a larger prefetch_factor: the others are ahead already",
            saves,
        )
    ahead = min(_MOST_AHEAD, math.ceil(of / fetches) + 1)
    return LoneWorker(
        fetches,
        alone_ns,
        "some batches take the DataLoader's workers longer than others",
        f"{fetches} of {of} batches wait for one of {count} workers of {name}: the others are ahead, and batches are "
        "passed on in order",
        f"{_in_any_order(facts)}DataLoader(..., prefetch_factor={ahead})  # others go on while one makes a long batch\n"
        f"# or make the batches of {name} cost alike: mix long and short samples",
        "pin_memory: the wait is for a batch to be made",
        saves,
    )


def _in_any_order(facts: Facts) -> str:
    """A line of a fix; none for a PyTorch that has no such option, nor for a Trainer, which cannot be told."""
    if facts.torch_version < (2, 6) or (arguments(facts.run.meta) and not own_loader(facts.run.meta)):
        return ""
    return "DataLoader(..., in_order=False)  # a batch is passed on when it is made\n"


def _by_epoch(workers: Sequence[Worker], count: int) -> Iterator[Sequence[Worker]]:
    """Those that were started together."""
    for first in range(0, len(workers), count):
        yield workers[first : first + count]
