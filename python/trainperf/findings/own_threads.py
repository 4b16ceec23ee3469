"""What threads of the process, beside the training thread and torch's, used of the CPUs during the watch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings.text import plural
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts

_AUTOGRAD = "pt_autograd"  # runs the loop's own backward


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

    @property
    def cpus(self) -> float:
        return sum(t.cpus for t in (*self.python, *self.native))

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
    watched = facts.run.watched_ns
    if not watched or "thread_cpu" not in facts.run.meta:
        return OwnThreads((), (), ())
    found = json.loads(facts.run.meta["thread_cpu"])
    step = facts.run.step_thread.native_tid if facts.run.step_thread is not None else 0
    python, native = (
        tuple(
            ThreadUse(name, ms * 1e6 / watched)
            for tid, name, ms in found[kind]
            if tid != step and not name.startswith(_AUTOGRAD) and ms * 1e6 >= limit("show_share") * watched
        )
        for kind in ("python", "native")
    )
    pools = tuple((library, setting) for library, setting in json.loads(facts.run.meta.get("thread_pools", "[]")))
    return OwnThreads(python, native[max(0, facts.torch_threads - 1) :], pools)
