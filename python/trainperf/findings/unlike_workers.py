"""Workers of one loader that have unlike work: the loop waits for one of them, or for those whose part of a stream is
the largest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainperf.findings import loaders
from trainperf.findings.cpu_use import usable_cpus
from trainperf.findings.slow_workers import SlowWorkers, in_any_order
from trainperf.findings.text import ms
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.runfile import Awaited, Loader


_MOST_AHEAD = 32  # batches by worker: each lies in memory


def unlike_work(facts: Facts, main: Loader, alike: Sequence[Loader]) -> SlowWorkers | None:
    """None where the loop mostly waits for all of these loaders' workers, or it was not recorded for whom."""
    # As recorded: the facts' own have their sampler's share taken out.
    each = [facts.run.loaders[v.id] for v in (main, *alike)]
    count = loaders.num_workers(main)
    wall_ns, of = sum(v.fetches.wall_ns for v in each), sum(v.fetches.count for v in each)
    awaited = [a for v in each for a in v.fetches.awaited]
    alone = [a for a in awaited if a.worker >= 0 and a.reading >= count]
    ended = [a for a in awaited if a.reading < count]
    if count < 2:
        return None
    if _told(ended, wall_ns):
        return _unlike_parts(facts, main, ended, of)
    return _one_at_a_time(facts, main, alone, of) if _told(alone, wall_ns) else None


def _told(awaited: Sequence[Awaited], wall_ns: int) -> bool:
    enough = sum(a.count for a in awaited) >= limit("lone_fetches")
    return enough and sum(a.wait_ns for a in awaited) >= limit("half_share") * wall_ns


def _unlike_parts(facts: Facts, main: Loader, ended: Sequence[Awaited], of: int) -> SlowWorkers:
    count, name, lanes = loaders.num_workers(main), loaders.dataset_name(main), _lanes(facts, main)
    fetches, wait_ns = sum(a.count for a in ended), sum(a.wait_ns for a in ended)
    # The rest of the loop overlaps with reading: even parts make these batches as many times faster, with it.
    rest = max(0, facts.wall_ns - _waited_ns(facts)) / max(1, of)
    lost = sum(
        min(a.wait_ns, (a.wait_ns + a.count * rest) * (1 - a.reading / lanes)) for a in ended if a.reading < lanes
    )
    left = sorted({a.reading for a in ended if a.wait_ns >= limit("felt_share") * wait_ns})
    who = f"{left[0]}" if left[0] == left[-1] else f"{left[0]} to {left[-1]}"
    return SlowWorkers(
        title="some DataLoader workers have read their parts long before the others",
        why=f"for {fetches:,} of {of:,} batches only {who} of {count} workers of {name} still read: the others had "
        "read their parts, which are smaller, or quicker to read",
        evidence=f"{fetches:,} fetches waited {ms(wait_ns / fetches)} each while {who} of {count} workers still read",
        fix="# give each worker an even part: every n-th sample, or one of many small files\n"
        "info = get_worker_info()  # in __iter__\n"
        "samples = itertools.islice(samples, info.id, None, info.num_workers)",
        will_not_help="more workers, unless they split the largest part",
        saves=lost / _waited_ns(facts),
    )


def _one_at_a_time(facts: Facts, main: Loader, alone: Sequence[Awaited], of: int) -> SlowWorkers:
    count, name = loaders.num_workers(main), loaders.dataset_name(main)
    fetches, wait_ns = sum(a.count for a in alone), sum(a.wait_ns for a in alone)
    top = max({a.worker for a in alone}, key=lambda w: sum(a.wait_ns for a in alone if a.worker == w))
    own, own_ns = (
        sum(values) for values in zip(*((a.count, a.wait_ns) for a in alone if a.worker == top), strict=True)
    )
    evidence = (
        f"{fetches:,} fetches waited {ms(wait_ns / fetches)} each for one worker, as the others had nothing left to do"
    )
    order = in_any_order(facts, main)
    mostly = min(own / fetches, own_ns / wait_ns) >= limit("held_share")
    if mostly and own >= limit("lone_fetches"):
        # What makes it slow is in no measurement: its samples, its file, its disk.
        see = f"# see what is slow in its part of {name}: the samples, the file or disk"
        if not loaders.is_stream(main):
            see = (
                f"# see what is slow in it: each {count}th batch is its, and where nothing shuffles of the same samples"
            )
        return SlowWorkers(
            title="one DataLoader worker is slower than the others",
            why=f"{own:,} of {of:,} batches wait for worker {top} of {count} of {name}: the others are ahead",
            evidence=evidence,
            fix=f"{order}{see}",
            will_not_help="pin_memory, or a larger prefetch_factor: the others are ahead already",
            saves=wait_ns / _waited_ns(facts),  # a worker as fast as the others is not waited for
        )
    set_to = main.description.get("prefetch_factor")
    ahead = min(_MOST_AHEAD, max(2 * (set_to if isinstance(set_to, int) else 2), math.ceil(of / fetches) + 1))
    further = ""
    if not isinstance(set_to, int) or ahead > set_to:
        further = f"DataLoader(..., prefetch_factor={ahead})  # the others go on while one makes a long batch\n"
    return SlowWorkers(
        title="some batches take the DataLoader's workers longer than others",
        why=f"{fetches:,} of {of:,} batches wait for one of {count} workers of {name}: the others are ahead, and "
        "batches are passed on in order",
        evidence=evidence,
        fix=f"{order}{further}# or make the batches of {name} cost alike: mix long and short samples",
        will_not_help="pin_memory: the wait is for a batch to be made",
        saves=_spread_saves(facts, wait_ns, _lanes(facts, main)) / _waited_ns(facts),
    )


def _spread_saves(facts: Facts, wait_ns: int, lanes: int) -> float:
    """What is saved at most, of waits for one worker, when so many share its work beside the rest of the loop."""
    rest = max(0, facts.wall_ns - _waited_ns(facts))
    return wait_ns - max(0.0, wait_ns / lanes - rest)


def _waited_ns(facts: Facts) -> int:
    """For all loaders with workers."""
    return sum(v.fetches.wall_ns for v in facts.run.loaders.values() if loaders.num_workers(v))


def _lanes(facts: Facts, main: Loader) -> int:
    """How many of its workers can work at a time: where they compute, no more than there are CPUs."""
    view, count = loaders.worker_view(main), loaders.num_workers(main)
    computes = not view.read or view.slowest >= limit("cpu_bound_share")
    return max(2, min(count, usable_cpus(facts.run) or count)) if computes else count
