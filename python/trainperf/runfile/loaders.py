"""Reads the tables of loaders, their fetches and workers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from trainperf.runfile.records import Awaited, Loader, LoaderFetches, Worker, WorkerSamples
from trainperf.runfile.schema import TABLES, RunDatabase


def read_loaders(database: RunDatabase, objects: Mapping[int, tuple[str, Mapping[str, Any]]]) -> Mapping[int, Loader]:
    workers = _read_workers(database)
    ready: defaultdict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    for loader, batches, count, wall_ns in database.rows("fetch_ready", "iiii", order="ORDER BY loader, ready"):
        ready[loader][batches] = (count, wall_ns)
    awaited: defaultdict[int, list[Awaited]] = defaultdict(list)
    for loader, *values in database.rows("fetch_awaited", "iiiii"):
        awaited[loader].append(Awaited(*values))
    inside: defaultdict[int, list[WorkerSamples]] = defaultdict(list)
    for loader, stack, state, *counts in database.rows("worker_stack", "iisii"):
        inside[loader].append(WorkerSamples(stack, state, *counts))
    fetches = {row[0]: row[1:] for row in database.rows("fetch", "i" * 14)}
    ids = sorted(fetches.keys() | {id for id, (kind, _) in objects.items() if kind == "loader"})
    return {
        id: Loader(
            id=id,
            description=objects.get(id, ("", {}))[1],
            fetches=_loader_fetches(fetches.get(id, (0,) * 13), ready[id], awaited[id]),
            workers=workers.get(id, ()),
            inside=inside[id],
        )
        for id in ids
    }


def _read_workers(database: RunDatabase) -> Mapping[int, Sequence[Worker]]:
    states: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for worker, state, readings in database.rows("worker_state", "isi"):
        states[worker][state] = readings
    waits: defaultdict[int, dict[tuple[int, bool], int]] = defaultdict(dict)
    for worker, call, shared, looks in database.rows("worker_wait", "iiii"):
        waits[worker][call, bool(shared)] = looks
    workers: defaultdict[int, list[Worker]] = defaultdict(list)
    for row in database.rows("worker", "i" * 10, order="ORDER BY id"):
        id, loader, pid, first, last, first_cpu, last_cpu, _, *at_work = row
        since, since_cpu = at_work or (first, first_cpu)  # older files do not tell
        seen = last - since if since else 0
        share = (last_cpu - since_cpu) / seen if seen > 0 else None
        cpu_seconds = max(0, last_cpu - first_cpu) / 1e9
        workers[loader].append(Worker(pid, share, max(0, seen) / 1e9, states[id], cpu_seconds, waits[id]))
    return dict(workers)


def _loader_fetches(
    row: Sequence[int], ready: Mapping[int, tuple[int, int]], awaited: Sequence[Awaited]
) -> LoaderFetches:
    named = dict(zip(TABLES["fetch"][1:], row, strict=True))
    del named["exhausted_wall_ns"]
    return LoaderFetches(
        **named,
        ready={batches: count for batches, (count, _) in ready.items()},
        ready_wall_ns={batches: wall_ns for batches, (_, wall_ns) in ready.items()},
        awaited=awaited,
    )
