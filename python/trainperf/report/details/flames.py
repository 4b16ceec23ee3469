"""Where time went by stack, as frames for a flame graph: the step thread by phase, and who held the GIL."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from trainperf.findings import frames
from trainperf.findings.syscalls import syscall_name
from trainperf.findings.text import plural
from trainperf.report.svg.base import duration
from trainperf.report.svg.flame import FlameFrame

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.run import Run
    from trainperf.runfile import Detail, Frame

_DEEPEST: Final = 34
_MOST_FRAMES: Final = 160
_MOST_OF_HOLDERS: Final = 110
_LEAST: Final = 0.002  # share of the whole; what is narrower is not seen
_WORTH_A_LOOK: Final = 0.002  # share of the run


@dataclass(frozen=True, slots=True)
class Flame:
    frames: tuple[FlameFrame, ...]
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

    def child(self, name: str, at: str, kind: str) -> _Node:
        key = (name, at)
        if key not in self.children:
            self.children[key] = _Node(name, at, kind)
        return self.children[key]


def step_thread(run: Run, facts: Facts) -> Flame | None:
    """The samples of the step thread: phase, then from the outermost call inwards, then in what state it was."""
    details = run.detail_totals("sample")

    def leaf(d: Detail) -> str:
        if d.state == "blocked":
            return f"blocked in {syscall_name(d.code, facts.machine)}"
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
    root = _Node(name, "", "root")
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
        node = root
        node.ns += d.ns
        node.count += d.count
        for frame_name, at, kind in path[:_DEEPEST]:
            node = node.child(frame_name, at, kind)
            node.ns += d.ns
            node.count += d.count
    if not root.ns:
        return None
    return _flat(root, most)


def _path(stack: Sequence[Frame], base: str) -> list[tuple[str, str, str]]:
    """Name, place and kind of each frame, from the user's outermost one inwards.

    What called that (a launcher, a notebook's kernel, threading) says nothing of the training.
    """
    shown = [f for f in reversed(stack) if not frames.is_own_file(f.file)]
    first = next((i for i, f in enumerate(shown) if frames.is_user_file(f.file)), 0)
    return [
        (
            frames.short_function(f.function) or "?",
            frames.place(f, base),
            "user" if frames.is_user_file(f.file) else "library",
        )
        for f in shown[first:]
    ]


def _flat(root: _Node, most: int) -> Flame:
    """The largest frames, of equal ones the outer; a caller is never smaller than what it called."""
    out: list[FlameFrame] = []
    order = itertools.count()  # no two entries compare further
    work = [(-root.ns, 0, next(order), 0.0, root)]
    while work and len(out) < most:
        _, depth, _, start, node = heapq.heappop(work)
        share = node.ns / root.ns
        where = f" ({node.at})" if node.at else ""
        text = f"{node.name}{where}: {share:.1%}, {duration(node.ns / 1e6)}, {plural(node.count, 'sample')}"
        out.append(FlameFrame(depth, start, share, node.name, text, node.kind))
        for child in sorted(node.children.values(), key=lambda c: -c.ns):
            if child.ns >= _LEAST * root.ns:
                heapq.heappush(work, (-child.ns, depth + 1, next(order), start, child))
            start += child.ns / root.ns
    return Flame(tuple(sorted(out, key=lambda f: (f.depth, f.start))), root.count, root.ns / 1e6)
