"""nn.Module.train: a module's switch to eval mode and back, which is how validation is known."""

from __future__ import annotations

import threading
from typing import Any

from trainperf.hooks.base import PatchHook
from trainperf.hooks.context import Context
from trainperf.hooks.patch import AnyFunction


class EvalModeHook(PatchHook):
    name = "eval_mode"
    needs = "torch"

    def install(self, context: Context) -> None:
        import torch

        self.patch(torch.nn.Module, "train", lambda original: self._wrap(original, context))

    def _wrap(self, original: AnyFunction, context: Context) -> AnyFunction:
        import torch

        begin, end, bracket = context.native.begin, context.native.end, context.native.EVAL
        grad_disabled, is_grad_enabled = context.native.GRAD_DISABLED, torch.is_grad_enabled
        id_of, name, switch = context.objects.id_of, self.name, self.switch
        is_compiling, this_thread = torch.compiler.is_compiling, threading.get_ident
        # Threads inside a call: the original calls train() of each child, hundreds in a Trainer's step, and only the
        # root's switch counts. Asked for first, and only where there are any: a compiler cannot look for its thread.
        busy: set[int] = set()
        validates, validated = context.apart.validates, context.apart.validated

        def train(self: Any, mode: bool = True) -> Any:
            if (busy and this_thread() in busy) or is_compiling() or not switch.on:
                return original(self, mode)
            thread = this_thread()
            was = getattr(self, "training", None)
            busy.add(thread)
            try:
                result = original(self, mode)
            finally:
                busy.discard(thread)
            try:
                now = self.training
                if was and not now:
                    number = id_of(self, "module", lambda: {"class": type(self).__qualname__})
                    validates(self)
                    begin(bracket, number, -1, 0 if is_grad_enabled() else grad_disabled)
                elif now and not was:
                    end(bracket)
                    validated(self)
            except Exception as error:
                switch.off()
                context.fail(name, error)
            return result

        return train
