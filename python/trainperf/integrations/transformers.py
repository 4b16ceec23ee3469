"""TrainPerfCallback, the one line that a user of Hugging Face's Trainer adds.

    from trainperf.integrations.transformers import TrainPerfCallback

    trainer = Trainer(..., callbacks=[TrainPerfCallback()])
    trainer.train()                                     # at its end: why it was slow

The class is made when it is first asked for, from transformers' TrainerCallback.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainperf.integrations.transformers_callback import TrainPerfHooks as TrainPerfCallback

__all__ = ["TrainPerfCallback"]


def __getattr__(name: str) -> Any:
    if name != "TrainPerfCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        base = importlib.import_module("transformers.trainer_callback").TrainerCallback
    except ModuleNotFoundError as error:
        raise ImportError(
            f"TrainPerfCallback is a callback for Hugging Face transformers ({error}): pip install transformers"
        ) from error
    from trainperf.integrations.transformers_callback import TrainPerfHooks

    made = type(
        "TrainPerfCallback",
        (TrainPerfHooks, base),
        {"__module__": __name__, "__qualname__": "TrainPerfCallback", "__doc__": TrainPerfHooks.__doc__},
    )
    globals()["TrainPerfCallback"] = made  # pickle finds it by its name, and always the same
    return made
