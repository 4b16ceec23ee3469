"""What a trial sees of the training, and where it ends: batches, losses, gradients, each with its time.

The loader that counts is the one whose batch was delivered last before the first backward. A trial ends where the next
batch is asked for after as many as it was to have, so always between two steps. A training without a DataLoader is
counted by its backward calls.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

from trainperf.hooks.describe import batch_bytes
from trainperf.hooks.patch import AnyFunction, Patch
from trainperf.prove import chance
from trainperf.prove.fingerprint import fingerprint, indices, weights
from trainperf.prove.machine import CpuUse
from trainperf.prove.turns import Turns

_MAX_KEPT = 20_000  # batches, losses
_WEIGHED = 64  # batches of an epoch
_WATCHED_FOR_CHANCE = range(1, 9)  # batches: before the first a sampler draws its order
_READ_ONCE = 50  # backwards without a further batch, after the loader's last one
_ENOUGH, _PATIENCE = 30, 10  # steps that a run by time should have; as often the time it waits for them
_GRADIENTS_AT = frozenset({1, 2, 3, 5, 10, 20, 40, 80, 160})  # updates at which gradients are looked at
_LIBRARIES = ("site-packages", "dist-packages")
_NOT_THE_MAKER = "torch/utils/data/dataloader.py"


class Epoch:
    """One pass over a loader."""

    __slots__ = ("begin", "codes", "delivered", "drawn", "end", "loader", "requested", "samples", "weights")

    def __init__(self, loader: int) -> None:
        self.loader = loader
        self.begin = time.perf_counter()  # before its workers are started
        self.end: float | None = None  # when it had no further batch
        self.requested: list[float] = []
        self.delivered: list[float] = []
        self.samples: list[int] = []
        self.codes: list[int] = []  # of the batches' values
        self.weights: list[list[tuple[float, float]]] = []  # the same, of the first ones
        self.drawn: list[int] = []  # of the indices that the sampler drew, which may be ahead of the batches


class Recorder:
    """`finish` is called with why the trial ended, and does not return."""

    def __init__(
        self,
        *,
        batches: int | None,
        seconds: float | None,
        finish: Callable[[str], None],
        cached: int | None = None,
        data_only: float | None = None,
        epoch: int | None = None,
        turns: Turns | None = None,
        turning: Callable[[], None] = lambda: None,
    ) -> None:
        """`epoch`: batches after which each pass over a loader ends, as if it had no more.
        `cached`: after so many batches these are given again and again, as by a loader that takes no time.
        `data_only`: seconds for which batches are read without training, after the first step.
        `turns`: what follows, in the same process; nothing is recorded of it, and `turning` is called before."""
        self._turns = turns
        self._turning = turning
        self._turned = False
        self._epoch = epoch
        self._without_batch = 0  # backwards
        self.reads_once = False  # the script goes on without the loader, such as with batches that it keeps
        self._cached = cached
        self._cache: list[Any] = []
        self._data_only = data_only
        self.read: dict[str, float] = {}
        self._batches = batches
        self._seconds = seconds
        self._finish = finish
        self._pid = os.getpid()
        self._patches: list[Patch] = []
        self.loaders: list[dict[str, Any]] = []
        self._loader_of: dict[int, int] = {}  # id of a DataLoader
        self.epochs: list[Epoch] = []
        self._open: dict[int, Epoch] = {}  # by the id of the iterator
        self._made_by: dict[int, weakref.ref[Any]] = {}  # its loader
        self._held: dict[int, Any] = {}  # the last one of a number, for turns: `for x in DataLoader(...)` keeps none
        self._last: int | None = None  # the loader that delivered last
        self.trains: int | None = None  # the loader that counts
        self._count = 0  # its batches
        self._first = 0.0  # when its first was delivered, or the first backward began
        self._use: CpuUse | None = None
        self.losses: list[Any] = []
        self.backwards: list[float] = []
        self.gradients: list[tuple[int, int, float]] = []  # update, parameters with gradients, their norm
        self._updates = 0
        self._batch_bytes = 0
        self.at_first_batch: list[Callable[[], None]] = []
        self.at_backward: list[Callable[[], None]] = []

    def install(self) -> None:
        """Called once torch is imported, before the watch installs its own hooks, which then wrap these."""
        import torch
        from torch.optim.optimizer import register_optimizer_step_pre_hook
        from torch.utils.data import dataloader

        iterator = dataloader._BaseDataLoaderIter
        self._patches += [
            Patch(dataloader.DataLoader, "__iter__", self._iter),
            Patch(iterator, "__next__", self._next),
            Patch(iterator, "_next_index", self._next_index),
            Patch(torch.autograd, "backward", self._backward),  # Tensor.backward() calls it
        ]
        register_optimizer_step_pre_hook(self._before_update)

    def reaches(self, torchdata: Any) -> None:
        """Its StatefulDataLoader has an __iter__ of its own."""
        self._patches.append(Patch(torchdata.StatefulDataLoader, "__iter__", self._iter))

    def knows(self, loader: Any, description: dict[str, Any]) -> None:
        """A DataLoader was made. By the same calls as the one that trains: it is that one, for another epoch."""
        if self.trains is not None and description["chain"] == self.loaders[self.trains]["chain"]:
            self._loader_of[id(loader)] = self.trains
            self.loaders[self.trains].update(description)
            return
        self._loader_of[id(loader)] = len(self.loaders)
        self.loaders.append({**description, "trained": 0})

    # What is wrapped

    def _iter(self, original: AnyFunction) -> AnyFunction:
        def __iter__(loader: Any) -> Any:
            if os.getpid() != self._pid:
                return original(loader)
            number = self._loader_of.get(id(loader))
            if number is None:
                number = self._loader_of[id(loader)] = len(self.loaders)
                self.loaders.append({"trained": 0, "chain": [], "options": {}})
            description = self.loaders[number]
            description["length"] = _length(loader)
            description["stream"] = getattr(loader, "_dataset_kind", 0) == 1
            description["worker_init"] = getattr(loader, "worker_init_fn", None) is not None
            epoch = Epoch(number)
            self._beginning = epoch  # batches may be drawn before the iterator is known
            iterator = original(loader)
            self._beginning = None
            self._open[id(iterator)] = epoch
            self._made_by[id(iterator)] = weakref.ref(loader)
            if self._turns is not None:
                self._held[number] = loader
            if not self._turned:
                self.epochs.append(epoch)
            return iterator

        return __iter__

    _beginning: Epoch | None = None

    def _next_index(self, original: AnyFunction) -> AnyFunction:
        def _next_index(iterator: Any) -> Any:
            drawn = original(iterator)
            epoch = self._beginning or self._open.get(id(iterator))
            if epoch is not None and len(epoch.drawn) < _MAX_KEPT and os.getpid() == self._pid:
                epoch.drawn.append(indices(drawn))
            return drawn

        return _next_index

    def _next(self, original: AnyFunction) -> AnyFunction:
        now = time.perf_counter

        def __next__(iterator: Any) -> Any:
            epoch = self._open.get(id(iterator))
            if epoch is None or os.getpid() != self._pid:
                return original(iterator)
            requested = now()
            if epoch.loader == self.trains and self._turned:
                return self._in_turns(iterator, original)
            if epoch.loader == self.trains and self._is_over(requested):
                epoch.requested.append(requested)
                if self._turns is None:
                    self._finish("steps")
                self._turned = True
                self._turning()
                return self._in_turns(iterator, original)
            if self._data_only is not None and epoch.loader == self.trains:
                self._read(iterator, original, self._data_only)
            try:
                if self._epoch is not None and self.trains is not None and len(epoch.delivered) >= self._epoch:
                    _end_early(iterator)
                batch = self._again(epoch) if self._cached is not None else None
                batch = self._made(iterator, original, epoch) if batch is None else batch
            except StopIteration:
                epoch.end = now()
                self._open.pop(id(iterator), None)
                if epoch.loader == self.trains and self._turns is None and self._is_over(epoch.end):
                    self._finish("steps")
                raise
            if len(epoch.requested) < _MAX_KEPT:
                code, samples = fingerprint(batch)
                self._batch_bytes = self._batch_bytes or batch_bytes(batch) or 0
                epoch.requested.append(requested)
                epoch.delivered.append(now())
                epoch.samples.append(samples)
                epoch.codes.append(code)
                if len(epoch.weights) < _WEIGHED:
                    epoch.weights.append(weights(batch))
            if self._cached is not None and epoch.loader == self.trains and len(self._cache) < self._cached:
                self._cache.append(batch)
            self._last = epoch.loader
            self._without_batch = 0
            if epoch.loader == self.trains:
                if self._turns is not None:
                    self._turns.offer(batch)
                self._count += 1
            self._begins()
            return batch

        return __next__

    def _made(self, iterator: Any, original: AnyFunction, epoch: Epoch) -> Any:
        """A batch. Of the first ones, whether making them draws random numbers."""
        watched = len(epoch.delivered) in _WATCHED_FOR_CHANCE and getattr(iterator, "_num_workers", 1) == 0
        if not watched:
            return original(iterator)
        description, dataset = self.loaders[epoch.loader], getattr(self._made_by[id(iterator)](), "dataset", None)
        try:
            own = chance.generators(dataset)
            held = chance.kept(dataset)
        except RuntimeError:  # another thread adds to it meanwhile
            description["draws"] = True
            return original(iterator)
        before, of_own = chance.state(), chance.state_of(own)
        batch = original(iterator)
        drawn = chance.state_of(own) != of_own
        description["draws"] = description.get("draws", bool(own)) or drawn or chance.state() != before
        description["draws_own"] = description.get("draws_own", False) or drawn
        with contextlib.suppress(RuntimeError):
            description["kept"] = description.get("kept", 0) + max(0, chance.kept(dataset) - held)
            description["kept_of"] = description.get("kept_of", 0) + fingerprint(batch)[1]
        return batch

    def _in_turns(self, iterator: Any, original: AnyFunction) -> Any:
        assert self._turns is not None
        batch = self._turns.next(self._made_by[id(iterator)](), original)
        if batch is None:
            self._finish("steps")
        return batch

    def _again(self, epoch: Epoch) -> Any:
        """A batch that was given before; None: one is to be made. Raises StopIteration where the epoch ends."""
        if epoch.loader != self.trains or len(self._cache) < (self._cached or 0):
            return None
        length = self.loaders[epoch.loader].get("length")
        if length is not None and len(epoch.delivered) >= length:
            raise StopIteration
        return self._cache[len(epoch.delivered) % len(self._cache)]

    def _read(self, iterator: Any, original: AnyFunction, seconds: float) -> None:
        """Reads what is left of the epoch, without training, and ends the trial."""
        count, samples, warm = 0, 0, 2 * max(1, getattr(iterator, "_num_workers", 0))
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            try:
                batch = original(iterator)
            except StopIteration:
                break
            count += 1
            if count == warm:  # what was made ahead, while the first step ran
                began, samples = time.perf_counter(), 0
            elif count > warm:
                samples += fingerprint(batch)[1]
        self.read = {"batches": max(0, count - warm), "samples": samples, "seconds": time.perf_counter() - began}
        self._finish("steps")

    def _backward(self, original: AnyFunction) -> AnyFunction:
        import torch

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if os.getpid() == self._pid:
                self._before_backward()
                loss = tensors if isinstance(tensors, torch.Tensor) else None
                if loss is not None and loss.numel() == 1 and len(self.losses) < _MAX_KEPT and not self._turned:
                    self.losses.append(loss.detach().clone())
            return original(tensors, *args, **kwargs)

        return backward

    def _before_backward(self) -> None:
        self._without_batch += 1
        if self._epoch is not None and self._without_batch > _READ_ONCE and self.epochs and not self._open:
            self.reads_once = True
            self._finish("steps")
        if self._last is None:
            at = time.perf_counter()
            if self._is_over(at):
                self._finish("steps")
            self.backwards.append(at)
            self._count += 1
            self._begins()
        else:
            if self.trains is None:
                self.trains, self._count = self._last, 1
            self.loaders[self._last]["trained"] += 1
        for call in self.at_backward:
            call()

    def _before_update(self, optimizer: Any, *_: Any) -> None:
        self._updates += not self._turned
        if self._turned or self._updates not in _GRADIENTS_AT:
            return
        import torch

        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        dense = [g.detach().float() for g in gradients if not g.is_sparse]
        norm = (
            float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in dense]))) if dense else 0.0
        )
        self.gradients.append((self._updates, len(gradients), norm))

    def _begins(self) -> None:
        if self._use is None:
            self._use = CpuUse.now()
            self._first = time.perf_counter()
            for call in self.at_first_batch:
                call()

    def _is_over(self, now: float) -> bool:
        if self._batches is not None and self._count >= self._batches:
            return True
        if self._seconds is None or not self._first:
            return False
        lasted = now - self._first
        return lasted >= (1 if self._count >= _ENOUGH else _PATIENCE) * self._seconds

    # What it knows at the end

    def record(self) -> dict[str, Any]:
        epochs = [e for e in self.epochs if e.loader == self.trains]
        return {
            "loaders": self.loaders[:200],
            "trains": self.trains,
            "epochs": [
                {
                    "begin": e.begin,
                    "end": e.end,
                    "requested": e.requested,
                    "delivered": e.delivered,
                    "samples": e.samples,
                    "codes": e.codes,
                    "weights": e.weights,
                    "drawn": e.drawn,
                }
                for e in epochs
            ],
            "backwards": self.backwards,
            "read": self.read,
            "reads_once": self.reads_once,
            "turns": self._turns.found if self._turns is not None else {},
            "losses": [float(loss) for loss in self.losses],
            "gradients": self.gradients,
            "others_cpus": self._use.others_since() if self._use is not None else None,
            "batch_bytes": self._batch_bytes,
            "peak_bytes": _peak_bytes(),
            "cpus": len(os.sched_getaffinity(0)),  # that its workers may use, too
        }


def construction_chain(loader: Any) -> list[tuple[str, int]]:
    """Who makes `loader`, which is being made: the innermost frame outside of torch's loader, then the user's own
    frames, innermost first.

    So of two loaders that one helper of the user's makes, the caller of the helper tells which. A library's frame that
    has the loader already is a subclass of its own, or a wrapper of __init__, as Lightning's: its caller makes it.
    """
    frame = sys._getframe(1)
    chain: list[tuple[str, int]] = []
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    inner = True
    current: Any = frame
    while current is not None and len(chain) < 8:
        file = current.f_code.co_filename
        skip = file.startswith((ours, "<frozen")) or file.endswith(
            ("torch/utils/data/dataloader.py", "trainperf/program.py")
        )
        library = any(part in file for part in _LIBRARIES) or "/lib/python3" in file
        if not skip and library and inner:
            skip = any(value is loader for value in current.f_locals.values())
        if not skip and (inner or not library):
            chain.append((file, current.f_lineno))
            inner = False
        current = current.f_back
    return chain


def _end_early(iterator: Any) -> NoReturn:
    """As if it had no further batch: workers that are not kept are ended, as torch does then. Raises StopIteration."""
    if not getattr(iterator, "_persistent_workers", False) and hasattr(iterator, "_shutdown_workers"):
        iterator._shutdown_workers()
    raise StopIteration


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except Exception:  # of a stream, or the user's own __len__
        return None


def _peak_bytes() -> dict[str, int]:
    peak = {"rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        peak |= {"cuda": torch.cuda.max_memory_allocated(), "cuda_reserved": torch.cuda.max_memory_reserved()}
    return peak
