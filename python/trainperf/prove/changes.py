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
    by_hand: Callable[[Any], str] | None = None  # what a person does; None: a loader's argument, or a variable
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


COLLECTS_EACH: Final = 500  # backwards, with gc=off: as TP303 advises
# What a loader without workers refuses anything else for.
WITHOUT_WORKERS: Mapping[str, Any] = {
    "prefetch_factor": None, "persistent_workers": False, "multiprocessing_context": None, "timeout": 0,
}  # fmt: skip
_OTHER_ORDER: Final = "the shuffle draws other random orders from the second epoch on; each sample still comes once"

SETTINGS: Mapping[str, Setting] = {
    "num_workers": Setting(_whole, "a number", of_loader=True),
    "prefetch_factor": Setting(_above_zero, "a number", of_loader=True),
    "persistent_workers": Setting(_bool, "True or False", of_loader=True),
    "pin_memory": Setting(_bool, "True or False", of_loader=True),
    "multiprocessing_context": Setting(
        _one_of("fork", "spawn", "forkserver"), "fork, spawn or forkserver", of_loader=True
    ),
    "threads": Setting(
        _above_zero,
        "a number, for torch.set_num_threads()",
        lambda count: f"call torch.set_num_threads({count})",
        numbers="rounding",
    ),
    "gc": Setting(
        _one_of("freeze", "off"),
        "freeze or off",
        lambda how: (
            "call gc.collect() and gc.freeze() before the loop"
            if how == "freeze"
            else "call gc.collect(), gc.freeze() and gc.disable() before the loop, "
            f"and gc.collect() every {COLLECTS_EACH} steps"
        ),
    ),
    "gc_threshold": Setting(_above_zero, "a number, for gc.set_threshold()", lambda n: f"call gc.set_threshold({n})"),
    "switch_interval": Setting(
        _seconds, "seconds, for sys.setswitchinterval()", lambda seconds: f"call sys.setswitchinterval({seconds})"
    ),
    "matmul_precision": Setting(
        _one_of("high", "medium"),
        "high or medium",
        lambda precision: f'call torch.set_float32_matmul_precision("{precision}")',
        numbers="precision",
    ),
    "autocast": Setting(
        _one_of("bfloat16", "float16"),
        "bfloat16 or float16",
        lambda dtype: f"run the forward pass in torch.autocast(device_type, torch.{dtype})",
        numbers="precision",
    ),
    "compile": Setting(
        _one_of("default", "reduce-overhead", "max-autotune"),
        "default, reduce-overhead or max-autotune",
        lambda mode: "call model.compile()" if mode == "default" else f'call model.compile(mode="{mode}")',
        numbers="rounding",
    ),
    "foreach": Setting(_bool, "True or False", lambda on: f"make the optimizer with foreach={on}", numbers="rounding"),
    "fused": Setting(_bool, "True or False", lambda on: f"make the optimizer with fused={on}", numbers="rounding"),
    "zero_grad": Setting(_one_of("set_to_none"), "set_to_none", lambda _: "call optimizer.zero_grad(set_to_none=True)"),
    "non_blocking": Setting(_bool, "True or False", lambda on: f"copy by .to(device, non_blocking={on})"),
    "anomaly": Setting(_one_of("off"), "off", lambda _: "remove set_detect_anomaly() and detect_anomaly()"),
    "deterministic": Setting(
        _one_of("off"), "off", lambda _: "remove torch.use_deterministic_algorithms()", numbers="rounding"
    ),
    "tracemalloc": Setting(_one_of("off"), "off", lambda _: "remove tracemalloc.start()"),
    "gc_debug": Setting(_one_of("off"), "off", lambda _: "remove gc.set_debug()"),
    "flush_denormal": Setting(_one_of("on"), "on", lambda _: "call torch.set_flush_denormal(True)", numbers="rounding"),
    "cudnn_benchmark": Setting(
        _bool, "True or False", lambda on: f"set torch.backends.cudnn.benchmark = {on}", numbers="rounding"
    ),
    "sharing_strategy": Setting(
        _one_of("file_system", "file_descriptor"),
        "file_system or file_descriptor",
        lambda name: f'call torch.multiprocessing.set_sharing_strategy("{name}")',
    ),
    "forkserver_preload": Setting(
        str,
        "modules, separated by +",
        lambda modules: f"call multiprocessing.set_forkserver_preload({modules.split('+')})",
    ),
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

    @property
    def by_hand(self) -> str:
        """What a person does for those settings that are no loader's arguments; "" where all are."""
        done = [how(value) for name, value in self.settings if (how := setting(name).by_hand) is not None]
        variables = " ".join(f"{name}={value}" for name, value in self.environment.items())
        return "; ".join([*done, *([f"start the script with {variables}"] if variables else [])])

    def notes(self, loader: Mapping[str, Any] | None) -> tuple[str, ...]:
        """What a person who takes it should know. `loader`: the one that trains, as it is made now."""
        if loader is None or not loader.get("shuffles"):
            return ()
        now = bool(loader["options"].get("persistent_workers"))
        then = bool((implied_by(self.of_loader) | self.of_loader).get("persistent_workers", now))
        return (_OTHER_ORDER,) if then != now else ()

    def on(self, base: Change) -> Change:
        """This one, on top of what was accepted before."""
        return replace(self, settings=tuple((dict(base.settings) | dict(self.settings)).items()))


def implied_by(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Further arguments of a loader that these make necessary."""
    if arguments.get("num_workers") != 0:
        return {}
    return {name: value for name, value in WITHOUT_WORKERS.items() if name not in arguments}


def setting(name: str) -> Setting:
    return SETTINGS.get(name, _ENVIRONMENT)
