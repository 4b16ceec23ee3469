"""What a DataLoader's workers do, as its iterator knows it: what lies ready, and for whom a fetch waits.

The iterator hands each worker a few batches ahead, and passes them on in order. So where one worker is late the others
come to an end of what they were asked for; and each may come to the end of its part of a stream. As a batch comes that
was waited for, the iterator's own list of tasks shows whether that is so, and since when.
"""

from __future__ import annotations

import fcntl
import termios
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

# What is read of an iterator, by names that are torch's own.
_NAMES = ("_task_info", "_tasks_outstanding", "_rcvd_idx", "_send_idx", "_workers_status", "_data_queue")
_NOTHING = bytes(4)
_SHORT_NS = 1_000_000  # a fetch that waits for nobody

_clock = time.monotonic_ns


class Wait(NamedTuple):
    """A fetch's, for a batch that has not come from its worker."""

    task: int
    worker: int
    sent: int  # batches that had been asked for
    begin_ns: int


class Workers:
    """Of one iterator, which it holds no reference to."""

    __slots__ = ("_before_ns", "_latest_ns", "_pinned", "_pipe", "_was_there")

    def __init__(self, iterator: Any) -> None:
        """AttributeError, or NotImplementedError, for an iterator that is not as torch's are, and on macOS, whose
        queues count nothing."""
        for name in _NAMES:
            getattr(iterator, name)
        self._pinned = hasattr(iterator, "_pin_memory_thread")
        self._pipe: int = (iterator._worker_result_queue if self._pinned else iterator._data_queue)._reader.fileno()
        self._ready(iterator)
        # The last two batches that it took from the workers, also those whose turn had not come.
        self._before_ns = 0
        self._latest_ns = 0
        self._was_there = False  # when it was asked for

    def begin(self, iterator: Any) -> tuple[int, Wait | None]:
        """Of a fetch that begins: batches that are ready, and for what it will wait if its own is not among them."""
        stashed = len(iterator._task_info) - iterator._tasks_outstanding
        ready = self._ready(iterator)
        number, task = _next_task(iterator)
        if len(task) == 2:
            return ready + stashed, None
        return ready, Wait(number, task[0], iterator._send_idx, _clock()) if task else None

    def was_behind(self, wait: Wait) -> bool:
        """Whether what was ready, if anything, were later batches."""
        return self._latest_ns >= wait.begin_ns and not self._was_there

    def awaited(self, iterator: Any, wait: Wait) -> tuple[int, int, int] | None:
        """Of a fetch that waited, as it ends: (the worker that alone had something to do, or -1; workers that had not
        read their parts; for how long that was so). None where it got another batch than it waited for, and where
        several workers had something to do, and all read."""
        tasks, working = iterator._task_info, iterator._workers_status
        took_ns = self._latest_ns - wait.begin_ns
        if took_ns < _SHORT_NS or len(working) == 1 or not working[wait.worker] or wait.task in tasks:
            return None
        reading = sum(working)
        # What was there was not waited for, but for whoever handed it over. In an epoch's last batches nobody is asked
        # for more.
        alone = reading == 1 or (not self._was_there and iterator._send_idx > wait.sent)
        for number, task in tasks.items():
            if number < wait.sent and len(task) == 1 and task[0] != wait.worker and working[task[0]]:
                alone = False
        if alone:
            return wait.worker, reading, self._latest_ns - max(self._before_ns, wait.begin_ns)
        return (-1, reading, took_ns) if reading < len(working) else None

    def is_there(self, iterator: Any) -> bool:
        """Whether a batch can be taken out now."""
        return (self._pinned and bool(iterator._data_queue.queue)) or self._in_pipe()

    def came(self, was_there: bool) -> None:
        """One was taken out."""
        self._before_ns, self._latest_ns, self._was_there = self._latest_ns, _clock(), was_there

    def _counted(self, iterator: Any) -> int:
        """Batches that were made and not taken out. A worker counts one before its own thread has sent it, which may
        take long where it goes on computing."""
        if self._pinned:
            # Its data queue is a queue.Queue: qsize() would take the lock that the pin-memory thread holds.
            return len(iterator._data_queue.queue) + int(iterator._worker_result_queue.qsize())
        return int(iterator._data_queue.qsize())

    def _ready(self, iterator: Any) -> int:
        counted = self._counted(iterator)
        return counted if counted and self.is_there(iterator) else 0

    def _in_pipe(self) -> bool:
        return fcntl.ioctl(self._pipe, termios.FIONREAD, _NOTHING) != _NOTHING


def _next_task(iterator: Any) -> tuple[int, Sequence[Any]]:
    """The number of the task whose batch is next, and (worker, batch if it came before its turn); (-1, ()) where there
    is none. A worker that is at the end of its stream leaves tasks behind that nobody does."""
    tasks, working = iterator._task_info, iterator._workers_status
    for number in range(iterator._rcvd_idx, iterator._send_idx):
        task: Sequence[Any] = tasks.get(number, ())
        if len(task) == 2 or (task and working[task[0]]):
            return number, task
    return -1, ()
