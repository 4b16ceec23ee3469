"""What the test programs share: arguments, a small model, the truth clock, and the line of JSON that tells the truth.

Each program trains a real torch model and injects one known trouble, whose cost it measures by itself, knowing nothing
of trainperf. `--size 0` injects nothing: every program is its own healthy twin.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MARKER = "# trouble"
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # <malloc.h>

_local = threading.local()


def system_ns() -> int:
    """CPU time of this thread in the kernel."""
    return int(resource.getrusage(resource.RUSAGE_THREAD).ru_stime * 1e9)


def run_delay_ns() -> int:
    """How long this thread has waited for a CPU so far; 0 where the kernel does not tell."""
    if not hasattr(_local, "schedstat"):
        try:
            _local.schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            _local.schedstat = -1
    if _local.schedstat < 0:
        return 0
    return int(os.pread(_local.schedstat, 128, 0).split()[1])


@dataclass
class Program:
    """One test program: what it injects, and what it measured of it.

    `cause` and `finding` are what trainperf should say, `who` the thread that is to be named.
    """

    cause: str
    finding: str
    steps: int
    size: float  # of the trouble; its unit is the program's own. 0: none, a healthy run
    who: str = ""
    where: str = MARKER  # the comment that marks the lines to be named; "": no line is expected
    threads: int = 1
    path: str = ""
    truth_ns: int = 0
    truth_max_ns: int = 0  # where the truth is known as a range
    grown_bytes: int = 0  # what the steps kept
    wall_ns: int = 0
    cpu_ns: int = 0
    delay_ns: int = 0
    system_ns: int = 0
    watching: bool = True

    def __post_init__(self) -> None:
        parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
        parser.add_argument("--steps", type=int, default=self.steps)
        parser.add_argument("--size", type=float, default=self.size, help="of the trouble; 0: a healthy run")
        parser.add_argument("--path", default="", help="of the run file")
        parser.add_argument("--no-watch", action="store_true")
        parser.add_argument("--warm-up", type=int, default=20, help="steps before the watch begins")
        arguments = parser.parse_args()
        self.steps, self.size, self.path = arguments.steps, arguments.size, arguments.path
        self.watching, self.warm_up = not arguments.no_watch, arguments.warm_up
        torch.manual_seed(0)
        torch.set_num_threads(self.threads)

    @contextmanager
    def trouble(self) -> Iterator[None]:
        """The truth clock: what passes inside is the trouble, less the time that this thread was kept from a CPU."""
        delay, start = run_delay_ns(), time.perf_counter_ns()
        try:
            yield
        finally:
            self.truth_ns += time.perf_counter_ns() - start - (run_delay_ns() - delay)

    def blame_gil(self) -> None:
        """After a loop in which the main thread blocks in nothing but the GIL: all blocked time was a wait for it.

        A wait ends when the thread runs again, so the delay of waking up belongs to it too, and what the kernel needs
        to put it to sleep and to wake it; how much of either that was cannot be told from here: the truth is a range.
        """
        self.truth_ns = max(0, self.wall_ns - self.cpu_ns - self.delay_ns)
        self.truth_max_ns = max(0, self.wall_ns - self.cpu_ns + self.system_ns)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """The loop: under trainperf unless --no-watch."""
        watch: AbstractContextManager[Any] = nullcontext()
        if self.watching:
            import trainperf

            watch = trainperf.watch(self.path or None, overwrite=True)
        with watch:
            self.truth_ns = 0
            delay, cpu, start = run_delay_ns(), time.thread_time_ns(), time.perf_counter_ns()
            system = system_ns()
            yield
            self.wall_ns, self.system_ns = time.perf_counter_ns() - start, system_ns() - system
            self.cpu_ns, self.delay_ns = time.thread_time_ns() - cpu, run_delay_ns() - delay

    def report(self, steps: int | None = None) -> None:
        """Prints the truth."""
        healthy = self.size == 0 or not self.cause
        lines = marked_lines(self.where) if self.where and not healthy else []
        file = Path(sys.argv[0]).name
        print(
            json.dumps(
                {
                    "program": Path(sys.argv[0]).stem,
                    "steps": self.steps if steps is None else steps,
                    "wall_ns": self.wall_ns,
                    "cause": None if healthy else self.cause,
                    "truth_share": None if healthy else round(self.truth_ns / self.wall_ns, 4),
                    "truth_share_max": None
                    if healthy
                    else round(max(self.truth_ns, self.truth_max_ns) / self.wall_ns, 4),
                    "where": f"{file}:{lines[0]}" if lines else None,
                    "where_lines": lines,
                    "who": None if healthy else self.who or None,
                    "finding": None if healthy else self.finding,
                    "grown_bytes": self.grown_bytes,
                    "delay_share": round(self.delay_ns / self.wall_ns, 4),
                }
            ),
            flush=True,
        )

    def skip(self, why: str) -> NoReturn:
        """Ends the program: its trouble cannot be injected on this machine."""
        print(json.dumps({"program": Path(sys.argv[0]).stem, "skip": why}), flush=True)
        sys.exit(0)


def marked_lines(marker: str) -> list[int]:
    """The lines of the program that end with `marker`."""
    text = Path(sys.argv[0]).read_text(encoding="utf-8")
    return [number for number, line in enumerate(text.splitlines(), 1) if line.rstrip().endswith(marker)]


def keep_what_is_freed() -> None:
    """From now on malloc gives nothing back to the kernel, and has 1 GB in hand."""
    libc = ctypes.CDLL(None)
    mallopt = libc.mallopt
    libc.malloc.restype = ctypes.c_void_p
    for setting, value in ((M_TRIM_THRESHOLD, 2**31 - 1), (M_MMAP_THRESHOLD, 32 << 20), (M_TOP_PAD, 1 << 30)):
        if mallopt(setting, value) != 1:
            raise RuntimeError(f"mallopt({setting}, {value}) was refused")
    # Larger pieces come from the heap only where it has room, and only smaller ones make it grow.
    libc.free(ctypes.c_void_p(libc.malloc(31 << 20)))


def calibrated(work: Callable[[int], object], target_ms: float) -> int:
    """The n for which work(n) takes about target_ms of this thread's CPU time (the median of a few tries)."""
    if target_ms <= 0:
        return 0
    tries = []
    for _ in range(5):
        n, spent = 256, 0
        while spent < 2_000_000:
            n *= 2
            start = time.thread_time_ns()
            work(n)
            spent = time.thread_time_ns() - start
        tries.append(n * target_ms * 1e6 / spent)
    return max(1, int(sorted(tries)[len(tries) // 2]))


class Trainer:
    """A small classifier with its optimizer: about 1.5 ms a step at width 256 on one thread."""

    def __init__(self, width: int = 256, batch: int = 64, features: int = 64, layers: int = 2) -> None:
        hidden: list[nn.Module] = []
        for _ in range(layers - 1):
            hidden += [nn.Linear(width, width), nn.ReLU()]
        self.model = nn.Sequential(nn.Linear(features, width), nn.ReLU(), *hidden, nn.Linear(width, 10))
        self.loss = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.batch, self.features = batch, features

    def example(self) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(self.batch, self.features), torch.randint(0, 10, (self.batch,))

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.loss(self.model(x), y).backward()
        self.optimizer.step()

    def warm_up(self, steps: int) -> Trainer:
        """First steps are slow (allocations, lazy imports): kept out of the truth by taking them before the watch."""
        x, y = self.example()
        for _ in range(steps):
            self.step(x, y)
        return self


class Ready(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Batches that lie in memory; for DataLoader(batch_size=None), whose fetch then takes some 20 us."""

    def __init__(self, trainer: Trainer, length: int) -> None:
        self.batches = [trainer.example() for _ in range(8)]
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if index >= self.length:
            raise IndexError(index)
        return self.batches[index % 8]


class Slowed(Ready):
    """Batches for each of which the program does `work(size)` first: the trouble, unless the size is 0."""

    def __init__(self, program: Program, trainer: Trainer, work: Callable[[float], object]) -> None:
        super().__init__(trainer, program.steps)
        self.program, self.work = program, work

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self.program.size:
            with self.program.trouble():
                self.work(self.program.size)
        return super().__getitem__(index)


def pin(index: int) -> None:
    """Keeps the calling thread on one CPU, so that what it waits for is not also a CPU."""
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[index % len(cpus)]})


class Stoppable(threading.Thread):
    """A daemon thread that repeats `work` until stop()."""

    def __init__(self, work: Callable[[], object], name: str, *, cpu: int | None = None) -> None:
        super().__init__(name=name, daemon=True)
        self.work, self.ending, self.cpu = work, threading.Event(), cpu

    def run(self) -> None:
        if self.cpu is not None:
            pin(self.cpu)
        while not self.ending.is_set():
            self.work()

    def stop(self) -> None:
        self.ending.set()
        self.join()


def train_in_epochs(program: Program, trainer: Trainer, loader: DataLoader[Any], length: int) -> None:
    """A new iterator, and so new workers, for every `length` steps; all of the fetching is the trouble."""
    epochs = program.steps // length
    with program.watch():
        for _ in range(epochs):
            with program.trouble():
                batches = iter(loader)
                x, y = next(batches)
            trainer.step(x, y)
            for _ in range(length - 1):
                with program.trouble():
                    x, y = next(batches)
                trainer.step(x, y)
            with program.trouble():  # ends the workers, which takes its time too
                assert next(batches, None) is None
    program.report(length * epochs)


def train_beside(program: Program, trainer: Trainer, threads: Sequence[Stoppable], *, until: float = 1.0) -> None:
    """Trains while `threads` run and take the GIL, on another CPU; they end after that share of the steps."""
    last = int(until * program.steps)
    for thread in threads:
        thread.start()
    with program.watch():
        pin(0)
        for number, (x, y) in enumerate(DataLoader(Ready(trainer, program.steps), batch_size=None)):
            if number == last:
                for thread in threads:
                    thread.stop()
            trainer.step(x, y)
    program.blame_gil()
    if last >= program.steps:
        for thread in threads:
            thread.stop()
    program.report()
