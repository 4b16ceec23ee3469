"""What can be changed from outside: the settings, how they are written, and what each does to the numbers.

    change = Change.parse("num_workers=2,persistent_workers=True")
    change = Change.parse("OMP_NUM_THREADS=1")

Names in capitals are environment variables. How a setting is applied, and how a trial proves that it was, is in
inject.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

# What a setting may do to the numbers of a training: none of them; the last bits, as sums are taken in another order;
# more than that, as numbers are kept with fewer bits.
Numbers = Literal["same", "rounding", "precision"]


@dataclass(frozen=True, slots=True)
class Setting:
    parse: Callable[[str], Any]
    says: str  # how a value is written
    of_loader: bool = False
    numbers: Numbers = "same"
    before_start: bool = False  # must be there before the interpreter starts


def _whole(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError
    return value


def _above_zero(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def _bool(text: str) -> bool:
    return {"true": True, "1": True, "false": False, "0": False}[text.lower()]


def _seconds(text: str) -> float:
    value = float(text)
    if not 1e-5 <= value <= 1:
        raise ValueError
    return value


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError
        return text

    return parse


_OTHER_ORDER: Final = "the shuffle draws other random orders from the second epoch on; each sample still comes once"

SETTINGS: Mapping[str, Setting] = {
    "num_workers": Setting(_whole, "a number", of_loader=True),
    "prefetch_factor": Setting(_above_zero, "a number", of_loader=True),
    "persistent_workers": Setting(_bool, "True or False", of_loader=True),
    "pin_memory": Setting(_bool, "True or False", of_loader=True),
    "multiprocessing_context": Setting(
        _one_of("fork", "spawn", "forkserver"), "fork, spawn or forkserver", of_loader=True
    ),
    "threads": Setting(_above_zero, "a number, for torch.set_num_threads()", numbers="rounding"),
    "gc": Setting(_one_of("freeze", "off"), "freeze or off"),
    "gc_threshold": Setting(_above_zero, "a number, for gc.set_threshold()"),
    "switch_interval": Setting(_seconds, "seconds, for sys.setswitchinterval()"),
    "matmul_precision": Setting(_one_of("high", "medium"), "high or medium", numbers="precision"),
    "autocast": Setting(_one_of("bfloat16", "float16"), "bfloat16 or float16", numbers="precision"),
    "compile": Setting(
        _one_of("default", "reduce-overhead", "max-autotune"),
        "default, reduce-overhead or max-autotune",
        numbers="rounding",
    ),
    "foreach": Setting(_bool, "True or False", numbers="rounding"),
    "fused": Setting(_bool, "True or False", numbers="rounding"),
    "zero_grad": Setting(_one_of("set_to_none"), "set_to_none"),
    "non_blocking": Setting(_bool, "True or False"),
    "anomaly": Setting(_one_of("off"), "off"),
    "flush_denormal": Setting(_one_of("on"), "on", numbers="rounding"),
    "cudnn_benchmark": Setting(_bool, "True or False", numbers="rounding"),
    "sharing_strategy": Setting(_one_of("file_system", "file_descriptor"), "file_system or file_descriptor"),
    "forkserver_preload": Setting(str, "modules, separated by +"),
}
_ENVIRONMENT = Setting(str, "any text", before_start=True, numbers="rounding")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class Change:
    """Settings that are tried together, and why; or a patch of the script, or another command in its place."""

    settings: tuple[tuple[str, Any], ...] = ()
    finding: str = ""  # id of the one that advises it
    promised: float | None = None  # the ratio of rates that the finding promises at most
    against: tuple[str, ...] = ()  # the words of another command
    patch: str = ""  # a diff, as git apply takes it, that is applied in the sandbox

    def __str__(self) -> str:
        if self.against or self.patch:
            return " ".join(self.against) or os.path.basename(self.patch)
        return ", ".join(f"{name}={value}" for name, value in self.settings)

    @classmethod
    def parse(cls, text: str) -> Change:
        """Raises ValueError, whose text names what is allowed."""
        settings = {}
        for part in text.split(","):
            name, equals, value = part.strip().partition("=")
            if not equals or (name not in SETTINGS and not _VARIABLE.fullmatch(name)):
                raise ValueError(
                    f"{part.strip()!r} is no change: write NAME=VALUE, with one of {', '.join(SETTINGS)}, "
                    "or an environment variable"
                )
            try:
                settings[name] = setting(name).parse(value)
            except (ValueError, KeyError):
                raise ValueError(f"{part.strip()!r}: {name} wants {setting(name).says}") from None
        return cls(tuple(settings.items()))

    @property
    def numbers(self) -> Numbers:
        """The most that one of its settings may do."""
        kinds = {setting(name).numbers for name, _ in self.settings}
        return "precision" if "precision" in kinds else "rounding" if "rounding" in kinds else "same"

    @property
    def of_loader(self) -> dict[str, Any]:
        return {name: value for name, value in self.settings if setting(name).of_loader}

    @property
    def environment(self) -> dict[str, str]:
        return {name: str(value) for name, value in self.settings if setting(name).before_start}

    def notes(self, *, shuffles: bool) -> tuple[str, ...]:
        """What a person who takes it should know. `shuffles`: the loader's sampler draws a random order."""
        return (_OTHER_ORDER,) if shuffles and dict(self.settings).get("persistent_workers") else ()

    def on(self, base: Change) -> Change:
        """This one, on top of what was accepted before."""
        return replace(self, settings=tuple((dict(base.settings) | dict(self.settings)).items()))


def setting(name: str) -> Setting:
    return SETTINGS.get(name, _ENVIRONMENT)
