"""Two trainings take turns, laps of about a fifth of a second: one that is measured, and a plain one beside it.

A shared machine's speed changes by the second, by far more than what is measured: two laps that follow one another have
that in them alike, and where it changed between the two, many others tell (Hodges and Lehmann's estimate). Each has a
process of its own, which stands still in the other's laps (SIGSTOP), with the threads of whoever watches it. Where its
memory came to lie makes one process faster than another, and by how much changes with the minutes: so the first trains
plain too, as often and among its watched turns by chance, and the figure is the one ratio over the other. What a watch
leaves behind would so flatter whoever watches: it has a figure of its own, of the plain turns since a watch over those
before any. The second process is never watched. Several pairs do so, forked from a process that is warm.
What somebody who watches allocates moves all that comes after it, which is a bias of the same kind: so each process
scatters its heap at random, anew before each lap (as in Curtsinger and Berger's Stabilizer, ASPLOS 2013).
And no process gives back the memory that a step frees. By itself glibc does, and takes it again in the next step: a
step of 20 ms has 100 to 600 page faults for that, which is up to 5 % of it. How many depends on what else lies at the
heap's top, and so on anything imported before.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import math
import multiprocessing
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import NoReturn

from benchmarks.harness import Block, Figure, Mark, block_of, hodges_lehmann, mark, paired_interval, pin

StepEnded = Callable[[], None]

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_PR_SET_PDEATHSIG = 1  # of prctl(2)
_BLOCKS, _SMALLEST, _LARGEST = 400, 1 << 6, 1 << 21  # of the scattered heap; bytes
_SHORTEST_LAP_S, _LONGEST_LAP_S = 0.13, 0.33  # at random: what is due at regular times is due anywhere in a lap
_FEWEST_STEPS = 4  # of a lap
# Of each training; at first the loop's functions are met for the first time. What is measured begins, with the other
# one's laps between, 0.8 s after the first step and ends 4.8 s after it. What a watch of ours does each second, or was
# to do while it stood still, is in it twice as often as in a training that never does; and samples are taken more often
# at first.
_SKIPPED_S, _MEASURED_S = 0.4, 2.0
_CHANCE = random.SystemRandom()  # a framework seeds the others


@dataclass(frozen=True, slots=True)
class Training:
    """`train(step_ended, steps)` trains so many steps, and calls step_ended() at the end of each.

    It begins on all CPUs, and helper threads that somebody who watches starts before the first step_ended() run where
    the kernel puts them. From then on its own thread is pinned to one. `one_cpu`: so are they.
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


class _Laps:
    """The step_ended() of one training: keeps the time of each step, and waits for its turn before each lap.

    `lap` steps are its first one's; `wait` returns when it is this process' turn again, and the next one's.
    """

    def __init__(self, step_ms: float, lap: int, wait: Callable[[], int]) -> None:
        self._skipped, measured = (max(_FEWEST_STEPS, round(s * 1e3 / step_ms)) for s in (_SKIPPED_S, _MEASURED_S))
        self.steps = self._skipped + measured  # of the training
        self._wait = wait
        self._ended = 0
        self._lap_ends = lap
        self._runs: list[list[Mark]] = [[]]

    def step_ended(self) -> None:
        now = mark()
        self._ended += 1
        if self._ended == 1:
            pin()
        if self._ended >= self._skipped:
            self._runs[-1].append(now)
        if self._ended == self._lap_ends and self._ended < self.steps:
            self._lap_ends += self._wait()
            if self._ended >= self._skipped:
                self._runs.append([mark()])

    def blocks(self) -> list[Block]:
        """Of each lap, but for those that are cut short by the first step or the last that is measured."""
        if self._ended != self.steps:
            raise RuntimeError(f"a training ended after {self._ended} steps of {self.steps}")
        return [block_of([run]) for run in self._runs if len(run) > _FEWEST_STEPS]


class _Runner:
    """A process that trains when it is told to, one lap at a time, and stands still meanwhile. Killed by kill()."""

    def __init__(self, trainings: Sequence[Training], step_ms: float) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, other = context.Pipe()
        # Daemon: who is interrupted before kill() does not wait for it at its end.
        self._process = context.Process(target=_run, args=(trainings, step_ms, other), daemon=True)
        self._process.start()
        other.close()
        self._hear()

    def begin(self, training: int) -> None:
        """Takes effect with the first lap()."""
        self._tell(training)

    def lap(self, steps: int) -> list[Block] | None:
        """Lets it run to the end of a lap of so many steps; the times of all laps after the last one."""
        pid = self._process.pid
        assert pid is not None
        self._tell(steps)  # so it goes on at once, and what is due in it by then is in its lap
        os.kill(pid, signal.SIGCONT)
        blocks = self._hear()
        os.kill(pid, signal.SIGSTOP)
        return blocks

    def _tell(self, what: int) -> None:
        try:
            self._pipe.send(what)
        except OSError:
            raise self._failed() from None

    def _hear(self) -> list[Block] | None:
        try:
            return self._pipe.recv()  # type: ignore[no-any-return]
        except (EOFError, OSError):
            raise self._failed() from None

    def _failed(self) -> RuntimeError:
        self._process.join()
        return RuntimeError(f"a training failed: its process ended with {self._process.exitcode}")

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._process.join()
        self._pipe.close()


def _run(trainings: Sequence[Training], step_ms: float, pipe: Connection) -> NoReturn:
    """A runner's process. Ends at the first error: a thread left over would keep the pipe open, its parent waiting."""
    try:
        _serve(trainings, step_ms, pipe)
    except BaseException:
        traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(1)


def _serve(trainings: Sequence[Training], step_ms: float, pipe: Connection) -> NoReturn:
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # else it would load the machine when whoever asked is gone
    if not (libc.mallopt(_M_TRIM_THRESHOLD, 1 << 30) and libc.mallopt(_M_MMAP_THRESHOLD, 1 << 25)):
        raise RuntimeError("mallopt refused what keeps freed memory")
    gc.collect()
    gc.freeze()
    heap = _ScatteredHeap(libc)
    all_cpus = os.sched_getaffinity(0)

    def wait() -> int:
        heap.scatter()
        pipe.send(None)
        steps: int = pipe.recv()
        return steps

    pipe.send(None)  # it is ready
    while True:
        training = trainings[pipe.recv()]
        laps = _Laps(step_ms, pipe.recv(), wait)
        gc.collect()  # what a training leaves is not to be collected in the next one
        try:
            if training.one_cpu:
                pin()
            training.train(laps.step_ended, laps.steps)
        finally:
            os.sched_setaffinity(0, all_cpus)
        pipe.send(laps.blocks())


_PLAIN = "plain"
Lap = tuple[Block, Block]  # of one process, and of the plain training beside it, of as many steps


@dataclass(frozen=True, slots=True)
class Turns:
    """What one pair of processes took. The first is the same one in all turns; the second was never watched."""

    before: Sequence[Lap]  # both plain, before all others; of all turns, as are those below
    plain: Sequence[Lap]  # both plain, among the others
    since: Sequence[Lap]  # of these and of NOTHING's, those that come after one that was watched
    others: Mapping[str, Sequence[Lap]]

    def log_ratio(self, name: str, what: Callable[[Block], float]) -> float:
        """ln of how much longer the training takes, less that of the pair's own difference."""
        if name == LEFT:
            return _log_ratio(self.since, what) - _log_ratio(self.before, what)
        return _log_ratio(self.others[name], what) - _log_ratio(self.plain, what)


def _log_ratio(laps: Sequence[Lap], what: Callable[[Block], float]) -> float:
    return hodges_lehmann([math.log(what(block) / what(plain)) for block, plain in laps])


def _train(runners: Sequence[_Runner], trainings: Sequence[int], step_ms: float) -> list[Lap]:
    """Two runners, each its training, lap by lap in turn; what each lap took."""
    for runner, training in zip(runners, trainings, strict=True):
        runner.begin(training)
    while True:
        steps = max(_FEWEST_STEPS, round(_CHANCE.uniform(_SHORTEST_LAP_S, _LONGEST_LAP_S) * 1e3 / step_ms))
        blocks = [runner.lap(steps) for runner in runners]
        if None not in blocks:  # they have as many steps: both end in the same lap
            return list(zip(*blocks, strict=True))


OURS = "trainperf"
NOTHING = "nothing"  # half of the turns in which both train plain, held against the other half: the measurement's noise
LEFT = "what is left behind"  # plain turns since one that was watched, held against those before all


def _turns(plain: Training, others: Mapping[str, Training], rounds: int, step_ms: float) -> Turns:
    watched = [name for name in others if name != NOTHING]
    trainings = [plain, *(others[name] for name in watched)]
    runners: list[_Runner] = []
    first = _CHANCE.randrange(2)  # the other one is never watched

    def turn(training: int) -> list[Lap]:
        laps = _train(runners, [training if runner == first else 0 for runner in range(2)], step_ms)
        return [(lap[first], lap[1 - first]) for lap in laps]

    try:
        for _ in range(2):
            runners.append(_Runner(trainings, step_ms))
        turn(0)
        before = [turn(0) for _ in range(max(1, rounds // 2))]
        result: dict[str, list[Lap]] = {_PLAIN: [], **{name: [] for name in others}}
        since: list[Lap] = []
        for _ in range(rounds):
            for name in _CHANCE.sample(list(result), len(result)):
                laps = turn(1 + watched.index(name) if name in watched else 0)
                if name not in watched and any(result[w] for w in watched):
                    since += laps
                result[name] += laps
    finally:
        for runner in runners:
            runner.kill()
        for runner in runners:
            runner.close()
    return Turns(list(itertools.chain(*before)), result.pop(_PLAIN), since, result)


def in_turns(
    plain: Training, others: Mapping[str, Training], *, step_ms: float, pairs: int, rounds: int
) -> list[Turns]:
    """In each of so many pairs of processes every one of `others` has so many turns beside a plain one.

    NOTHING among them is `plain`. Raises RuntimeError when a training failed; its error is on stderr.
    """
    return [_turns(plain, others, rounds, step_ms) for _ in range(pairs)]


VIEWS: tuple[tuple[str, Callable[[Block], float]], ...] = (
    ("step that nobody disturbs", lambda block: block.calm_ns),
    ("median step", lambda block: block.middle_ns),
    ("mean step", lambda block: block.mean_ns),
    ("CPU time of the training thread", lambda block: block.thread_ns),
    ("CPU time of the process", lambda block: block.cpu_ns),
)
_NOTES = {  # of ours
    "step that nobody disturbs": "tenth percentile of a lap: with our hooks, without what our threads disturb",
    "mean step": "with what hits few steps of most laps",
    "CPU time of the training thread": "what others run is not in it",
    "CPU time of the process": "with our own threads, which sample more often when a watch is young",
}


def figures(title: str, measured: list[Turns], *, target: float | None = None) -> list[Figure]:
    """Rows of "trainperf" and "nothing" in each view, and of the others, and what is left behind, in the first two.

    That where NOTHING is among them, and so several rounds of turns.
    """
    result = []
    for name in (*measured[0].others, *([LEFT] if NOTHING in measured[0].others else [])):
        for view, what in VIEWS if name in (OURS, NOTHING) else VIEWS[:2]:
            goal = target if name == OURS and view != "CPU time of the process" else None
            logs = [turns.log_ratio(name, what) for turns in measured]
            value, low, high = (None if log is None else math.exp(log) for log in paired_interval(logs))
            note = f"{len(logs)} pairs: {math.exp(min(logs)):.4f} .. {math.exp(max(logs)):.4f}"
            if name == OURS and view in _NOTES:
                note += f"; {_NOTES[view]}"
            if name == LEFT:
                note += "; plain turns since a watched one, against those before all"
            result.append(Figure(f"{title}: {name}, {view}", value, "x", low, high, goal, note=note))
    return result
