"""Short trainings with and without, in turns: what is measured has a plain one just before it and one just after it.

A shared machine's speed changes by the second, by far more than what is measured: held against the mean of its two
neighbours a training has that in it no more than they. Where its memory came to lie makes one process steadily faster
than another: so neighbours are of one process, and several processes do it. They are forked from one that is warm, and
what it had allocated by then lies at the same addresses in all of them, on other pages.
What somebody who watches allocates moves all that comes after it, which is a bias of the same kind: so a process
scatters its heap at random, anew in each round (as in Curtsinger and Berger's Stabilizer, ASPLOS 2013).
And no process gives back the memory that a step frees. By itself glibc does, and takes it again in the next step: a
step of 20 ms has 100 to 600 page faults for that, which is up to 5 % of it. How many depends on what else lies at the
heap's top, and so on anything imported before.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import random
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.harness import Block, Figure, Mark, block_of, mark, pin, pooled_interval

StepEnded = Callable[[], None]

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_PR_SET_PDEATHSIG = 1  # of prctl(2)
_BLOCKS, _SMALLEST, _LARGEST = 400, 1 << 6, 1 << 21  # of the scattered heap; bytes
MEASURED_S = 0.5  # of each training, after its first steps, in which the loop's functions are met for the first time
SKIPPED_S = 0.2
# Of one that is watched by us: what a watch does each second, a second after its begin, is in what is measured. So it
# is there twice as often as in a training of minutes; and samples, which are taken up to four times as often at first,
# still are.
SKIPPED_WATCHED_S = 0.75
_WARM_UP = 3  # plain trainings at a process' begin
_FEWEST_PROCESSES = 6  # of fewer no interval is told


@dataclass(frozen=True, slots=True)
class Training:
    """`train(step_ended, steps)` trains so many steps, and calls step_ended() at the end of each.

    It begins on all CPUs, and helper threads that somebody who watches starts before the first step_ended() run where
    the kernel puts them. From then on its own thread is pinned to one. `one_cpu`: so are they.
    """

    train: Callable[[StepEnded, int], None]
    skipped_s: float = SKIPPED_S
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


Turns = Mapping[str, list[Beside]]  # of one process: one per round


def _measured(training: Training, step_ms: float) -> Block:
    skipped, steps = (max(4, round(seconds * 1e3 / step_ms)) for seconds in (training.skipped_s, MEASURED_S))
    marks: list[Mark] = []
    all_cpus = os.sched_getaffinity(0)

    def step_ended() -> None:
        if not marks:
            pin()
        marks.append(mark())

    gc.collect()  # what a training leaves is not to be collected in the next one
    try:
        if training.one_cpu:
            pin()
        training.train(step_ended, skipped + steps + 1)
    finally:
        os.sched_setaffinity(0, all_cpus)
    if len(marks) != skipped + steps + 1:
        raise RuntimeError(f"a training ended after {len(marks)} steps of {skipped + steps + 1}")
    return block_of(marks[skipped:])


def _rounds(plain: Training, others: Mapping[str, Training], rounds: int, step_ms: float) -> Turns:
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # else it would load the machine when whoever asked is gone
    if not (libc.mallopt(_M_TRIM_THRESHOLD, 1 << 30) and libc.mallopt(_M_MMAP_THRESHOLD, 1 << 25)):
        raise RuntimeError("mallopt refused what keeps freed memory")
    gc.collect()
    gc.freeze()
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


def _in_child(work: Callable[[], Turns]) -> Turns:
    """What work() returns, in a forked process of its own."""
    context = multiprocessing.get_context("fork")
    result, sender = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sender.send(work()))
    child.start()
    sender.close()
    try:
        return result.recv()  # type: ignore[no-any-return]
    except (EOFError, OSError):
        child.join()
        raise RuntimeError(f"a training failed: its process ended with {child.exitcode}") from None
    finally:
        child.kill()
        child.join()
        result.close()


def in_turns(
    plain: Training, others: Mapping[str, Training], *, step_ms: float, processes: int, rounds: int
) -> list[Turns]:
    """In each of so many processes every one of `others` has a turn in each of `rounds`, between plain ones.

    Raises RuntimeError when a training failed; its error is on stderr.
    """
    return [_in_child(lambda: _rounds(plain, others, rounds, step_ms)) for _ in range(processes)]


OURS = "trainperf"
NOTHING = "nothing"  # a training that nobody watches, held against the plain ones: the noise of the measurement

VIEWS: tuple[tuple[str, Callable[[Block], float]], ...] = (
    ("median step", lambda block: block.middle_ns),
    ("mean step", lambda block: block.mean_ns),
    ("CPU time of the training thread", lambda block: block.thread_ns),
    ("CPU time of the process", lambda block: block.cpu_ns),
)
_NOTES = {  # of ours
    "mean step": "with what hits few steps, and all of the machine's noise",
    "CPU time of the training thread": "what others run is not in it",
    "CPU time of the process": "with our own threads, which sample more often when a watch is young",
}


def figures(title: str, measured: list[Turns], *, target: float | None = None) -> list[Figure]:
    """Rows of "trainperf" and "nothing" in each view, and of the others in the first and third."""
    known = len(measured) >= _FEWEST_PROCESSES

    def figure(name: str, view: str, ratio: Callable[[Beside], float], **more: Any) -> Figure:
        value, low, high = pooled_interval([list(map(ratio, its[name])) for its in measured])
        more.setdefault("note", f"{sum(len(its[name]) for its in measured)} turns in {len(measured)} processes")
        return Figure(f"{title}: {view}", value, "x", low if known else None, high if known else None, **more)

    result = []
    for name in measured[0]:
        for view, what in VIEWS if name in (OURS, NOTHING) else VIEWS[0::2]:
            goal = target if name == OURS and view != "CPU time of the process" else None
            note = {"note": _NOTES[view]} if name == OURS and view in _NOTES else {}
            result.append(figure(name, f"{name}, {view}", lambda b, what=what: b.ratio(what), target=goal, **note))
    if OURS in measured[0]:
        view, what = VIEWS[0]
        row = f"plain after {OURS} against plain before it, {view}"
        result.append(figure(OURS, row, lambda b: what(b.after) / what(b.before), note="what a watch leaves behind"))
    return result
