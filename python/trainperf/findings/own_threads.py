"""What threads of the process, beside the training thread and torch's, used of the CPUs during the watch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainperf.findings.text import plural
from trainperf.findings.thresholds import limit
from trainperf.runfile.schema import json_object

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts

_AUTOGRAD = "pt_autograd"  # runs the loop's own backward
_NO_TIME = 1 << 63  # ns


@dataclass(frozen=True, slots=True)
class ThreadUse:
    name: str
    cpus: float


@dataclass(frozen=True, slots=True)
class OwnThreads:
    """Those that were there when the watch ended, the busiest first. Both empty: none, or not known."""

    python: tuple[ThreadUse, ...]  # that Python started
    native: tuple[ThreadUse, ...]  # that libraries started
    pools: tuple[tuple[str, str], ...]  # libraries that may have: (name, what limits it)
    torchs: float = 0.0  # CPUs that those used which are taken to be torch's

    @property
    def cpus(self) -> float:
        return sum(t.cpus for t in (*self.python, *self.native))

    @property
    def more_native(self) -> bool:
        return sum(t.cpus for t in self.native) > sum(t.cpus for t in self.python)

    @property
    def mostly_native(self) -> bool:
        return sum(t.cpus for t in self.native) >= limit("most_share") * max(self.cpus, limit("own_threads_cpus"))

    @property
    def native_text(self) -> str:
        """ "7 native threads use 1.2 CPUs"; "" where there are none."""
        return _use(plural(len(self.native), "native thread"), self.native)

    @property
    def python_text(self) -> str:
        """ "augment-0, augment-1 and 2 more use 1.1 CPUs"; "" where there are none."""
        names = ", ".join(t.name for t in self.python[:2])
        return _use(names + (f" and {len(self.python) - 2} more" if len(self.python) > 2 else ""), self.python)


def _use(who: str, threads: tuple[ThreadUse, ...]) -> str:
    used = f"{sum(t.cpus for t in threads):.1f} CPUs"
    return f"{who} {'uses' if len(threads) == 1 else 'use'} {used}" if threads else ""


def own_threads(facts: Facts) -> OwnThreads:
    """torch's threads are taken to be the busiest of the native ones."""
    found = json_object(facts.run.meta.get("thread_cpu", "{}"))
    python, native = (tuple(_uses(facts, found.get(kind))) for kind in ("python", "native"))
    pools = _rows(json_object(facts.run.meta.get("thread_pools", "{}")).get("unlimited"), (str, str))
    torchs = max(0, facts.torch_threads - 1)
    return OwnThreads(python, native[torchs:], tuple(pools), sum(t.cpus for t in native[:torchs]))


def _uses(facts: Facts, rows: object) -> Iterator[ThreadUse]:
    watched = facts.run.watched_ns
    step = facts.run.step_thread.native_tid if facts.run.step_thread is not None else 0
    for tid, name, ms in _rows(rows, (int, str, int)):
        ns = ms * 1_000_000
        notable = 0 < limit("show_share") * watched <= ns < _NO_TIME
        if notable and tid != step and not name.startswith(_AUTOGRAD):
            yield ThreadUse(name, ns / watched)


def _rows(rows: object, types: tuple[type, ...]) -> list[Any]:
    """Those of such types: what else may be in a file tells nothing."""
    return [
        tuple(row)
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, list) and tuple(map(type, row)) == types
    ]
