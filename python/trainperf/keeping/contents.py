"""What the elements of a container hold: how many bytes each that no other of them holds, and of what kind."""

from __future__ import annotations

import gc
import itertools
import sys
import types
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainperf.keeping.names import is_programs

Holds = Literal["graphs", "tensors", "arrays", "objects", "hooks"]

_MOST_SAMPLES = 4
_MOST_OBJECTS = 400  # of a sample
_LARGE = 32_768  # bytes of a container that is not looked into
_MOST_NODES = 500
_NODE_BYTES = 400  # of autograd's: it and what it points to, at the least
_PLAIN = (str, bytes, bytearray, int, float, complex, bool, type(None), list, tuple, dict, set, frozenset, deque)
_ON_GPU = "on a GPU"  # among the kinds of what a sample has
_GPUS = frozenset({"cuda"})  # kinds of devices with memory of their own that is weighed
_SKIPPED = (type, types.ModuleType, types.CodeType, types.BuiltinFunctionType, types.FrameType)


@dataclass(frozen=True, slots=True)
class Contents:
    holds: Holds
    bytes: float  # of an element; of graphs what is known at the least
    scalar: bool = False  # tensors of one element
    place: tuple[str, int] = ("", 0)  # of hooks: where the function is written
    on_gpu: bool = False  # tensors of half of the elements or more


def latest(container: Any) -> list[Any]:
    """The last elements of a list, dict, set or deque, or the values of a dict."""
    kind = type(container)  # isinstance() would ask the object
    if issubclass(kind, dict):
        return list(itertools.islice(reversed(dict.values(container)), _MOST_SAMPLES))
    if issubclass(kind, list):
        return list(itertools.islice(list.__reversed__(container), _MOST_SAMPLES))
    if issubclass(kind, deque):
        return list(itertools.islice(deque.__reversed__(container), _MOST_SAMPLES))
    if issubclass(kind, set):
        return list(itertools.islice(set.__iter__(container), _MOST_SAMPLES))
    return []


def contents(samples: Sequence[Any], torch: Any) -> Contents:
    """`torch`: the module; or None, where it is not imported."""
    hook = _hook(samples)
    weighed = [_weigh(sample, torch) for sample in samples]
    shared = Counter(itertools.chain.from_iterable(sizes for sizes, _ in weighed))
    own = [sum(size for key, size in sizes.items() if shared[key] == 1) for sizes, _ in weighed]
    each = sum(own) / max(1, len(own))
    kinds = Counter(kind for _, seen in weighed for kind in seen)
    enough = len(samples) / 2
    gpu = bool(samples) and kinds[_ON_GPU] >= enough
    scalar = all(_is_scalar(sample, torch) for sample in samples)
    if hook is not None:
        return Contents("hooks", each, place=hook, on_gpu=gpu)
    of_data: tuple[Holds, ...] = ("graphs", "tensors", "arrays")
    for holds in of_data:
        if kinds[holds] >= enough:
            return Contents(holds, each, scalar, on_gpu=gpu)
    return Contents("objects", each, on_gpu=gpu)


def _hook(samples: Sequence[Any]) -> tuple[str, int] | None:
    """Where all of them are written, if they are functions of the program's."""
    codes = {sample.__code__ for sample in samples if type(sample) is types.FunctionType}
    if len(codes) != 1 or not all(type(sample) is types.FunctionType for sample in samples):
        return None
    code = codes.pop()
    return (code.co_filename, code.co_firstlineno) if is_programs(code.co_filename) else None


def _is_scalar(thing: Any, torch: Any) -> bool:
    return _is_tensor(thing, torch) and thing.numel() == 1


def _is_tensor(thing: Any, torch: Any) -> bool:
    """One of torch's own: those of a class that derives from it run the program's code."""
    return torch is not None and type(thing) in (torch.Tensor, torch.nn.Parameter)


def _weigh(thing: Any, torch: Any) -> tuple[dict[int, int], set[str]]:
    """Bytes by address of what is reached from it, and which kinds are among that."""
    sizes: dict[int, int] = {}
    kinds: set[str] = set()
    alive = [thing]  # grows
    for at in alive:
        if issubclass(type(at), _SKIPPED) or id(at) in sizes or len(sizes) > _MOST_OBJECTS:
            continue
        if _is_tensor(at, torch):
            sizes[id(at)] = 300  # the object itself, in Python and in C++
            kinds.add("tensors")
            _weigh_tensor(at, sizes, kinds)
        elif _is_array(at):
            base = at
            while _is_array(base.base):
                base = base.base
            sizes[id(at)] = 112
            sizes[id(base) if base is not at else -id(at)] = int(base.nbytes)
            kinds.add("arrays")
        elif type(at) in _PLAIN:
            sizes[id(at)] = sys.getsizeof(at)
            if sizes[id(at)] <= _LARGE:
                alive += gc.get_referents(at)
        elif type(at) is types.FunctionType:
            sizes[id(at)] = 160
            alive += [cell.cell_contents for cell in at.__closure__ or () if _is_full(cell)]
            alive += [*(at.__defaults__ or ()), *(at.__kwdefaults__ or {}).values()]
        else:
            kind = type(at)
            sizes[id(at)] = kind.__basicsize__ + 16
            alive += [value for value in gc.get_referents(at) if value is not kind]
    return sizes, kinds


def _weigh_tensor(tensor: Any, sizes: dict[int, int], kinds: set[str]) -> None:
    if on_gpu(tensor):
        kinds.add(_ON_GPU)
    if _is_weighed(tensor) and tensor.layout.__str__() == "torch.strided":
        storage = tensor.untyped_storage()
        sizes[-storage.data_ptr()] = int(storage.nbytes())
    if tensor.grad_fn is None:
        return
    kinds.add("graphs")
    nodes, alive = {tensor.grad_fn}, [tensor.grad_fn]
    for node in alive:
        for inner, _ in node.next_functions:
            if inner is not None and inner not in nodes and len(nodes) < _MOST_NODES:
                nodes.add(inner)
                alive.append(inner)
    sizes[-id(tensor)] = _NODE_BYTES * len(nodes)


def _is_array(thing: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(thing) is getattr(numpy, "ndarray", None)


def _is_full(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def on_gpu(tensor: Any) -> bool:
    return tensor.device.type in _GPUS


def _is_weighed(tensor: Any) -> bool:
    return tensor.device.type == "cpu" or on_gpu(tensor)


def large_bytes(thing: Any, torch: Any) -> int:
    """Of an array, or of a tensor in the host's memory or a GPU's; 0 of anything else."""
    if _is_array(thing):
        return int(thing.nbytes)
    if _is_tensor(thing, torch) and _is_weighed(thing):
        return int(thing.nbytes)
    return 0
