"""Trainings that take turns: each in a process of its own, of which one runs at a time, for a fifth of a second.

A shared machine's speed changes by the second, by far more than what is measured here. Blocks of half a second, one
after the other, take all of that for a difference. So the processes are forked from one that is warm, and stopped and
continued in a new order each round: within a round all meet nearly the same machine, and none begins anything anew.
Where its memory came to lie makes one process steadily faster than another, by a percent or two. Processes forked alike
have it at the same places, one that is watched at others: a bias that no number of sets would take away. So each
scatters its heap at random, anew in each turn: a turn is cheaper than a set (as in Curtsinger and Berger's Stabilizer,
ASPLOS 2013). What lives through the training stays where it is: hence the sets. A training takes some 240 MB for it.
And no process gives back the memory that a step frees. By itself glibc does, and takes it again in the next step: a
step of 20 ms has 100 to 600 page faults for that, which is up to 5 % of it. How many depends on what else lies at the
heap's top, and so on anything imported before: one whose watch has ended has as many as one that is watched.
"""

from __future__ import annotations

import bisect
import ctypes
import itertools
import mmap
import os
import random
import signal
import struct
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.harness import Block, Figure, block_of, mark, pin, pooled_interval

StepEnded = Callable[[], None]

_MARK = struct.Struct("qqq")
_CAPACITY = 200_000  # steps of one training
_PR_SET_PDEATHSIG = 1
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
# Marks that are left out at a turn's begin, and with them three steps: the one that was cut by the stop, the one in
# which the heap was scattered anew, and one that finds another's data in the caches.
_COLD_MARKS = 2
_FEW_STEPS = 3
_BLOCKS, _SMALLEST, _LARGEST = 400, 1 << 6, 1 << 21  # of the scattered heap; bytes
# A watch that was stopped looks at its rings at once, in a step that is left out, and then every 200 ms: once more in
# this time, in a step that ends within it, which is about as often as if it had not been stopped. Of what it does once
# a second most falls on the first of the two, and is not measured.
TURN_S = 0.24
TURNS = 27
# A watch samples more often at first, and meets each function of the loop for the first time: this long, which no
# training of minutes would notice. Those that nobody watches settle as long.
SETTLE_S = 1.5
_FEWEST_SETS = 6  # of fewer no interval is told


@dataclass(frozen=True, slots=True)
class Training:
    """`train(step_ended)` trains until it is killed, and calls step_ended() at the end of each step.

    Its thread is pinned to one CPU at the first one: helper threads of whoever watches are there by then, and run where
    the kernel puts them. `one_cpu`: they run on that CPU as well.
    """

    train: Callable[[StepEnded], None]
    one_cpu: bool = False


class _ScatteredHeap:
    """Keeps blocks of random sizes with holes between them, in which tensors come to lie."""

    def __init__(self, libc: ctypes.CDLL) -> None:
        libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        self._libc, self._chance = libc, random.Random(os.urandom(8))
        self._blocks: list[int] = []
        self._take(3 * _BLOCKS, touch=True)  # no step is to be the first that touches a page
        self._give(3 * _BLOCKS)
        self.scatter()

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


class _Child:
    """A training in a forked process, which has settled, and is stopped."""

    def __init__(self, training: Training, folder: str) -> None:
        self._marks = mmap.mmap(-1, _MARK.size * _CAPACITY)
        self._turn = mmap.mmap(-1, 8)  # which turn it is: each scatters the heap anew
        self.turns: list[tuple[int, int]] = []  # when it ran
        self.pid = os.fork()
        if self.pid == 0:
            self._train(training, folder)
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            raise RuntimeError("a training ended before it was measured: see its error above")

    def _train(self, training: Training, folder: str) -> None:
        """In the forked process; does not return."""
        try:
            libc = ctypes.CDLL(None)
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # nobody would continue it
            if not (libc.mallopt(_M_TRIM_THRESHOLD, 1 << 30) and libc.mallopt(_M_MMAP_THRESHOLD, 1 << 25)):
                raise RuntimeError("mallopt refused what keeps freed memory: this needs glibc")
            heap = _ScatteredHeap(libc)
            tempfile.tempdir = folder
            steps, settled_ns, turn = itertools.count(), 0, b""

            def step_ended() -> None:
                nonlocal settled_ns, turn
                step = next(steps)
                _MARK.pack_into(self._marks, _MARK.size * step, *mark())
                if turn != self._turn[:]:
                    turn = self._turn[:]
                    heap.scatter()
                if step == 0:
                    pin()
                    settled_ns = time.perf_counter_ns() + int(SETTLE_S * 1e9)
                if settled_ns and time.perf_counter_ns() >= settled_ns:
                    settled_ns = 0
                    os.kill(os.getpid(), signal.SIGSTOP)

            if training.one_cpu:
                pin()
            training.train(step_ended)
        except BaseException:
            traceback.print_exc()
        os._exit(1)

    def take_turn(self) -> None:
        self._turn[:] = len(self.turns).to_bytes(8, "little")
        begin = time.perf_counter_ns()
        os.kill(self.pid, signal.SIGCONT)
        time.sleep(TURN_S)
        end = time.perf_counter_ns()
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)
        self.turns.append((begin, end))

    def blocks(self) -> list[Block | None]:
        """One per turn; None: it had too few steps."""
        marks = list(itertools.takewhile(lambda times: times[0], _MARK.iter_unpack(self._marks)))
        walls = [wall for wall, _, _ in marks]
        result: list[Block | None] = []
        for begin, end in self.turns:
            first, last = bisect.bisect_left(walls, begin) + _COLD_MARKS, bisect.bisect_right(walls, end)
            result.append(block_of(marks[first:last]) if last - first > _FEW_STEPS else None)
        return result

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._marks.close()
        self._turn.close()


@contextmanager
def _children(trainings: Mapping[str, Training], order: list[str]) -> Iterator[dict[str, _Child]]:
    children: dict[str, _Child] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for name in order:
                children[name] = _Child(trainings[name], folder)
            yield children
        finally:
            for child in children.values():
                child.kill()


Rounds = list[dict[str, Block]]  # of one set


def in_turns(trainings: Mapping[str, Training], *, sets: int, turns: int = TURNS) -> list[Rounds]:
    """`sets` times: a fresh process for each training, and `turns` turns of each, all of a round side by side."""
    shuffled = random.Random(0)
    result = []
    for _ in range(sets):
        order = shuffled.sample(list(trainings), len(trainings))
        with _children(trainings, order) as children:
            for _ in range(turns):
                for name in shuffled.sample(order, len(order)):
                    children[name].take_turn()
            columns = {name: child.blocks() for name, child in children.items()}
        rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
        result.append([{n: b for n, b in row.items() if b is not None} for row in rows if all(row.values())])
    return result


# Two trainings that nobody watches: what is measured is held against their mean, and they against each other.
PLAIN = ("plain", "nothing")


def ratios(sets: list[Rounds], name: str, what: Callable[[Block], float]) -> list[list[float]]:
    """Those of each set, one per round."""

    def ratio(row: Mapping[str, Block]) -> float:
        first, second = (what(row[plain]) for plain in PLAIN)
        return second / first if name == PLAIN[1] else 2 * what(row[name]) / (first + second)

    return [list(map(ratio, rows)) for rows in sets if rows]


def _figure(name: str, sets: list[list[float]], **more: Any) -> Figure:
    if not sets:
        return Figure(name, None, note="no turn had enough steps")
    value, low, high = pooled_interval(sets)
    known = len(sets) >= _FEWEST_SETS
    return Figure(name, value, "x", low if known else None, high if known else None, **more)


VIEWS: tuple[tuple[str, Callable[[Block], float]], ...] = (
    ("median step", lambda block: block.middle_ns),
    ("mean step", lambda block: block.mean_ns),
    ("CPU time of the training thread", lambda block: block.thread_ns),
    ("CPU time of the process", lambda block: block.cpu_ns),
)
_NOTES = {
    "mean step": "with what hits few steps, and all of the machine's noise",
    "CPU time of the training thread": "what others run is not in it",
    "CPU time of the process": "with our own threads, less what they do once a second",
}


def figures(title: str, sets: list[Rounds], *, target: float, others: Mapping[str, list[Rounds]]) -> list[Figure]:
    """Rows of "trainperf" and "nothing" in each view, and of each of `others` in the first and third."""
    result = []
    for view, what in VIEWS:
        goal = target if view != "CPU time of the process" else None
        size = (
            f"{sum(map(len, sets))} rounds of {len(sets)} sets; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"
        )
        ours = ratios(sets, "trainperf", what)
        result.append(_figure(f"{title}: trainperf, {view}", ours, target=goal, note=_NOTES.get(view, size)))
        noise = "the noise of this measurement"
        result.append(_figure(f"{title}: nothing, {view}", ratios(sets, PLAIN[1], what), note=noise))
    for name, its_sets in others.items():
        for view, what in VIEWS[0::2]:
            values = ratios(its_sets, name, what)
            result.append(_figure(f"{title}: {name}, {view}", values, note=f"{len(values)} sets"))
    return result
