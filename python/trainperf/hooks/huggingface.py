"""Hugging Face's Trainer and Accelerate: evaluation, checkpoints, logging, moves to the device. When they are imported.

Fetches, backward and optimizer are torch's, which have their own hooks. A name that a version does not have is left
out: what torch's own hooks see of it (torch.save, the switch to eval mode) remains.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, ClassVar

from trainperf.hooks.base import PatchHook
from trainperf.hooks.context import Context
from trainperf.hooks.patch import AnyFunction
from trainperf.watching.phases import PHASES

Make = Callable[[AnyFunction], AnyFunction]

_VALIDATION, _TRANSFER = PHASES.index("validation"), PHASES.index("transfer")


class _LibraryHook(PatchHook):
    """Some functions of one module, or of a class in it."""

    name: ClassVar[str] = ""
    needs: ClassVar[str] = ""
    owner: ClassVar[str] = ""  # a class in that module; "": the module itself

    def install(self, context: Context) -> None:
        module = importlib.import_module(self.needs)
        owner = getattr(module, self.owner) if self.owner else module
        for function, make in self.wrappers(context).items():
            if callable(getattr(owner, function, None)):
                self.patch(owner, function, make)

    def wrappers(self, context: Context) -> dict[str, Make]:
        raise NotImplementedError

    def _saving(self, context: Context, target: Callable[..., Any] | None = None) -> Make:
        return lambda original: context.saves.around(original, self.switch, target)

    def _patch_safetensors(self, module_name: str, context: Context) -> None:
        """A module's own name for safetensors' `save_file`, which knows the bytes."""
        module: Any = importlib.import_module(module_name)
        found = vars(module).get("safe_save_file")
        if callable(found):
            module.safe_save_file = context.saves.unwrapped(found)
            self.patch(module, "safe_save_file", self._saving(context, _file_of_save_file))

    def _phase(self, context: Context, phase: int) -> Make:
        begin, end = context.native.begin_phase, context.native.end_phase
        return lambda original: context.apart.bracketed(original, self.switch, begin, end, phase)


class TransformersHook(_LibraryHook):
    name = "transformers"
    needs = "transformers.trainer"
    owner = "Trainer"

    def wrappers(self, context: Context) -> dict[str, Make]:
        validation, saving = self._phase(context, _VALIDATION), self._saving(context)
        return {
            "evaluate": validation,
            "predict": validation,
            "_save_checkpoint": saving,
            "save_model": saving,
            "log": lambda original: self._logging(original, context),
        }

    def _logging(self, original: AnyFunction, context: Context) -> AnyFunction:
        switch = self.switch
        written = context.apart.logged(original, switch, context.native)

        def log(self: Any, logs: Any, *args: Any, **kwargs: Any) -> Any:
            if switch.on and context.add_figures is not None:
                context.add_figures(self, logs)
            return written(self, logs, *args, **kwargs)

        return log


class PretrainedModelHook(_LibraryHook):
    name = "save_pretrained"
    needs = "transformers.modeling_utils"
    owner = "PreTrainedModel"

    def install(self, context: Context) -> None:
        super().install(context)
        self._patch_safetensors(self.needs, context)

    def wrappers(self, context: Context) -> dict[str, Make]:
        return {"save_pretrained": self._saving(context)}


class SafetensorsHook(_LibraryHook):
    name = "safetensors"
    needs = "safetensors.torch"

    def wrappers(self, context: Context) -> dict[str, Make]:
        return {"save_file": self._saving(context, _file_of_save_file)}


def _file_of_save_file(tensors: object, filename: object = None, *args: object, **kwargs: object) -> object:
    return filename


class AcceleratorHook(_LibraryHook):
    name = "accelerator"
    needs = "accelerate.accelerator"
    owner = "Accelerator"

    def install(self, context: Context) -> None:
        super().install(context)
        self._patch_safetensors("accelerate.utils.other", context)

    def wrappers(self, context: Context) -> dict[str, Make]:
        saving = self._saving(context)
        return {"save_state": saving, "save_model": saving, "save": saving}


class AccelerateLoaderHook(_LibraryHook):
    """Its loaders move each batch to the device themselves."""

    name = "accelerate_loader"
    needs = "accelerate.data_loader"

    def wrappers(self, context: Context) -> dict[str, Make]:
        return {"send_to_device": lambda original: self._moving(original, context)}

    def _moving(self, original: AnyFunction, context: Context) -> AnyFunction:
        begin, end, switch = context.native.begin_phase, context.native.end_phase, self.switch

        def send_to_device(tensor: Any, device: Any, *args: Any, **kwargs: Any) -> Any:
            if not switch.on or getattr(device, "type", device) == "cpu":  # from the host to the host: nothing moves
                return original(tensor, device, *args, **kwargs)
            begin(_TRANSFER)
            try:
                return original(tensor, device, *args, **kwargs)
            finally:
                end(_TRANSFER)

        return send_to_device
