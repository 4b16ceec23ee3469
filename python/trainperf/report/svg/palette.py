"""How causes and phases look: a colour that most colour-blind people can tell, a pattern where colours repeat, words.

The eight colours are those of Okabe and Ito (2008). A cause that shares its colour with another has a pattern, and
legends and labels name them all: nothing is told by colour alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Look:
    colour: str  # hex
    ink: str  # of text on it: contrast of at least 4.5
    pattern: str  # "", "lines", "dots", "back"
    words: str  # what it is, to a newcomer


_DARK, _LIGHT = "#111", "#fff"
_BLUE, _SKY, _GREEN, _YELLOW = "#0072b2", "#56b4e9", "#009e73", "#f0e442"
_ORANGE, _RED, _PINK, _GREY, _PALE = "#e69f00", "#e0641a", "#cc79a7", "#8f959c", "#c4c9cf"

# From the bottom of a stack to its top: what training is made of first, so that what hinders it lies on a level floor.
CAUSE_LOOKS: Final[dict[str, Look]] = {
    "gpu_wait": Look(_SKY, _DARK, "", "waiting for the GPU to finish"),
    "compute": Look(_BLUE, _LIGHT, "", "computing on the CPU"),
    "launch": Look(_GREEN, _DARK, "", "giving work to the GPU"),
    "python": Look(_YELLOW, _DARK, "", "running Python"),
    "collective": Look(_GREEN, _DARK, "lines", "waiting for other ranks"),
    "h2d_copy": Look(_SKY, _DARK, "lines", "copying to or from the GPU"),
    "cuda_alloc": Look(_GREEN, _DARK, "dots", "allocating GPU memory"),
    "module_load": Look(_YELLOW, _DARK, "dots", "loading GPU code"),
    "validation": Look(_SKY, _DARK, "dots", "validation"),
    "logging": Look(_YELLOW, _DARK, "lines", "logging"),
    "checkpoint": Look(_ORANGE, _DARK, "lines", "saving checkpoints"),
    "gc": Look(_PINK, _DARK, "lines", "collecting garbage"),
    "blocked_io": Look(_ORANGE, _DARK, "", "blocked: a file, a lock, a sleep"),
    "descheduled": Look(_GREY, _DARK, "", "ready, but others had the CPU"),
    "throttled": Look(_GREY, _DARK, "lines", "stopped by the container's CPU quota"),
    "data_wait": Look(_RED, _DARK, "", "waiting for data"),
    "gil_wait": Look(_PINK, _DARK, "", "waiting for the GIL"),
    "stop_the_world": Look(_PINK, _DARK, "back", "stopped, as all threads were"),
    "object_lock": Look(_PINK, _DARK, "dots", "waiting for the lock of an object"),
    "unknown": Look(_PALE, _DARK, "back", "not measured"),
}
# Of two that too few samples tell apart (findings/split.py); the second one's colour.
_BOTH: Final[dict[str, Look]] = {
    "python+compute": Look(_BLUE, _LIGHT, "", "on the CPU: too few samples tell which"),
    "python+launch": Look(_GREEN, _DARK, "", "on the CPU: too few samples tell which"),
    "python+launch+compute": Look(_BLUE, _LIGHT, "", "on the CPU: too few samples tell which"),  # of two runs
}
OTHERS: Final = Look(_PALE, _DARK, "dots", "all that is too small to show")

PHASE_LOOKS: Final[dict[str, Look]] = {
    "fetch": Look(_RED, _DARK, "", "asking for the batch"),
    "transfer": Look(_SKY, _DARK, "lines", "moving it to the device"),
    "forward": Look(_SKY, _DARK, "", "forward"),
    "backward": Look(_BLUE, _LIGHT, "", "backward"),
    "optimizer": Look(_GREEN, _DARK, "", "optimizer"),
    "checkpoint": Look(_ORANGE, _DARK, "lines", "saving a checkpoint"),
    "validation": Look(_SKY, _DARK, "dots", "validation"),
    "logging": Look(_YELLOW, _DARK, "lines", "logging"),
    "other": Look(_PALE, _DARK, "", "the loop's own code between the others"),
}
# What a device did, in the step's own timeline.
DEVICE_LOOKS: Final[dict[str, Look]] = {
    "kernel": Look(_BLUE, _LIGHT, "", "kernels"),
    "copy": Look(_SKY, _DARK, "lines", "copies"),
    "memset": Look(_SKY, _DARK, "dots", "memsets"),
    "collective": Look(_GREEN, _DARK, "lines", "collectives"),
}


def look(name: str) -> Look:
    return CAUSE_LOOKS.get(name) or _BOTH.get(name, OTHERS)


def place(name: str) -> int:
    """Of a cause or of several, from the bottom of a stack."""
    return list(CAUSE_LOOKS).index(name.rpartition("+")[2])


def fill(look_: Look) -> str:
    """The value of a fill attribute."""
    return f"url(#{pattern_id(look_)})" if look_.pattern else look_.colour


def pattern_id(look_: Look) -> str:
    return f"p{look_.pattern}{look_.colour.lstrip('#')}"


_MARKS: Final = {
    "lines": '<path d="M-2 2 2 -2M0 8 8 0M6 10 10 6" stroke="{ink}" stroke-width="1.1" opacity=".55"/>',
    "back": '<path d="M-2 6 2 10M0 0 8 8M6 -2 10 2" stroke="{ink}" stroke-width="1.1" opacity=".3"/>',
    "dots": '<path d="M1 2h2M5 6h2" stroke="{ink}" stroke-width="2" opacity=".6"/>',
}


def definitions() -> str:
    """One SVG without a size, with every pattern: charts refer to it by id."""
    looks = {
        pattern_id(a): a
        for a in (*CAUSE_LOOKS.values(), *PHASE_LOOKS.values(), *DEVICE_LOOKS.values(), OTHERS)
        if a.pattern
    }
    patterns = "".join(
        f'<pattern id="{id}" width="8" height="8" patternUnits="userSpaceOnUse"><rect width="8" height="8" '
        f'fill="{a.colour}"/>{_MARKS[a.pattern].format(ink=a.ink)}</pattern>'
        for id, a in looks.items()
    )
    return f'<svg class="defs" aria-hidden="true" focusable="false" width="0" height="0"><defs>{patterns}</defs></svg>'


def swatch(look_: Look) -> str:
    """A legend's patch."""
    return f'<svg class="sw" aria-hidden="true"><rect fill="{fill(look_)}"/></svg>'
