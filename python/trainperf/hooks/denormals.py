"""Denormal floats in what a CPU trains on: bounded looks at them, and how much faster the same work is without."""

from __future__ import annotations

import copy
import functools
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from trainperf.hooks.compiling import may_compile
from trainperf.hooks.context import Context
from trainperf.hooks.module_calls import tensors_in

if TYPE_CHECKING:
    import numpy as np

_FIRST_S, _EVERY_S = 0.5, 2.0  # the first after that of hooks/module_calls.py
_APART = 0.1  # of the time so far, between two looks
_SHARE = 0.003  # of the time so far, all looks together
_LOOK_S = 0.1
# Then it ends as a module is called again that no other one calls: since its first, and of own work that found none.
_MODULES_S, _OWN_S = 0.005, 0.0005
_TRIES_S = 0.01  # of a look, to run modules again
_LONGEST_S = 0.005  # as long as a try with denormals may take
_MOST_CALLS = 3000  # of a look
_MOST_EXAMINED = 24
_MOST_PARAMETERS = 32  # of optimizers, with what they keep of each
_BLOCK = 16  # elements that lie side by side, as in count_floats()
_OF_CALL, _OF_STATE = 2048, 32_768  # elements
_MOST_ELEMENTS = 1 << 20  # of a tensor that a try copies
_SIDE = 32  # of a matrix
_MANY = 0.01  # of the elements of a tensor
_SLOWER = 1.5  # times, at least: less may be chance
_SLOW_CPU = 2.0  # times
_POWERS = 24  # of two: 1e-7, as small as weights and gradients often are
_TRIES = 6
_MOST_SEEN = 4

# By dtype, of a number's bits: the type that they are read as, all but the sign, the mantissa.
_BITS: Final = {
    "torch.float32": ("u4", 0x7FFFFFFF, 0x7FFFFF),
    "torch.bfloat16": ("u2", 0x7FFF, 0x7F),
    "torch.float64": ("u8", 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFF),
}
# Layers that can be run again unseen: they draw no random numbers, and keep nothing.
PURE: Final = {
    "Linear", "Bilinear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d",
    "LayerNorm", "GroupNorm", "RMSNorm", "Tanh", "Sigmoid", "GELU", "SiLU", "ELU", "Softplus", "Softmax", "LogSoftmax",
    "AvgPool1d", "AvgPool2d", "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "RNNCell", "LSTMCell", "GRUCell",
}  # fmt: skip


@dataclass(slots=True)
class _Call:
    """Of a module without others in it."""

    module: Any
    root: Any  # the outermost
    seconds: float
    saved: float = 0.0  # the share of them, without denormals
    share: float = 0.0  # of the elements of that of its tensors which has the most
    what: str = ""


@dataclass(slots=True)
class _Look:
    """Times are of this thread on the CPU: the machine may be busy."""

    began: float = 0.0  # the first forward
    calls: int = 0
    every: int = 1
    leaves_s: float = 0.0
    roots_s: float = 0.0
    tried_s: float = 0.0
    own_s: float = 0.0
    roots: set[int] = field(default_factory=set)
    found: bool = False
    open: list[tuple[Any, float, float]] = field(default_factory=list)  # module, begin, own time by then
    kept: list[tuple[int, _Call]] = field(default_factory=list)


class DenormalsHook:
    """A look takes in a few forwards by PyTorch's global module hooks, and the tensors of optimizers: bounded parts of
    CPU tensors, read from memory. Where a layer has denormals it is run again on a copy of its tensors without them;
    a part of the optimizers' tensors is multiplied with and without them. Nothing of the training's is changed, and the
    mode of no thread."""

    name = "denormals"
    needs = "torch"

    def __init__(self) -> None:
        self._context: Context | None = None
        self._began = self._last = 0.0
        self._cost_s = 0.0
        self._look: _Look | None = None
        self._handles: list[Any] = []
        self._thread = 0
        self._slow = False
        self._rates: dict[type, float] = {}
        self._gains: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
        self._sums = [0.0, 0.0, 0.0, 0.0]
        self._seconds = 0.0
        self._looks = 0
        self._seen: dict[str, dict[str, float]] = {"model": {}, "optimizer": {}}

    def install(self, context: Context) -> None:
        self._context = context
        self._began = self._last = time.monotonic()
        if "numpy" in sys.modules:  # of a torch without it nothing is read
            context.ticker.add(self.name, self._tick, after_s=_FIRST_S)
            context.ends_of_looks.append(self._unhook)

    def remove(self) -> None:
        if self._context is not None:
            self._context.ticker.discard(self.name)
        self._look = None
        self._unhook()

    def _unhook(self) -> None:
        while self._handles:
            self._handles.pop().remove()

    def _tick(self) -> float:
        import torch

        assert self._context is not None
        cuda: Any = torch.cuda
        if cuda.is_initialized():
            self.remove()
        elif self._look is not None:
            return self._end(self._look)
        else:
            self._look = _Look()
            self._thread = threading.get_ident()
            self._slow = _is_slow()
            if self._slow and not may_compile():  # Dynamo would compile it anew for the hooks
                self._hook()
        return _LOOK_S

    # -- modules

    def _hook(self) -> None:
        import torch
        from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

        is_compiling = torch.compiler.is_dynamo_compiling

        def before(module: Any, _: Any) -> None:
            if not is_compiling():
                self._guarded(lambda look: self._before(look, module))

        def after(module: Any, args: Any, output: Any) -> None:
            if not is_compiling():
                self._guarded(lambda look: self._after(look, module, args, output))

        self._handles = [register_module_forward_pre_hook(before), register_module_forward_hook(after)]

    def _guarded(self, work: Callable[[_Look], None]) -> None:
        look = self._look
        if look is None or threading.get_ident() != self._thread:
            return
        try:
            work(look)
        except Exception as error:
            self.remove()
            assert self._context is not None
            self._context.fail(self.name, error)

    def _before(self, look: _Look, module: Any) -> None:
        if not look.open and _in_backward():
            return
        now = time.thread_time()
        look.began = look.began or now
        if not look.open:
            long = now - look.began > _MODULES_S or (look.own_s > _OWN_S and not look.found)
            if (long and id(module) in look.roots) or look.calls >= _MOST_CALLS:
                self._unhook()
                return
            look.roots.add(id(module))
        look.open.append((module, now, look.own_s))

    def _after(self, look: _Look, module: Any, args: Any, output: Any) -> None:
        now = time.thread_time()
        while look.open and look.open[-1][0] is not module and any(o[0] is module for o in look.open):
            look.open.pop()  # one that raised
        if not look.open or look.open[-1][0] is not module:
            return
        root = look.open[0][0]
        _, began, own_s = look.open.pop()
        seconds = now - began - (look.own_s - own_s)
        if not look.open:
            look.roots_s += seconds
        if not module._modules:
            self._leaf(look, _Call(module, root, seconds), args, output)
        look.own_s += time.thread_time() - now

    def _leaf(self, look: _Look, call: _Call, args: Any, output: Any) -> None:
        look.leaves_s += call.seconds
        look.calls += 1
        if not _is_kept(look.calls, look.every):
            return
        _examine(call, args, output)
        look.found = look.found or call.share >= _MANY
        if call.share >= _MANY and look.tried_s < _TRIES_S:
            began = time.thread_time()
            call.saved = _saved_by_zeros(call, args)
            look.tried_s += time.thread_time() - began
        look.kept.append((look.calls, call))
        if len(look.kept) >= _MOST_EXAMINED:
            look.every *= 2
            look.kept = [kept for kept in look.kept if _is_kept(kept[0], look.every)]

    # -- what a look found

    def _end(self, look: _Look) -> float:
        """Returns in how many seconds the next look is due."""
        assert self._context is not None
        native, session = self._context.native, self._context.session
        self._look = None
        self._unhook()
        began = time.thread_time()
        native.begin_phase(native.PHASES.index("other"))
        native.mute(1)
        try:
            self._add(*self._of_modules(look), *(self._of_optimizers() if self._slow else (0.0, 0.0)))
        finally:
            native.mute(0)
            native.end_phase(native.PHASES.index("other"))
            self._cost_s += look.own_s + time.thread_time() - began
            session.set_overhead(self.name, round(1e9 * self._cost_s))
            apart_s = max(_EVERY_S, _APART * (self._last - self._began))
            due = max(self._last + apart_s, self._began + self._cost_s / _SHARE)
        told = {
            "looks": self._looks,
            "forward": round(self._sums[0] / self._seconds, 4),
            "backward": round(self._sums[1] / self._seconds, 4),
            "optimizer": round(self._sums[2] / self._seconds, 4),
            "optimizer_ns": round(self._sums[3] / self._seconds),
            "seen": {part: _most(seen) for part, seen in self._seen.items()},
        }
        session.set_meta("denormals", json.dumps(told))
        return due - time.monotonic()

    def _add(self, *gains: float) -> None:
        """What was found changed evenly since the last look."""
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        before = self._gains if self._looks else gains
        for i, gain in enumerate(gains):
            self._sums[i] += seconds * (gain + before[i]) / 2
        self._gains = gains
        self._seconds += seconds
        self._looks += 1

    def _of_modules(self, look: _Look) -> tuple[float, float]:
        """The shares of the outermost modules' forwards, and of backward, that would be saved."""
        calls = [call for _, call in look.kept]
        whole = sum(call.seconds for call in calls)
        if not whole or not look.roots_s:
            return 0.0, 0.0
        # Those that were not run again, or while threads waited for a CPU, save as much as others of their class did.
        for call in calls:
            self._rates[type(call.module)] = max(call.saved, self._rates.get(type(call.module), 0.0))
        many = [call for call in calls if call.share >= _MANY]
        saved = sum(call.seconds * (call.saved or self._rates[type(call.module)]) for call in many)
        for call in sorted(many, key=lambda call: -call.seconds)[:_MOST_SEEN]:
            if self._rates[type(call.module)]:
                self._see("model", f"{call.what} of {type(call.module).__name__}{_name_of(call)}", call.share)
        leaves = min(1.0, look.leaves_s / look.roots_s)
        return saved / whole * leaves, self._of_backward(calls, whole / leaves - whole)

    def _of_backward(self, calls: Sequence[_Call], others_s: float) -> float:
        """A layer's backward takes as many times as long with denormals as its forward does, or as products with its
        gradient; of its time without them it takes the share that its forward has of that."""
        plain = slow = others_s
        modules = {id(call.module): call for call in calls} if self._slow else {}
        gradients = {module: _by_gradient(call) for module, call in modules.items()}
        for call in calls:
            saved = (call.saved or self._rates[type(call.module)]) if call.share >= _MANY else 0.0
            seconds = call.seconds * (1 - saved)
            share, times = gradients.get(id(call.module), (0.0, 1.0))
            if times > 1:
                self._see("model", f"gradient of {type(call.module).__name__}{_name_of(call)}", share)
            plain += seconds
            slow += seconds * max(times, 1 / (1 - saved))
        return 1 - plain / slow if slow else 0.0

    def _of_optimizers(self) -> tuple[float, float]:
        """Of their steps: the share that would be saved at most, and by what was measured of multiplications, in ns."""
        assert self._context is not None
        import numpy as np
        import torch

        found = [
            (optimizer, parameter)
            for optimizer in self._context.objects.alive(torch.optim.Optimizer)
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]
        every = 1 + len(found) // _MOST_PARAMETERS
        by_type: dict[str, list[tuple[str, Any]]] = {}
        for optimizer, parameter in found[self._looks % every :: every]:
            for what, tensor in _tensors_of(optimizer, parameter):
                if _is_read(tensor):
                    by_type.setdefault(str(tensor.dtype), []).append((what, tensor))
        if not by_type:
            return 0.0, 0.0
        tensors = max(by_type.values(), key=lambda of: sum(t.numel() for _, t in of))
        elements = sum(t.numel() for _, t in tensors)
        parts = [max(_BLOCK, _OF_STATE * tensor.numel() // elements) for _, tensor in tensors]
        many = _many(tensors, parts)
        if not many or not may_run():
            return 0.0, 0.0
        bits = np.concatenate([_blocks(_bits(tensor), part) for (_, tensor), part in zip(tensors, parts, strict=True)])
        slow, fast = _multiplied(bits, tensors[0][1].dtype)
        if slow < _SLOWER * fast:
            return 0.0, 0.0
        for what, part_of in many.items():
            self._see("optimizer", what, part_of)
        # Read and written once each, by the threads that so many elements are shared by.
        threads = max(1, min(torch.get_num_threads(), elements // 32_768))
        return 1 - fast / slow, 2e9 * (slow - fast) * every * elements / bits.size / threads

    def _see(self, part: str, what: str, share: float) -> None:
        seen = self._seen[part]
        if what in seen or len(seen) < 8 * _MOST_SEEN:
            seen[what] = max(share, seen.get(what, 0.0))


def _most(seen: Mapping[str, float]) -> dict[str, float]:
    most = sorted(seen.items(), key=lambda of: -of[1])[:_MOST_SEEN]
    return {what: round(share, 3) for what, share in most}


def _is_kept(number: int, every: int) -> bool:
    """About one in so many, and not in step with what repeats; those of a larger `every` are among those of half."""
    return (number * 0x9E3779B1 & 0xFFFFFFFF) * every < 1 << 32


# -- tensors, by their memory


class _Memory:
    """For NumPy: no operation of PyTorch's is run, which a mode or a profiler would see."""

    def __init__(self, tensor: Any) -> None:
        typestr = f"<{_BITS[str(tensor.dtype)][0]}"
        self.__array_interface__ = {
            "data": (tensor.data_ptr(), True), "shape": (tensor.numel(),), "typestr": typestr, "version": 3,
        }  # fmt: skip


def _is_read(tensor: Any) -> bool:
    """A plain CPU tensor of floats, whose elements lie side by side in memory."""
    import torch

    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or str(tensor.dtype) not in _BITS:
        return False
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or tensor.numel() < 2:
        return False
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return False
    expected = 1
    for stride, size in () if tensor.is_contiguous() else sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride != expected:
            return False
        expected *= size
    needs = (tensor.storage_offset() + tensor.numel()) * tensor.element_size()
    return bool(tensor.untyped_storage().nbytes() >= needs)  # FSDP frees what it has sharded


def _bits(tensor: Any) -> np.ndarray[Any, Any]:
    """Of a tensor that `_is_read`. Not to be kept: the memory is the tensor's."""
    import numpy as np

    return np.asarray(_Memory(tensor))


def _blocks(bits: np.ndarray[Any, Any], most: int) -> np.ndarray[Any, Any]:
    """A copy of so many, in blocks from all of it."""
    blocks = max(1, most // _BLOCK)
    return bits.copy() if bits.size <= blocks * _BLOCK else bits[_places(bits.size, blocks)]


@functools.lru_cache(maxsize=16)
def _places(size: int, blocks: int) -> np.ndarray[Any, Any]:
    import numpy as np

    starts = np.linspace(0, size - _BLOCK, blocks).astype(np.int64)
    places: np.ndarray[Any, Any] = (starts[:, None] + np.arange(_BLOCK)).ravel()
    return places


def _denormal(bits: np.ndarray[Any, Any], dtype: str, powers: int) -> np.ndarray[Any, Any]:
    """`powers`: of two, by which a normal number may be larger than a denormal one."""
    _, magnitude, mantissa = _BITS[dtype]
    number = bits.dtype.type
    least = number(mantissa + powers * (mantissa + 1))
    found: np.ndarray[Any, Any] = ((bits & number(magnitude)) - number(1)) < least  # zero becomes the largest there is
    return found


def _counts(tensor: Any, most: int) -> tuple[int, int, bool]:
    """Of a tensor that `_is_read`: elements that were looked at, denormals among them, whether all are finite."""
    from trainperf._native import count_floats

    kind = str(tensor.dtype).removeprefix("torch.")
    return count_floats(tensor.data_ptr(), tensor.numel(), kind, max(1, most // _BLOCK))


def _share(tensor: Any) -> float:
    looked_at, denormal, _ = _counts(tensor, _OF_CALL)
    return denormal / looked_at


def _zeroed(tensor: Any) -> Any:
    """With zeros for the denormals of a tensor that `_is_read`, and for what becomes denormal as it is multiplied with
    numbers below one: a copy, where a look at it finds some."""
    import torch

    if not _share(tensor):
        return tensor.detach()
    bits = _bits(tensor).copy()
    bits[_denormal(bits, str(tensor.dtype), _POWERS)] = 0
    return torch.from_numpy(bits).view(tensor.dtype).as_strided(tensor.shape, tensor.stride())


def _many(tensors: Sequence[tuple[str, Any]], parts: Sequence[int]) -> dict[str, float]:
    """Shares of denormals, of tensors by what they are; none where they are few of all."""
    looked_at: dict[str, int] = {}
    denormal: dict[str, int] = {}
    for (what, tensor), part in zip(tensors, parts, strict=True):
        counts = _counts(tensor, part)
        looked_at[what] = looked_at.get(what, 0) + counts[0]
        denormal[what] = denormal.get(what, 0) + counts[1]
    if sum(denormal.values()) < sum(looked_at.values()) * _MANY / 4:
        return {}
    return {what: n / looked_at[what] for what, n in denormal.items() if n >= _MANY * looked_at[what]}


def _tensors_of(optimizer: Any, parameter: Any) -> Iterator[tuple[str, Any]]:
    yield "parameters", parameter
    if parameter.grad is not None:
        yield "gradients", parameter.grad
    for key, value in optimizer.state.get(parameter, {}).items():
        yield f"{key} of {type(optimizer).__name__}", value


def _is_slow() -> bool:
    """Whether this thread multiplies denormals more slowly: not where it flushes them, nor on each CPU."""
    return sys.float_info.min / 4 > 0 and _is_slow_cpu()


@functools.cache
def _is_slow_cpu() -> bool:
    """Asked on a thread that does not flush them."""
    import numpy as np

    ones = np.ones(_OF_CALL, np.float32)
    few = np.full(_OF_CALL, np.finfo(np.float32).tiny, np.float32)
    few.view(np.uint32)[:] >>= 2
    slow = _least(lambda: np.multiply(few, ones), 2 * _TRIES)
    return slow >= _SLOW_CPU * _least(lambda: np.multiply(ones, ones), 2 * _TRIES)


# -- calls of layers


def _examine(call: _Call, args: Any, output: Any) -> None:
    """Of a call that computes NaN or infinity nothing is reported: a CPU is as fast with those as with zeros."""
    results = [("output", _counts(t, _OF_CALL)) for t in tensors_in(output) if _is_read(t)]
    if not all(finite for _, (_, _, finite) in results):
        return
    named = [*(("input", t) for t in tensors_in(args)), *call.module._parameters.items()]
    counts = [(what, _counts(t, _OF_CALL)) for what, t in named if _is_read(t)]
    for what, (looked_at, denormal, _) in counts + results:
        if denormal > call.share * looked_at:
            call.share, call.what = denormal / looked_at, what


def _saved_by_zeros(call: _Call, args: Any) -> float:
    """The share of a call's time that it takes less with zeros for denormals. 0: not more, or it cannot be told."""
    import torch

    module, parameters = call.module, [p for p in call.module._parameters.values() if p is not None]
    known = type(module).__module__.startswith("torch.nn.modules.") and type(module).__name__ in PURE
    if not known or not may_run() or not all(map(_is_read, (*args, *parameters))):
        return 0.0
    with torch.no_grad():
        inputs = tuple(t.detach() for t in args)
        rows = min(t.shape[0] for t in inputs) if inputs else 0
        part = int(rows * _LONGEST_S / max(call.seconds, _LONGEST_S))  # of a long one the first samples alone
        if not part or sum(t.numel() for t in (*inputs, *parameters) if _share(t)) > _MOST_ELEMENTS:
            return 0.0
        inputs = tuple(t[:part] if part < rows else t for t in inputs)
        if not all(map(_is_read, inputs)):
            return 0.0
        plain, twin = _with(module, lambda t: t.detach()), _with(module, _zeroed)
        zeroed = tuple(map(_zeroed, inputs))
        slow = _least(lambda: plain.forward(*inputs), 1)
        fast = _least(lambda: twin.forward(*zeroed), _TRIES)
        if part == rows:
            slow = min(slow, call.seconds)
        if slow >= _SLOWER * fast:  # a first try may be slow for other reasons: as many again as time allows
            slow = min(slow, _least(lambda: plain.forward(*inputs), max(1, min(_TRIES, int(_LONGEST_S / slow)))))
    return 1 - fast / slow if slow >= _SLOWER * fast else 0.0


def _by_gradient(call: _Call) -> tuple[float, float]:
    """The share of denormals in the weight's gradient, and how many times as long products with it take."""
    import torch

    gradient = getattr(call.module._parameters.get("weight"), "grad", None)
    if type(call.module).__name__ not in PURE or gradient is None or not _is_read(gradient):
        return 0.0, 1.0
    share = _share(gradient)
    if share < _MANY or gradient.numel() < _SIDE * _SIDE or not may_run():
        return share, 1.0
    part = _blocks(_bits(gradient), _SIDE * _SIDE)
    with torch.no_grad():
        slow = torch.from_numpy(part).view(gradient.dtype).reshape(_SIDE, _SIDE)
        fast, ones = _zeroed(slow), torch.ones_like(slow)
        slow_s, fast_s = (_least(functools.partial(torch.mm, of, ones), _TRIES) for of in (slow, fast))
    return share, slow_s / fast_s if slow_s >= _SLOWER * fast_s else 1.0


def _with(module: Any, parameters: Callable[[Any], Any]) -> Any:
    """The same layer with others; the program's is left as it is."""
    twin = copy.copy(module)
    twin.__dict__["_parameters"] = {n: None if p is None else parameters(p) for n, p in module._parameters.items()}
    return twin


def _multiplied(bits: np.ndarray[Any, Any], dtype: Any) -> tuple[float, float]:
    """How long it takes with denormals and with zeros for them."""
    import torch

    with torch.no_grad():
        slow = torch.from_numpy(bits).view(dtype)
        fast, result = _zeroed(slow), torch.empty_like(slow)
        slow_s = _least(lambda: torch.mul(slow, 0.75, out=result), _TRIES)
        return slow_s, _least(lambda: torch.mul(fast, 0.75, out=result), _TRIES)


def _least(work: Callable[[], object], times: int) -> float:
    """CPU seconds of this thread, which does its part of what several share."""
    found = []
    for _ in range(times):
        began = time.thread_time()
        work()
        found.append(time.thread_time() - began)
    return min(found)


def may_run() -> bool:
    """Whether no mode, trace or profiler of the program's would see an operation of ours."""
    import torch
    from torch.autograd import profiler

    return not (
        torch._C._len_torch_dispatch_stack()
        or torch._C._len_torch_function_stack()
        or torch._C._get_tracing_state() is not None
        or torch._C._functorch.maybe_current_level() is not None
        or getattr(profiler, "_is_profiler_enabled", False)
    )


def _in_backward() -> bool:
    import torch

    return bool(torch._C._current_graph_task_id() != -1)


def _name_of(call: _Call) -> str:
    """ " model.fc2", as the outermost module has it."""
    found: Sequence[str] = [name for name, module in call.root.named_modules() if module is call.module]
    return f" {found[0]}" if found and found[0] else ""
