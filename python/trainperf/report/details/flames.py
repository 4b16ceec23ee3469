"""Where time went by stack, as frames for a flame graph: the step thread by phase, and who held the GIL."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from trainperf.findings import frames
from trainperf.findings.syscalls import syscall_name
from trainperf.findings.text import plural
from trainperf.report.svg.base import duration
from trainperf.report.svg.flame import FlameFrame

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.run import Detail, Run

_DEEPEST: Final = 34
_MOST_FRAMES: Final = 260
_LEAST: Final = 0.002  # share of the whole
_WORTH_A_LOOK: Final = 0.002  # share of the run


@dataclass(frozen=True, slots=True)
class Flame:
    frames: tuple[FlameFrame, ...]
    samples: int
    total_ms: float
    left_out: float  # share of the time in frames too small to be drawn, at their depth at most


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
    )


def _flame(
    run: Run,
    facts: Facts,
    details: Iterable[Detail],
    *,
    name: str,
    top: Callable[[Detail], tuple[str, str]],
    leaf: Callable[[Detail], str],
) -> Flame | None:
    """`top` gives the name and kind of the first level, `leaf` what is put below the innermost frame ("": nothing)."""
    root = _Node(name, "", "root")
    known: dict[int, list[tuple[str, str, str]]] = {}
    for d in details:
        if d.ns <= 0:
            continue
        if d.stack not in known:
            known[d.stack] = [
                (
                    frames.short_function(f.function) or "?",
                    frames.place(f, facts.base),
                    "user" if frames.is_user_file(f.file) else "library",
                )
                for f in reversed(run.stack(d.stack))
                if not frames.is_own_file(f.file)
            ]
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
    return _flat(root)


def _flat(root: _Node) -> Flame:
    least = _LEAST
    while True:
        out = _collect(root, least)
        if len(out) <= _MOST_FRAMES:
            break
        least *= 1.4
    return Flame(tuple(out), root.count, root.ns / 1e6, least)


def _collect(root: _Node, least: float) -> list[FlameFrame]:
    out: list[FlameFrame] = []
    work = [(root, 0, 0.0)]
    while work:
        node, depth, start = work.pop()
        share = node.ns / root.ns
        where = f" ({node.at})" if node.at else ""
        text = f"{node.name}{where}: {share:.1%}, {duration(node.ns / 1e6)}, {plural(node.count, 'sample')}"
        out.append(FlameFrame(depth, start, share, node.name, text, node.kind))
        at = start
        for child in sorted(node.children.values(), key=lambda c: -c.ns):
            if child.ns >= least * root.ns:
                work.append((child, depth + 1, at))
            at += child.ns / root.ns
    return out
