"""Reads what a run knows of devices: one function per table, each for the Run that asks."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trainperf.runfile.device_estimate import estimate
from trainperf.runfile.records import (
    Call,
    Copy,
    Device,
    DeviceSegment,
    DeviceSteps,
    DeviceTotals,
    Kernel,
    StepTable,
    Thread,
)
from trainperf.runfile.schema import CAUSES, DEVICE_STEP_COLUMNS, RunDatabase, json_object, selected
from trainperf.runfile.steps import MAX_NS

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FIELDS: Final = (
    *("busy_ns", "kernels", "kernel_ns", "launches", "copies", "copy_ns", "exposed_copy_ns", "collective_ns"),
    *("exposed_collective_ns", "tiny_kernels", "starved_gaps", "between_ns", "first_kernels", "first_kernel_ns"),
    *("queue_depth", "incomplete", "untraced", "untraced_ns"),
)
_NOT_SUMMED: Final = ("first_kernels", "first_kernel_ns", "queue_depth", "untraced", "untraced_ns")
_SUMMED: Final = tuple(field for field in _FIELDS if field not in _NOT_SUMMED)
_MOST_IN_A_ROW: Final = MAX_NS // 32  # of fewer columns: their sum cannot overflow
# What is nobody's doing on the host: work that was queued and waits for other work, or nothing to go by.
_NOT_THE_HOSTS: Final = ("unknown", "collective")


def read_devices(database: RunDatabase, steps: StepTable) -> Sequence[Device]:
    known = database.rows("device", "issi", order="ORDER BY id")
    if not known:
        return ()
    columns = selected("device_step", DEVICE_STEP_COLUMNS, database.schema_version)
    with database.cursor(f"SELECT {columns} FROM device_step ORDER BY first_step, device") as cursor:
        try:
            flat = np.fromiter(itertools.chain.from_iterable(cursor), dtype=np.int64)
        except (TypeError, ValueError) as error:
            raise database.damaged(f"table device_step holds something that is no number: {error}") from error
    data = flat.reshape(-1, len(DEVICE_STEP_COLUMNS))
    if len(data):
        if np.abs(data.astype(np.float64)).sum(axis=0).max() > MAX_NS:
            raise database.damaged("table device_step holds times of more than a hundred years")
        if data[:, 1:].min() < 0:
            raise database.damaged("table device_step has a row with a negative figure")
        if data.max() > _MOST_IN_A_ROW:
            raise database.damaged("table device_step has a row that is years long")
        if not np.array_equal(data[:, 3] + data[:, -len(CAUSES) :].sum(axis=1), data[:, 2]):
            raise database.damaged("table device_step has a row whose busy and idle time do not sum to its time")
        if not np.isin(data[:, 0], steps.index).all():
            raise database.damaged("table device_step has a row of no step")
    return tuple(_device(database, row, data[data[:, 1] == row[0]], steps) for row in known)


def _device(database: RunDatabase, known: tuple[Any, ...], data: NDArray[np.int64], steps: StepTable) -> Device:
    id, name, description, lead_ns = known
    rows = np.zeros((len(steps.index), len(DEVICE_STEP_COLUMNS)), dtype=np.int64)
    rows[np.searchsorted(steps.index, data[:, 0])] = data
    named = {field: rows[:, 3 + position] for position, field in enumerate(_FIELDS)}
    idle_causes = rows[:, -len(CAUSES) :]
    # Before its first operation nothing was known of it, and why it was not used is not known either.
    unseen = steps.wall_ns - rows[:, 2] - named["untraced_ns"]
    if len(unseen) and unseen.min() < 0:
        raise database.damaged("table device_step has a row that is longer than its step")
    idle_causes[:, CAUSES.index("unknown")] += unseen
    first_kernels, first_kernel_ns = named.pop("first_kernels"), named.pop("first_kernel_ns")
    queue_depth = named.pop("queue_depth")
    idle_ns = steps.wall_ns - named["untraced_ns"] - named["busy_ns"]
    measured = DeviceSteps(**named, idle_ns=idle_ns, idle_causes_ns=idle_causes)
    if (measured.untraced > steps.count).any():
        raise database.damaged("table device_step has a row of more untraced steps than it has steps")
    whole, traced = estimate(steps, measured)
    count, wall = int((steps.count - measured.untraced).sum()), int(steps.wall_ns.sum())
    causes = {cause: int(ns) for cause, ns in zip(CAUSES, whole.idle_causes_ns.sum(axis=0), strict=True)}
    hosts = sum(ns for cause, ns in causes.items() if cause not in _NOT_THE_HOSTS) - int(whole.between_ns.sum())
    totals = DeviceTotals(
        **{field: int(getattr(whole, field).sum()) for field in _SUMMED},
        idle_ns=sum(causes.values()),
        idle_causes_ns=causes,
        first_kernel_ns=_mean(int(first_kernel_ns.sum()), int(first_kernels.sum())),
        queue_depth=_mean(int(queue_depth.sum()), count),
        lead_ns_median=lead_ns,
        critical_host_share=hosts / wall if wall else 0.0,
    )
    return Device(id, name, json_object(description), measured, whole, totals, traced)


def _mean(total: int, count: int) -> float:
    return total / count if count else 0.0


def read_kernels(database: RunDatabase, device: int) -> Sequence[Kernel]:
    rows = database.rows(
        "device_kernel",
        "issiiiiiii",
        columns=("device", "name", "kind", "eligible", "count", "ns", "max_ns", "tiny", "steps", "folded"),
        order="ORDER BY folded > 0, ns DESC, position",
    )
    return tuple(
        Kernel(name, kind, bool(eligible), *numbers) for id, name, kind, eligible, *numbers in rows if id == device
    )


def read_copies(database: RunDatabase, device: int) -> Sequence[Copy]:
    rows = database.rows("device_copy", "isssiiiiii", order="ORDER BY ns DESC, direction, src, dst")
    return tuple(Copy(*row[1:]) for row in rows if row[0] == device)


def read_calls(database: RunDatabase, threads: Mapping[int, Thread]) -> Sequence[Call]:
    rows = database.rows("call", "isiiiii", order="ORDER BY ns DESC, thread, call")
    return tuple(
        Call(call, count, failed, ns, max_ns, steps, threads.get(thread))
        for thread, call, count, failed, ns, max_ns, steps in rows
    )


def read_segments(database: RunDatabase) -> Mapping[int, Sequence[DeviceSegment]]:
    steps: defaultdict[int, list[DeviceSegment]] = defaultdict(list)
    row: tuple[Any, ...]
    for row in database.rows("device_segment", "iiiiisss", order="ORDER BY step, device, seq"):
        step, device, _, start, end, what, cause, name = row
        steps[step].append(DeviceSegment(device, start, end, what, cause, name))
    return dict(steps)
