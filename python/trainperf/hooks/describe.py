"""What a DataLoader or an optimizer is, for people: read without calling the user's code, but for the length of the
data set."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Mapping
from typing import Any

# A wrapper's own code says nothing about where the data comes from; Subset(MyImages) is read in MyImages.
_MAX_WRAPPERS = 8
_MAX_LEAVES, _MAX_DEPTH = 10_000, 4  # of a batch
# Other frameworks' placeholders and torch's own transports are not the user's code.
_NOT_THE_USERS = ("torch.", "builtins.")


def describe_loader(loader: Any) -> dict[str, Any]:
    return _describe(
        dataset=getattr(loader, "dataset", None),
        sampler=getattr(loader, "sampler", None),
        batch_sampler=getattr(loader, "batch_sampler", None),
        collate=getattr(loader, "collate_fn", None),
        context=getattr(loader, "multiprocessing_context", None),
        options={
            "num_workers": getattr(loader, "num_workers", None),
            "batch_size": getattr(loader, "batch_size", None),
            "drop_last": getattr(loader, "drop_last", None),
            "pin_memory": getattr(loader, "pin_memory", None),
            "persistent_workers": getattr(loader, "persistent_workers", None),
            "prefetch_factor": getattr(loader, "prefetch_factor", None),
            "in_order": getattr(loader, "in_order", None),
        },
    )


def describe_other_loader(loader: Any) -> dict[str, Any]:
    """Of what yields batches and is no DataLoader."""
    at = _where_read(loader) or _where(getattr(type(loader), "__next__", None))
    return {"dataset": type(loader).__qualname__, "dataset_at": at, "kind": "iterable", "is_dataloader": False}


def describe_iterator(iterator: Any) -> dict[str, Any]:
    """Of the loader that made this iterator before the watch began: what the iterator remembers of it."""
    sampler = getattr(iterator, "_index_sampler", None)
    return _describe(
        dataset=getattr(iterator, "_dataset", None),
        sampler=getattr(sampler, "sampler", sampler),
        batch_sampler=sampler,
        collate=getattr(iterator, "_collate_fn", None),
        context=getattr(iterator, "_multiprocessing_context", None),
        options={
            "num_workers": getattr(iterator, "_num_workers", None),
            "batch_size": getattr(sampler, "batch_size", None),
            "drop_last": getattr(iterator, "_drop_last", None),
            "pin_memory": getattr(iterator, "_pin_memory", None),
            "persistent_workers": getattr(iterator, "_persistent_workers", None),
            "prefetch_factor": getattr(iterator, "_prefetch_factor", None),
            "in_order": getattr(iterator, "_in_order", None),
        },
    )


def describe_optimizer(optimizer: Any) -> dict[str, Any]:
    """As it is now, at its first step: what it would run for each group of parameters, or for each parameter. Of one
    that is not torch's own the class only: what else it has is the user's code."""
    kind = type(optimizer)
    description: dict[str, Any] = {"class": kind.__qualname__, "module": str(kind.__module__)}
    if not str(kind.__module__).startswith("torch.optim."):
        return description
    groups = optimizer.param_groups
    first = next((parameter for group in groups for parameter in group["params"]), None)
    weights = [parameter for group in groups for parameter in group["params"]]
    updated = [weight.grad for weight in weights if getattr(weight, "grad", None) is not None]
    description |= {
        "groups": len(groups),
        "gradient_bytes": _bytes(weight for weight in weights if getattr(weight, "requires_grad", False)),
        "parameters": sum(len(group["params"]) for group in groups),
        "device": getattr(getattr(first, "device", None), "type", None),
        # Of those that this step updates.
        "updated": len(updated),
        "elements": sum(gradient.numel() for gradient in updated),
        # Sparse and complex ones have no fused step, and none is differentiable.
        "plain": not any(gradient.is_sparse or gradient.is_complex() for gradient in updated)
        and not any(group.get("differentiable") for group in groups),
        "momentum": any(group.get("momentum") for group in groups),
    }
    for option in ("foreach", "fused"):
        description[option] = bool(groups) and all(group.get(option) is True for group in groups)
    return description


def describe_ddp(model: Any) -> dict[str, Any]:
    """What a DistributedDataParallel exchanges, in bytes, and how."""
    option = next((name for name in ("forward_sync_buffers", "broadcast_buffers") if hasattr(model, name)), "")
    return {
        "gradient_bytes": _bytes(weight for weight in model.parameters() if weight.requires_grad),
        "buffer_bytes": _bytes(model.buffers()),
        "bucket_bytes": getattr(model, "bucket_bytes_cap", None),
        "buffers_option": option,  # torch 2.13 has a new name for it
        "broadcast_buffers": getattr(model, option, None),
        "hooks": len(getattr(model, "_comm_hooks", ())),
    }


def batch_bytes(batch: Any) -> int | None:
    """That its tensors, arrays, numbers and texts take, in mappings, sequences and attributes; None: it has something
    else, of which the size is not known, or very many parts."""
    import torch

    todo, size, parts = [(batch, 0)], 0, 0
    while todo:
        part, depth = todo.pop()
        parts += 1
        if isinstance(part, torch.Tensor):
            size += part.numel() * part.element_size()
        elif type(part).__module__ == "numpy":
            size += int(getattr(part, "nbytes", 0))
        elif isinstance(part, (str, bytes, bytearray)):
            size += len(part)
        elif isinstance(part, (bool, int, float)):
            size += 8
        elif part is not None:
            within = _parts(part) if depth < _MAX_DEPTH else None
            if within is None or parts + len(within) > _MAX_LEAVES:
                return None
            todo += [(inner, depth + 1) for inner in within]
    return size


def _parts(thing: Any) -> list[Any] | None:
    if isinstance(thing, Mapping):
        return list(thing.values())
    if isinstance(thing, (list, tuple)):
        return list(thing)
    return list(vars(thing).values()) if hasattr(thing, "__dict__") and not isinstance(thing, type) else None


def _bytes(tensors: Iterable[Any]) -> int:
    from torch.nn.parameter import is_lazy

    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if not is_lazy(tensor))


def _describe(
    *, dataset: Any, sampler: Any, batch_sampler: Any, collate: Any, context: Any, options: dict[str, Any]
) -> dict[str, Any]:
    name, innermost = _unwrap(dataset)
    start_method = getattr(context, "_name", None) or getattr(context, "get_start_method", lambda: None)()
    if start_method is None and (options.get("num_workers") or 0) > 0:
        import multiprocessing

        start_method = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    description: dict[str, Any] = {
        "dataset": name,
        "dataset_at": _where_read(innermost),
        "kind": "iterable" if _is_iterable(dataset) else "map",
        "dataset_length": _length(dataset),
        "sampler": type(sampler).__name__ if sampler is not None else None,
        "batch_sampler": type(batch_sampler).__name__ if batch_sampler is not None else None,
        "multiprocessing_context": start_method,
        **{key: value for key, value in options.items() if isinstance(value, (bool, int, str, type(None)))},
    }
    collate_name = _name(collate)
    if collate is not None and not collate_name.startswith(_NOT_THE_USERS):
        description["collate_fn"] = collate_name
        description["collate_at"] = _where(collate)
    return description


def _unwrap(dataset: Any) -> tuple[str, Any]:
    """("Subset(MyImages)", the MyImages)."""
    names = [type(dataset).__qualname__]
    for _ in range(_MAX_WRAPPERS):
        inner = vars(dataset).get("dataset") if hasattr(dataset, "__dict__") else None
        if inner is None:
            several = vars(dataset).get("datasets") if hasattr(dataset, "__dict__") else None
            inner = several[0] if isinstance(several, (list, tuple)) and several else None
        if inner is None or isinstance(inner, (str, bytes, int)):
            break
        dataset = inner
        names.append(type(dataset).__qualname__)
    return "(".join(names) + ")" * (len(names) - 1), dataset


def innermost(dataset: Any) -> Any:
    """The dataset below its wrappers."""
    return _unwrap(dataset)[1]


def _where_read(dataset: Any) -> str:
    """file:line of the method that reads: costs nothing, and is where a person would look."""
    methods = ("__iter__", "__next__") if _is_iterable(dataset) else ("__getitems__", "__getitem__", "__iter__")
    for method in methods:
        function = getattr(type(dataset), method, None)
        if not str(getattr(function, "__module__", "")).startswith(_NOT_THE_USERS) and (found := _where(function)):
            return found
    return ""


def _where(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType):
        function = vars(type(function)).get("__call__")
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if isinstance(code, types.CodeType) else ""


def _name(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', '')}"


def _is_iterable(dataset: Any) -> bool:
    return any(base.__name__ in ("IterableDataset", "IterDataPipe") for base in type(dataset).__mro__)


def _length(dataset: Any) -> int | None:
    if _is_iterable(dataset) or not hasattr(type(dataset), "__len__"):
        return None
    try:
        return len(dataset)
    except Exception:
        return None  # as good as no __len__: torch itself calls it only when a sampler needs it
