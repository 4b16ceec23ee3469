"""Where time went by stack, as frames for a flame graph: the step thread by phase, and who held the GIL."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from trainperf.findings import frames
from trainperf.findings.text import plural
from trainperf.findings.waits import syscall_name
from trainperf.report.svg.base import duration
from trainperf.report.svg.flame import Caller, FlameFrame

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.run import Run
    from trainperf.runfile import Detail, Frame

_DEEPEST: Final = 34
_MOST_FRAMES: Final = 160
_MOST_OF_HOLDERS: Final = 110
_MOST_CALLERS: Final = 60
_CALLERS_DEEPEST: Final = 9
_LEAST: Final = 0.002  # share of the whole; what is narrower is not seen
_WORTH_A_LOOK: Final = 0.002  # share of the run


@dataclass(frozen=True, slots=True)
class Flame:
    frames: tuple[FlameFrame, ...]
    callers: tuple[Caller, ...]  # from left to right; each after the one above it
    samples: int
    total_ms: float


@dataclass(slots=True)
class _Node:
    name: str
    at: str
    kind: str
    ns: int = 0
    count: int = 0
    children: dict[tuple[str, str], _Node] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.name} ({self.at})" if self.at else self.name

    def add(self, path: Iterable[tuple[str, str, str]], d: Detail) -> None:
        """Name, place and kind of each node from here downwards."""
        node = self
        node.ns += d.ns
        node.count += d.count
        for name, at, kind in path:
            node = node.children.setdefault((name, at), _Node(name, at, kind))
            node.ns += d.ns
            node.count += d.count


def step_thread(run: Run, facts: Facts) -> Flame | None:
    """The samples of the step thread: phase, then from the outermost call inwards, then in what state it was."""
    details = run.detail_totals("sample")

    def leaf(d: Detail) -> str:
        if d.state == "blocked":
            return f"blocked in {syscall_name(d.syscall, facts.machine)}"
        return {"native": "native code", "parallel": "waits for its own threads", "gil_wait": "waits for the GIL"}.get(
            d.state, ""
        )

    return _flame(run, facts, details, name="the training thread", top=lambda d: (d.phase, "phase"), leaf=leaf)


def gil_holders(run: Run, facts: Facts) -> Flame | None:
    """The waits of the step thread, by what the holder was doing meanwhile; None where it hardly waited."""
    waits = run.detail_totals("gil_wait")
    if facts.share(sum(d.ns for d in waits)) < _WORTH_A_LOOK:
        return None
    return _flame(
        run,
        facts,
        waits,
        name="waits for the GIL, by who held it",
        top=lambda d: (facts.thread_name(d.thread), "thread"),
        leaf=lambda d: "",
        most=_MOST_OF_HOLDERS,
    )


def _flame(
    run: Run,
    facts: Facts,
    details: Iterable[Detail],
    *,
    name: str,
    top: Callable[[Detail], tuple[str, str]],
    leaf: Callable[[Detail], str],
    most: int = _MOST_FRAMES,
) -> Flame | None:
    """`top` gives the name and kind of the first level, `leaf` what is put below the innermost frame ("": nothing)."""
    root, innermost = _Node(name, "", "root"), _Node(name, "", "root")
    known: dict[int, list[tuple[str, str, str]]] = {}
    for d in details:
        if d.ns <= 0:
            continue
        if d.stack not in known:
            known[d.stack] = _path(run.stack(d.stack), facts.base)
        first, kind = top(d)
        path = [(first, "", kind), *known[d.stack]]
        state = leaf(d)
        if d.folded:
            path.append((f"{plural(d.folded, 'small one')} without a stack", "", "state"))
        elif state:
            path.append((state, "", "state"))
        root.add(path[:_DEEPEST], d)
        innermost.add(_turned_around(path, known[d.stack])[:_CALLERS_DEEPEST], d)
    if not root.ns:
        return None
    frames_ = _flat(root, most, lambda depth, ns: ns)
    # All functions before the callers of the largest: a chain of callers is as wide as what it ends in.
    callers = _flat(innermost, _MOST_CALLERS, lambda depth, ns: ns // max(1, depth))
    return Flame(
        tuple(_frame(root, *found) for found in sorted(frames_, key=lambda f: f[:2])),
        tuple(_caller(root, depth, node) for depth, _, node in sorted(callers, key=lambda f: (f[1], f[0]))),
        root.count,
        root.ns / 1e6,
    )


def _path(stack: Sequence[Frame], base: str) -> list[tuple[str, str, str]]:
    """Name, place and kind of each frame, from the user's outermost one inwards.

    What called that (a launcher, a notebook's kernel, threading) says nothing of the training.
    """
    shown = [f for f in reversed(stack) if not frames.is_own_file(f.file)]
    first = next((i for i, f in enumerate(shown) if frames.is_users(f, stack)), 0)
    return [
        (
            frames.short_function(f.function) or "?",
            frames.place(f, base),
            "user" if frames.is_users(f, stack) else "library",
        )
        for f in shown[first:]
    ]


def _turned_around(
    path: Sequence[tuple[str, str, str]], calls: Sequence[tuple[str, str, str]]
) -> list[tuple[str, str, str]]:
    """The innermost function first, whichever line of it and in whatever state; each caller by its line, as usual."""
    if not calls:
        return list(reversed(path))
    name, at, kind = calls[-1]
    return [(name, at.rpartition(":")[0], kind), *reversed(calls[:-1]), path[0]]


def _flat(root: _Node, most: int, weight: Callable[[int, int], int]) -> list[tuple[int, int, _Node]]:
    """Depth, start in ns, and node: those of the largest weight; none without the one above it."""
    out: list[tuple[int, int, _Node]] = []
    order = itertools.count()  # no two entries compare further
    work = [(-root.ns, 0, next(order), 0, root)]
    while work and len(out) < most:
        _, depth, _, start, node = heapq.heappop(work)
        out.append((depth, start, node))
        for child in sorted(node.children.values(), key=lambda c: -c.ns):
            if child.ns >= _LEAST * root.ns:
                heapq.heappush(work, (-weight(depth + 1, child.ns), depth + 1, next(order), start, child))
            start += child.ns
    return out


def _frame(root: _Node, depth: int, start: int, node: _Node) -> FlameFrame:
    share = node.ns / root.ns
    text = f"{node.label}: {share:.1%}, {duration(node.ns / 1e6)}, {plural(node.count, 'sample')}"
    return FlameFrame(depth, start / root.ns, share, node.name, text, node.kind)


def _caller(root: _Node, depth: int, node: _Node) -> Caller:
    return Caller(depth, node.label, node.ns / root.ns, node.count, node.kind)
