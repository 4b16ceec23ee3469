"""What a watch changes in the process, and whether it has all been put back."""

from __future__ import annotations

import gc
import importlib.util
import logging
import sys
from pathlib import Path
from typing import Any

# The package's folder, wherever it is installed: the clone's may be called trainperf too.
OURS = f"{Path(str(importlib.util.find_spec('trainperf').origin)).parent}/"  # type: ignore[union-attr]

PATCHED = (
    ("torch.utils.data.dataloader", "_BaseDataLoaderIter", "__next__"),
    ("torch.utils.data.dataloader", "DataLoader", "__iter__"),
    ("torch.autograd", "", "backward"),
    ("torch.autograd", "", "_engine_run_backward"),
    ("torch", "", "save"),
    ("torch.serialization", "", "save"),
    ("torch.nn", "Module", "train"),
    ("logging", "Logger", "_log"),
    ("logging", "Logger", "handle"),
    ("torch.autograd.profiler", "", "_prepare_profiler"),
    ("torch.autograd.profiler", "", "_enable_profiler"),
    ("torch.autograd.profiler", "", "_disable_profiler"),
)


def patchable() -> dict[str, Any]:
    """Everything that a watch changes in the process, as it is now."""
    found: dict[str, Any] = {}
    for module_name, class_name, attribute in PATCHED:
        module = sys.modules.get(module_name)
        if module is not None:
            owner = vars(module)[class_name] if class_name else module
            found[f"{module_name}.{class_name}.{attribute}"] = vars(owner)[attribute]
    found["gc.callbacks"] = list(gc.callbacks)
    found["sys.meta_path"] = list(sys.meta_path)
    found["handlers"] = list(logging.getLogger("trainperf").handlers)
    optimizer = sys.modules.get("torch.optim.optimizer")
    if optimizer is not None:
        found["pre hooks"] = list(optimizer._global_optimizer_pre_hooks.values())
        found["post hooks"] = list(optimizer._global_optimizer_post_hooks.values())
    callback = sys.modules.get("torch._dynamo.callback")
    if callback is not None:
        found["start callbacks"] = list(callback.callback_handler.start_callbacks)
        found["end callbacks"] = list(callback.callback_handler.end_callbacks)
    return found


def assert_unpatched(before: dict[str, Any], after: dict[str, Any]) -> None:
    for what, value in before.items():
        if what == "sys.meta_path":  # libraries that are imported meanwhile (setuptools) add to it
            assert [finder for finder in after[what] if finder in value] == value, what
        elif isinstance(value, list):
            assert len(after[what]) == len(value), what
            assert all(x is y for x, y in zip(after[what], value, strict=True)), what
        else:
            assert after[what] is value, what
