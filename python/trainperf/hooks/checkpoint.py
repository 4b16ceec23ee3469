"""torch.save, with the bytes it wrote, and the checkpoints of torch.distributed, which are many of them."""

from __future__ import annotations

import importlib
import os
from typing import Any

from trainperf.hooks.base import PatchHook
from trainperf.hooks.context import Context
from trainperf.hooks.patch import AnyFunction
from trainperf.hooks.saves import file_size


class CheckpointHook(PatchHook):
    name = "checkpoint"
    needs = "torch"

    def install(self, context: Context) -> None:
        import torch

        self.patch(torch, "save", lambda original: self._wrap(original, context))
        self.patch_alias(torch.serialization, "save")

    def _wrap(self, original: AnyFunction, context: Context) -> AnyFunction:
        saves, switch = context.saves, self.switch

        def save(*args: Any, **kwargs: Any) -> Any:
            if not switch.on:
                return original(*args, **kwargs)
            target = args[1] if len(args) > 1 else kwargs.get("f")
            start = _position(target)
            written = -1
            outermost = saves.outermost()
            try:
                if outermost:
                    saves.begin()
                result = original(*args, **kwargs)
                written = _written(target, start)
                return result
            finally:
                saves.end(outermost, written)

        return save


class DistributedCheckpointHook(PatchHook):
    """Without it a checkpoint would be as many as it has tensors."""

    name = "distributed_checkpoint"
    needs = "torch.distributed.checkpoint"

    def install(self, context: Context) -> None:
        package = importlib.import_module(self.needs)
        for function in ("save", "async_save", "save_state_dict"):
            if callable(vars(package).get(function)):
                self.patch(package, function, lambda original: context.saves.around(original, self.switch))
                self.patch_alias(package.state_dict_saver, function)


def _position(target: Any) -> int:
    """Where a file object stands; -1: not known, or not a file object."""
    try:
        return int(target.tell()) if hasattr(target, "tell") else -1
    except Exception:  # whatever a user's file object raises: a pipe, a closed or a half-made one
        return -1


def _written(target: Any, start: int) -> int:
    if isinstance(target, (str, os.PathLike)):
        return file_size(target)
    end = _position(target)
    return end - start if 0 <= start <= end else -1
