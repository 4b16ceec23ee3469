"""A training with a setting that is wrong, or right: `python priced_setting.py CASE wrong`, of CASES.

A case is named after a setting of `trainperf check`, and after a dot by what sets it. `train(case, wrong, seconds)`
gives the milliseconds of its step: of CPU time, which other programs on the machine do not lengthen; of a case in which
the loop waits, by the wall clock.
"""

from __future__ import annotations

import contextlib
import cProfile
import gc
import os
import resource
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from _common import keep_what_is_freed
from torch import nn
from torch.utils.data import DataLoader, Dataset

Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Case:
    """`wrong` is what each of these is told."""

    what: str  # is wrong
    mode: Callable[[bool], AbstractContextManager[Any] | None] = lambda wrong: None  # while it trains
    threads: Callable[[bool], int] = lambda wrong: 1
    work: Callable[[bool], Work] = lambda wrong: lambda: None  # in each step, beside training
    environment: Mapping[str, str] = field(default_factory=dict)  # of a wrong one, before it starts
    flags: Sequence[str] = ()  # likewise, of the interpreter
    wide: int = 64
    deep: int = 4
    scale: float = 1.0  # of the samples
    optimizer: Callable[[bool, Any], Any] = lambda wrong, parameters: torch.optim.SGD(parameters, lr=1e-4)
    set_to_none: Callable[[bool], bool] = lambda wrong: True
    workers: Callable[[bool], int] = lambda wrong: 0
    sample_s: float = 0.0
    epoch: int = 100_000  # batches
    persistent: Callable[[bool], bool] = lambda wrong: False
    waits: bool = False  # what it costs is no CPU time of the training thread


# -- what is wrong while it trains


def _once(do: Callable[[], object]) -> Callable[[bool], None]:
    """Of a process that ends with its training."""

    def set_wrong(wrong: bool) -> None:
        if wrong:
            do()

    return set_wrong


def _within(make: Callable[[], AbstractContextManager[Any]]) -> Callable[[bool], AbstractContextManager[Any] | None]:
    return lambda wrong: make() if wrong else None


def _traced(frame: Any, event: str, arg: Any) -> Any:
    return _traced


@contextlib.contextmanager
def _calling(set_function: Callable[[Any], object]) -> Iterator[None]:
    set_function(_traced)
    try:
        yield
    finally:
        set_function(None)


def _collections_are_told() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    gc.set_debug(gc.DEBUG_STATS)


def _on_one_cpu() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def _flushing(wrong: bool) -> None:
    torch.set_flush_denormal(not wrong)


def _keeping_memory(wrong: bool) -> None:
    if not wrong:
        keep_what_is_freed()


def _many_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    for _ in range(250):
        os.dup(0)


def _with_tokenizers(wrong: bool) -> None:
    import tokenizers

    assert tokenizers
    os.environ.pop("TOKENIZERS_PARALLELISM", None)
    if not wrong:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"


# -- what a step does beside training


def _lists(count: int) -> Callable[[bool], Work]:
    """Objects of Python's, made and dropped."""
    return lambda wrong: lambda: [[number] for number in range(count)]


def _metric(wrong: bool) -> Work:
    """One of the user's, in Python."""
    weights = torch.randn(512)
    return lambda: sum(value * value for value in weights.tolist())


def _gradcheck(wrong: bool) -> Work:
    ones = torch.ones(2, dtype=torch.double, requires_grad=True)
    return lambda: torch.autograd.gradcheck(torch.tanh, ones) if wrong else None


def _decaying(wrong: bool) -> Work:
    small = [torch.full((20_000,), 1e-39)]

    def work() -> None:
        small[0] = small[0] * 1.0

    return work


def _scratch(wrong: bool) -> Work:
    return lambda: torch.empty(100_000)


def _activation(wrong: bool) -> Work:
    x = torch.randn(100_000)
    return lambda: nn.functional.gelu(x)


def _convolution(wrong: bool) -> Work:
    layer, x = nn.Conv2d(16, 16, 3), torch.randn(4, 16, 32, 32)
    return lambda: layer(x).sum().backward()


def _large(wrong: bool) -> Work:
    """As activations of 20 MB."""
    return lambda: torch.ones(5_000_000).mul(2).add(1)


def _compiled(wrong: bool) -> Work:
    """Anew in each step, as where a guard fails."""

    def work() -> None:
        torch._dynamo.reset()
        torch.compile(lambda x: (x * 2).tanh() + 1, backend="eager")(torch.ones(4))

    return work


def _reduced(wrong: bool) -> Work:
    import torch.distributed as dist

    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL" if wrong else "OFF"
    dist.set_debug_level_from_env()
    store = dist.FileStore(tempfile.mkstemp()[1], 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    gradient = torch.ones(1000)
    return lambda: dist.all_reduce(gradient)


CASES: Mapping[str, Case] = {
    "anomaly": Case("torch.autograd.set_detect_anomaly", _once(lambda: torch.autograd.set_detect_anomaly(True))),
    "tracer": Case("sys.settrace", _within(lambda: _calling(sys.settrace)), work=_metric),
    "tracer.setprofile": Case("sys.setprofile", _within(lambda: _calling(sys.setprofile)), work=_metric),
    "tracer.cprofile": Case("cProfile", _within(cProfile.Profile), work=_metric),
    "profiler": Case("torch.profiler, with_stack", _within(lambda: torch.profiler.profile(with_stack=True))),
    "profiler.autograd": Case("torch.autograd.profiler", _within(torch.autograd.profiler.profile)),
    "deterministic": Case(
        "torch.use_deterministic_algorithms", _once(lambda: torch.use_deterministic_algorithms(True)), work=_scratch
    ),
    "tracemalloc": Case("tracemalloc.start()", _once(tracemalloc.start), work=_lists(500)),
    "malloc_debug": Case("PYTHONMALLOC=debug", work=_lists(5000), environment={"PYTHONMALLOC": "debug"}),
    "malloc_debug.dev": Case("python -X dev", work=_lists(5000), flags=("-X", "dev")),
    "gc_debug": Case("gc.set_debug(gc.DEBUG_STATS)", _once(_collections_are_told), work=_lists(5000)),
    "torch_logs": Case("TORCH_LOGS=+dynamo", work=_compiled, environment={"TORCH_LOGS": "+dynamo"}),
    "gradcheck": Case("gradcheck in each step", work=_gradcheck),
    "distributed_debug": Case("TORCH_DISTRIBUTED_DEBUG=DETAIL", work=_reduced),
    "threads": Case("8 threads, 2 CPUs", threads=lambda wrong: 8 if wrong else 2, wide=512, waits=True),
    "affinity": Case("pinned to 1 CPU of 2", _once(_on_one_cpu), threads=lambda _: 2, wide=1024, waits=True),
    "instructions": Case(
        "ATEN_CPU_CAPABILITY=default", work=_activation, environment={"ATEN_CPU_CAPABILITY": "default"}
    ),
    "instructions.onednn": Case(
        "ONEDNN_MAX_CPU_ISA=SSE41", work=_convolution, environment={"ONEDNN_MAX_CPU_ISA": "SSE41"}
    ),
    "denormals": Case("in the batches", _flushing, wide=256, scale=1e-39),
    "denormals.elsewhere": Case("in a tensor of the loop's own", _flushing, work=_decaying),
    "workers": Case("num_workers=0", workers=lambda wrong: 0 if wrong else 4, sample_s=0.0005, waits=True),
    "workers.few": Case("num_workers=1", workers=lambda wrong: 1 if wrong else 4, sample_s=0.0005, waits=True),
    "persistent_workers": Case(
        "persistent_workers=False", workers=lambda _: 2, epoch=40, persistent=lambda wrong: not wrong, waits=True
    ),
    "malloc": Case("20 MB back to the OS in each step", _keeping_memory, work=_large),
    "zero_grad": Case("set_to_none=False", deep=60, set_to_none=lambda wrong: not wrong),
    "optimizer": Case(
        "Adam, fused=False",
        deep=60,
        optimizer=lambda wrong, of: torch.optim.Adam(of, foreach=False, fused=not wrong),
    ),
    "optimizer.foreach": Case(
        "RMSprop, foreach=False", deep=60, optimizer=lambda wrong, of: torch.optim.RMSprop(of, foreach=not wrong)
    ),
    "descriptors": Case("250 of 400 files open", _once(_many_files)),
    "tokenizers": Case("TOKENIZERS_PARALLELISM is not set", _with_tokenizers, workers=lambda _: 2),
}


class Rows(Dataset[Any]):
    def __init__(self, length: int, scale: float, sleep_s: float) -> None:
        self.rows, self.length, self.sleep_s = torch.randn(256, 64) * scale, length, sleep_s

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.sleep_s:
            time.sleep(self.sleep_s)
        return self.rows[index % 256], index % 10


def train(name: str, wrong: bool, seconds: float) -> float:
    case = CASES[name]
    torch.manual_seed(0)
    torch.set_num_threads(case.threads(wrong))
    with case.mode(wrong) or contextlib.nullcontext():
        wide = case.wide
        model = nn.Sequential(
            nn.Linear(64, wide), *(nn.Linear(wide, wide) for _ in range(case.deep)), nn.Linear(wide, 10)
        )
        optimizer = case.optimizer(wrong, model.parameters())
        rows = Rows(16 * case.epoch, case.scale, case.sample_s)
        workers, persistent = case.workers(wrong), case.persistent(wrong)
        loader = DataLoader(rows, batch_size=16, num_workers=workers, persistent_workers=persistent)
        work, to_none = case.work(wrong), case.set_to_none(wrong)
        clock = time.perf_counter if case.waits else time.thread_time
        begun, steps, end = -1.0, 0, time.perf_counter() + 0.2
        while True:
            for x, y in loader:
                optimizer.zero_grad(set_to_none=to_none)
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
                work()
                steps += 1
                if case.epoch > 1000 and time.perf_counter() > end:
                    break
            now = time.perf_counter()
            if now > end:
                if begun >= 0:
                    return (clock() - begun) / steps * 1e3
                begun, steps, end = clock(), 0, now + seconds


if __name__ == "__main__":
    case, state, *more = sys.argv[1:]
    seconds, path = (float(more[0]), more[1]) if len(more) > 1 else (float(more[0]) if more else 6.0, "")
    watch: AbstractContextManager[Any] = contextlib.nullcontext()
    if path:
        import trainperf

        watch = trainperf.watch(path, verbose=False)
    with watch:
        print(f"{train(case, state == 'wrong', seconds):.3f}")
