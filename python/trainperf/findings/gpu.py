"""The device of a run, asked the way that rules ask: the busiest one, where a run has several."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from trainperf.findings.model import Params, Said
from trainperf.findings.text import Count, Share
from trainperf.findings.thresholds import limit
from trainperf.runfile.device_estimate import scaled, scaled_calls
from trainperf.runfile.schema import CAUSES

if TYPE_CHECKING:
    from trainperf.runfile import Call, Copy, Device, Int64Array, Kernel, RunReader

SYNCS = ("stream_sync", "event_sync", "device_sync")
BETWEEN = "between"  # among the causes of idleness: the gaps of under 5 us between kernels that were both launched


@dataclass(frozen=True, slots=True)
class Calls:
    """All calls of some kinds, by whatever thread."""

    count: int
    failed: int
    ns: int
    steps: int  # at least in so many


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What the run's first steps have beyond the later ones, of what a device's first use is made of."""

    steps: int
    wall_ns: int  # of these steps, all of it
    later_ns: int  # what a later step takes: the median
    host: dict[str, int]  # by cause, beyond what so many later steps have of it
    idle: Int64Array  # (steps, causes): the device's, likewise; of `launch` without what is BETWEEN
    native_left_ns: int  # of `launch` what is more than the loading explains, and is not in `host`


# What a device's first use is made of. The rest of a first step is the program's own, and for other rules to tell.
_OF_WARM_UP = ("launch", "gpu_wait", "cuda_alloc", "module_load", "unknown")


def _warm_up(run: RunReader, device: Device) -> WarmUp | None:
    """None: the first steps are like the others, or nothing was loaded in them, or they are not known one by one."""
    table = run.steps
    each = table.wall_ns / table.count
    most = int(limit("warm_up_steps"))
    later = float(np.median(each[most:])) if len(each) >= 2 * most else 0.0
    if round(later) <= 0:
        return None
    beyond = _beyond(table.causes_ns, table.count, most)[:, [CAUSES.index(cause) for cause in _OF_WARM_UP]]
    launch, loads = (_OF_WARM_UP.index(cause) for cause in ("launch", "module_load"))
    # All native code is in `launch`: that of libraries at their first use, and of the program's own.
    native = beyond[:, launch].copy()
    beyond[:, launch] = np.minimum(native, limit("warm_up_launch") * beyond[:, loads])
    excess = beyond.sum(axis=1)
    slow = (table.count[:most] == 1) & (beyond[:, loads] > 0) & (excess >= limit("warm_up_excess") * later)
    steps = most if slow.all() else int(np.argmin(slow))
    if not steps:
        return None
    host = beyond[:steps].sum(axis=0)
    idle_ns, of_launch = device.whole.idle_causes_ns.copy(), CAUSES.index("launch")
    idle_ns[:, of_launch] -= device.whole.between_ns
    idle = _beyond(idle_ns, table.count, most)[:steps]
    idle[:, [i for i, cause in enumerate(CAUSES) if cause not in _OF_WARM_UP]] = 0
    idle[:, of_launch] = np.minimum(idle[:, of_launch], beyond[:steps, launch])
    by_cause = {cause: int(ns) for cause, ns in zip(_OF_WARM_UP, host.tolist(), strict=True)}
    left = int((native - beyond[:, launch])[:steps].sum())
    return WarmUp(steps, int(table.wall_ns[:steps].sum()), round(later), by_cause, idle, left)


def _beyond(causes_ns: Int64Array, count: Int64Array, most: int) -> Int64Array:
    """(most, causes): what each of the first `most` steps has of a cause beyond the median of the steps after them."""
    usual = np.median(causes_ns[most:] / count[most:, None], axis=0).astype(np.int64)
    beyond: Int64Array = (causes_ns[:most] - usual).clip(min=0)
    return beyond


class Gpu:
    """What one device did in the run's steps. Holds no state but caches."""

    def __init__(self, run: RunReader, device: Device, of: int) -> None:
        self.run = run
        self.device = device
        self.of = of  # devices of the run
        self.busy_ns = int(device.totals.busy_ns)
        self.idle_ns = int(device.totals.idle_ns)
        causes = {cause: int(device.totals.idle_causes_ns[cause]) for cause in CAUSES}
        # Not the host's doing: both kernels had been launched.
        causes["launch"] -= device.totals.between_ns
        self.idle_causes = causes | {BETWEEN: int(device.totals.between_ns)}

    @property
    def name(self) -> str:
        return "the GPU" if self.of == 1 else f"GPU {self.device.id}"

    @property
    def compute_major(self) -> int:
        """The first digit of its compute capability; 0: not known."""
        facts = self.device.description
        found = facts.get("compute") or facts.get("computeMajor") or 0  # "9.0" of the driver; 9 of a trace
        digits = str(found).partition(".")[0]
        return int(digits) if digits.isdigit() else 0

    def busy(self) -> float:
        return self._of_wall(self.busy_ns)

    def idle(self) -> float:
        return self._of_wall(self.idle_ns)

    def _of_wall(self, ns: int) -> float:
        whole = self.busy_ns + self.idle_ns
        return ns / whole if whole else 0.0

    @cached_property
    def warm_up(self) -> WarmUp | None:
        return _warm_up(self.run, self.device)

    @cached_property
    def unseen_ns(self) -> int:
        """It idled, and nothing that was recorded says why: work that waits in its queue, say. Without the warm-up."""
        return self.idle_causes["unknown"] - self.warm_up_idle(["unknown"])

    def warm_up_idle(self, causes: Iterable[str]) -> int:
        if self.warm_up is None:
            return 0
        return int(self.warm_up.idle[:, [CAUSES.index(cause) for cause in causes]].sum())

    @property
    def doubts(self) -> tuple[Said, ...]:
        """Why what is said of it is less sure."""
        found = []
        lost, traced = int(self.device.steps.incomplete.sum()), self.device.traced
        if lost:
            found.append(Said("records_lost", {"steps": Count(lost)}))
        if traced is not None and not traced.idle_high - traced.idle_low < limit("unknown_share"):
            found.append(Said("windows_apart"))
        unseen = self.unseen_ns / self.run.wall_ns
        if unseen >= limit("unknown_share"):
            found.append(Said("idle_unseen", {"share": Share(unseen)}))
        if self.run.meta.get("source") == "trace":
            found.append(Said("slowed_by_profiler"))
        return tuple(found)

    @property
    def rests_on(self) -> Said | None:
        """ "the GPU was traced in 700 of 12,000 steps: idle 61% to 65% of the time (95% interval)"; None: in all."""
        traced = self.device.traced
        if traced is None:
            return None
        of: Params = {"steps": Count(traced.steps), "of": Count(int(self.run.step_count))}
        if math.isnan(traced.idle_low):
            return Said("traced_once", of)
        return Said("traced_in_windows", {**of, "low": Share(traced.idle_low), "high": Share(traced.idle_high)})

    def idle_scale(self, cause: str) -> float:
        """Of what was seen to idle for a cause, all steps have so many times as much."""
        seen = int(self.device.steps.idle_causes_ns[:, CAUSES.index(cause)].sum())
        return self.device.totals.idle_causes_ns[cause] / seen if seen else 1.0

    def column(self, causes: Iterable[str]) -> Int64Array:
        """(rows,) of the step table: idle for these causes, without the warm-up."""
        wanted = set(causes)
        steps = self.device.whole
        at = [CAUSES.index(cause) for cause in wanted - {BETWEEN}]
        column: Int64Array = steps.idle_causes_ns[:, at].sum(axis=1)
        if self.warm_up is not None:
            column[: self.warm_up.steps] -= self.warm_up.idle[:, at].sum(axis=1)
        if ("launch" in wanted) != (BETWEEN in wanted):
            column = column + (steps.between_ns if BETWEEN in wanted else -steps.between_ns)
        return column

    @cached_property
    def kernels(self) -> Sequence[Kernel]:
        """Of all steps: where some were traced, as if the others were like them."""
        return scaled(self.run.kernels(self.device.id), self.device.scale)

    @cached_property
    def kernel_ns(self) -> int:
        """Of all kernels, those that ran at the same time counted twice."""
        return sum(k.ns for k in self.kernels)

    @cached_property
    def copies(self) -> Sequence[Copy]:
        return scaled(self.run.copies(self.device.id), self.device.scale)

    @cached_property
    def _calls(self) -> Sequence[Call]:
        return scaled_calls(self.run.calls(), self.device.scale)

    @property
    def saw_calls(self) -> bool:
        return bool(self._calls)

    def calls(self, *kinds: str) -> Calls:
        found = [c for c in self._calls if c.call in kinds]
        return Calls(
            sum(c.count for c in found),
            sum(c.failed for c in found),
            sum(c.ns for c in found),
            max((c.steps for c in found), default=0),
        )

    def late_share(self, column: Int64Array) -> float:
        """Of the time of the run's second half: what was a warm-up is over by then."""
        table = self.run.steps
        after = np.cumsum(table.count) - table.count >= table.count.sum() // 2
        wall = int(table.wall_ns[after].sum())
        return int(column[after].sum()) / wall if wall else 0.0


# What holds clocks down that is no setting: NVML's clocks event reasons, the first that is set. A slowdown by heat or
# by the power supply sets "hardware slowdown" (8) too.
HELD_BY: Final = {"heat": 0x20 | 0x40, "power_brake": 0x80 | 0x08, "power_cap": 0x04}


@dataclass(frozen=True, slots=True)
class Clocks:
    """The SM clock of a device in the readings of NVML, one a second, in the run's steps."""

    readings: int
    held: Mapping[str, int]  # readings by what held the clock down
    mhz: float  # mean, while it was held down
    free_mhz: float  # median while nothing did; without such a reading, the highest that the device can
    lost: float  # of the work: what the free clock had done in all readings, and these had not
    celsius: int  # highest; 0: not known

    @property
    def by(self) -> str:
        """Most often."""
        return max(self.held, key=lambda what: self.held[what])


def clocks(run: RunReader, device: int) -> Clocks | None:
    """None: NVML did not tell, or of too few seconds, or nothing held them down."""
    table, machine = run.steps, run.machine
    mhz, most, reasons, celsius = (
        machine.get(f"gpu_{what}:{device}") for what in ("sm_mhz", "sm_max_mhz", "throttle_reasons", "celsius")
    )
    if mhz is None or reasons is None:
        return None
    at = np.array([reading.at_ns for reading in run.host], dtype=np.int64)
    during = (at >= table.start_ns[0]) & (at <= table.start_ns[-1] + table.wall_ns[-1]) & (mhz > 0)
    mhz, reasons = mhz[during], reasons[during]
    held = {what: (reasons & bits) != 0 for what, bits in HELD_BY.items()}
    any_held = np.logical_or.reduce(list(held.values()))
    if len(mhz) < limit("clock_readings") or not any_held.any():
        return None
    free = float(np.median(mhz[~any_held])) if not any_held.all() else float(most.max()) if most is not None else 0.0
    lost = float(np.maximum(free - mhz[any_held], 0.0).sum()) / (free * len(mhz)) if free else 0.0
    counts, told = {}, np.zeros_like(any_held)
    for what, seen in held.items():
        counts[what] = int((seen & ~told).sum())
        told |= seen
    hottest = int(celsius[during].max()) if celsius is not None else 0
    return Clocks(len(mhz), counts, float(mhz[any_held].mean()), free, lost, hottest)


_ARGUMENTS = re.compile(r"[<(].*", re.DOTALL)


def short_kernel(name: str) -> str:
    """ "vectorized_elementwise_kernel" of a template with its arguments and their types."""
    words = name.removeprefix("void ").removeprefix("at::native::").removeprefix("(anonymous namespace)::")
    short = _ARGUMENTS.sub("", words).rpartition("::")[2] or words
    return short if len(short) <= 60 else short[:57] + "..."
