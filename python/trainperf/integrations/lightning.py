"""TrainPerf, the one line that a user of PyTorch Lightning adds.

    from trainperf.integrations.lightning import TrainPerf

    trainer = Trainer(callbacks=[TrainPerf()])          # of lightning.pytorch or pytorch_lightning
    trainer.fit(model)                                  # at its end: why it was slow

The class is made when it is first asked for, from the Callback of the Lightning package that the program has imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainperf.integrations.lightning_callback import TrainPerfHooks as TrainPerf

__all__ = ["TrainPerf"]

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def _bases() -> tuple[type, ...]:
    loaded = [name for name in _PACKAGES if hasattr(sys.modules.get(name), "Callback")]
    if not loaded:
        loaded = [name for name in _PACKAGES if importlib.util.find_spec(name.partition(".")[0]) is not None][:1]
    if not loaded:
        raise ImportError(
            "TrainPerf is a callback for PyTorch Lightning, and there is none here: pip install lightning"
        )
    return tuple(importlib.import_module(name).Callback for name in loaded)


def __getattr__(name: str) -> Any:
    if name != "TrainPerf":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from trainperf.integrations.lightning_callback import TrainPerfHooks

    made = type(
        "TrainPerf",
        (TrainPerfHooks, *_bases()),
        {"__module__": __name__, "__qualname__": "TrainPerf", "__doc__": TrainPerfHooks.__doc__},
    )
    globals()["TrainPerf"] = made  # pickle finds it by its name, and always the same
    return made
