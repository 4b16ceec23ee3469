"""Short trainings with and without, in turns: what is measured has a plain one just before it and one just after it.

A shared machine's speed changes by the second, by far more than what is measured: held against the mean of its two
neighbours a training has that in it no more than they. Where a process' memory came to lie makes it steadily faster
than another, by a percent: so neighbours are of one process, and there are several processes, each forked from one that
is warm. What somebody who watches allocates moves all that comes after it, which is a bias of the same kind: so a
process scatters its heap at random, anew in each round (as in Curtsinger and Berger's Stabilizer, ASPLOS 2013).
And no process gives back the memory that a step frees. By itself glibc does, and takes it again in the next step: a
step of 20 ms has 100 to 600 page faults for that, which is up to 5 % of it. How many depends on what else lies at the
heap's top, and so on anything imported before.

Each training begins and ends what watches it, and is short: a watch samples more often at first than it does later on,
so that what is measured here is rather more than it costs a training of minutes.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.harness import Block, Figure, Mark, block_of, mark, pin, pooled_interval

StepEnded = Callable[[], None]

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_BLOCKS, _SMALLEST, _LARGEST = 400, 1 << 6, 1 << 21  # of the scattered heap; bytes
# Of each training: what is measured, and its first steps, in which the loop's functions are met for the first time.
MEASURED_S = 0.5
_SKIPPED_S = 0.2
_WARM_UP = 3  # plain trainings at a process' begin
_FEWEST_SETS = 6  # of fewer no interval is told


@dataclass(frozen=True, slots=True)
class Training:
    """`train(step_ended, steps)` trains so many steps, and calls step_ended() at the end of each.

    It begins on all CPUs, on which helper threads of whoever watches stay. From the first step_ended() on its own
    thread is pinned to one. `one_cpu`: so are they.
    """

    train: Callable[[StepEnded, int], None]
    one_cpu: bool = False


class _ScatteredHeap:
    """Keeps blocks of random sizes with holes between them, in which tensors come to lie."""

    def __init__(self, libc: ctypes.CDLL) -> None:
        libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        self._libc, self._chance = libc, random.Random(os.urandom(8))
        self._blocks: list[int] = []
        self._take(3 * _BLOCKS, touch=True)  # no step is to be the first that touches a page
        self._give(3 * _BLOCKS)

    def scatter(self) -> None:
        """Anew: takes blocks, and frees a random part of those that there are."""
        self._take(_BLOCKS)
        self._chance.shuffle(self._blocks)
        self._give(len(self._blocks) - _BLOCKS // 2)

    def _take(self, blocks: int, *, touch: bool = False) -> None:
        for _ in range(blocks):
            size = int(_SMALLEST * (_LARGEST / _SMALLEST) ** self._chance.random())
            block = self._libc.malloc(size)
            if not block:
                raise MemoryError("no memory to scatter the heap in")
            if touch:
                ctypes.memset(block, 1, size)
            self._blocks.append(block)

    def _give(self, blocks: int) -> None:
        for _ in range(blocks):
            self._libc.free(ctypes.c_void_p(self._blocks.pop()))


@dataclass(frozen=True, slots=True)
class Beside:
    """A training, and the plain ones before and after it."""

    block: Block
    before: Block
    after: Block

    def ratio(self, what: Callable[[Block], float]) -> float:
        return 2 * what(self.block) / (what(self.before) + what(self.after))


Set = Mapping[str, list[Beside]]  # of one process: one per round


def _measured(training: Training, step_ms: float) -> Block:
    skipped, steps = (max(4, round(seconds * 1e3 / step_ms)) for seconds in (_SKIPPED_S, MEASURED_S))
    marks: list[Mark] = []
    all_cpus = os.sched_getaffinity(0)

    def step_ended() -> None:
        if not marks:
            pin()
        marks.append(mark())

    try:
        if training.one_cpu:
            pin()
        training.train(step_ended, skipped + steps + 1)
    finally:
        os.sched_setaffinity(0, all_cpus)
    return block_of(marks[skipped:])


def _rounds(plain: Training, others: Mapping[str, Training], rounds: int, step_ms: float) -> Set:
    libc = ctypes.CDLL(None)
    if not (libc.mallopt(_M_TRIM_THRESHOLD, 1 << 30) and libc.mallopt(_M_MMAP_THRESHOLD, 1 << 25)):
        raise RuntimeError("mallopt refused what keeps freed memory: this needs glibc")
    heap, shuffled = _ScatteredHeap(libc), random.Random(os.urandom(8))
    for _ in range(_WARM_UP):
        _measured(plain, step_ms)
    result: dict[str, list[Beside]] = {name: [] for name in others}
    for _ in range(rounds):
        heap.scatter()
        before = _measured(plain, step_ms)
        for name in shuffled.sample(list(others), len(others)):
            block, after = _measured(others[name], step_ms), _measured(plain, step_ms)
            result[name].append(Beside(block, before, after))
            before = after
    return result


def _in_child(work: Callable[[], Set]) -> Set:
    """What work() returns, in a forked process of its own."""
    fork = multiprocessing.get_context("fork")
    result: Connection
    result, sender = fork.Pipe(duplex=False)
    child = fork.Process(target=lambda: sender.send(work()))
    child.start()
    sender.close()
    try:
        return result.recv()  # type: ignore[no-any-return]
    except EOFError:
        raise RuntimeError("a training ended before it was measured: see its error above") from None
    finally:
        child.join()


def in_turns(plain: Training, others: Mapping[str, Training], *, step_ms: float, sets: int, rounds: int) -> list[Set]:
    """`sets` processes, in each of which every one of `others` has a turn in each of `rounds`, between plain ones."""
    return [_in_child(lambda: _rounds(plain, others, rounds, step_ms)) for _ in range(sets)]


NOTHING = "nothing"  # a training that nobody watches, held against the plain ones: the noise of the measurement

VIEWS: tuple[tuple[str, Callable[[Block], float]], ...] = (
    ("median step", lambda block: block.middle_ns),
    ("mean step", lambda block: block.mean_ns),
    ("CPU time of the training thread", lambda block: block.thread_ns),
    ("CPU time of the process", lambda block: block.cpu_ns),
)
_NOTES = {
    "mean step": "with what hits few steps, and all of the machine's noise",
    "CPU time of the training thread": "what others run is not in it",
    "CPU time of the process": "with our own threads, which do most when a watch is young",
}


def figures(title: str, sets: list[Set], *, target: float) -> list[Figure]:
    """Rows of "trainperf" and "nothing" in each view, and of the others in the first and third."""

    def figure(name: str, view: str, what: Callable[[Block], float], **more: Any) -> Figure:
        value, low, high = pooled_interval([[beside.ratio(what) for beside in its[name]] for its in sets])
        known = len(sets) >= _FEWEST_SETS
        row = f"{title}: {name}, {view}"
        return Figure(row, value, "x", low if known else None, high if known else None, **more)

    result = []
    others = [name for name in sets[0] if name not in ("trainperf", NOTHING)]
    size = f"{{}} turns in {len(sets)} processes; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"
    if "trainperf" in sets[0]:
        for view, what in VIEWS:
            goal = target if view != "CPU time of the process" else None
            note = _NOTES.get(view, size.format(sum(len(its["trainperf"]) for its in sets)))
            result.append(figure("trainperf", view, what, target=goal, note=note))
            result.append(figure(NOTHING, view, what, note="the noise of this measurement"))
    for name in others:
        for view, what in VIEWS[0::2]:
            result.append(figure(name, view, what, note=size.format(sum(len(its[name]) for its in sets))))
    return result
