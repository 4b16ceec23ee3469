"""Checkpoints: by which call the user's code saves; what its functions do around that call, to save (they write, flush
and move the file); and what they do within saves that is no writing."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from trainperf.findings.frames import (
    below_users,
    function_of,
    in_module,
    is_framework,
    is_other_library,
    is_own_file,
    is_stdlib_file,
    is_users,
    short_function,
    short_path,
    user_frame,
)
from trainperf.findings.places import NOTHING, Part
from trainperf.findings.thresholds import limit
from trainperf.findings.waits import syscall_name, waiting_kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainperf.findings.facts import Facts
    from trainperf.findings.frames import FrameLike, Function
    from trainperf.runfile import Detail, Frame

TORCH_SAVE = "torch.save"
# What writes a file by native code; pickle itself has no frames.
_SAVER = re.compile(
    r"[/\\](numpy[/\\]lib[/\\]_?npyio(_impl)?|joblib[/\\]numpy_pickle|safetensors[/\\]\w+|zipfile([/\\]__init__)?)\.py$"
)
_OF_RANKS = re.compile(r"[/\\]torch[/\\]distributed[/\\]checkpoint[/\\]\w+\.py$")
_SERIALIZER = re.compile(r"[/\\]torch[/\\](serialization|distributed[/\\]checkpoint[/\\]\w+)\.py$")
_SAVE = re.compile(r"(^|\.)(save\w*|dump|write|writestr)$")
_TRAINING = ("fetch", "backward", "optimizer", "validation")


def saves(frames: Sequence[FrameLike]) -> bool:
    """Below the innermost frame of the user's, a library writes what it was given to a file: not torch.save, which has
    a bracket."""
    for f in frames:
        if is_users(f, frames):
            return False
        if _SAVER.search(f.file) and _SAVE.search(f.function):
            return True
    return False


def saver(frames: Sequence[FrameLike]) -> str:
    """What the user's code calls to save: "numpy.save", "Accelerator.save_state"; "torch.save" where that is called by
    something of another name, or nothing is known."""
    called = [f for f in below_users(frames) if not is_own_file(f.file)]
    if not called or not _SAVE.search(called[-1].function):
        return TORCH_SAVE
    file, name = called[-1].file, short_function(called[-1].function)
    if name != "save":
        return name
    if _OF_RANKS.search(file):
        return "torch.distributed.checkpoint.save"
    package = short_path(file).replace("\\", "/").partition("/")[0]
    return f"{package}.save" if is_other_library(file) else TORCH_SAVE


def saves_by_trainer(frames: Sequence[FrameLike]) -> bool:
    """Trainer.save_checkpoint(), of Lightning."""
    return any(f.function.rpartition(".")[2] == "save_checkpoint" and is_framework(f.file) for f in frames)


def writes_nothing(frames: Sequence[FrameLike]) -> bool:
    """Of a save: the user's code does something, and nothing below it writes what it was given."""
    inner = below_users(frames)
    if len(inner) == len(frames):
        return False
    return not any(is_framework(f.file) or _SERIALIZER.search(f.file) or _SAVER.search(f.file) for f in inner)


def beside_saves(facts: Facts) -> Part:
    """Outside of torch.save, as samples tell: in a function that calls it and nothing of the training, waits for files
    on any line; else what its own lines from torch.save on do, alone or by the standard library."""
    lines = _lines_of_saves(facts)
    cells = [("other", state) for state in ("python", "native", "blocked")] if lines else []
    found = facts.part_of(cells, lambda d: _is_saving(facts, d, lines))
    return found if found.samples >= limit("min_samples") else NOTHING


def _lines_of_saves(facts: Facts) -> dict[Function, int]:
    """Of each such function, the first line on which it was seen in torch.save."""
    lines: dict[Function, int] = {}
    for d in facts.samples(phases=["checkpoint"]):
        at = user_frame(facts.run.stack(d.stack))
        if at is not None and at.function != "<module>":
            function = function_of(at)
            lines[function] = min(at.line, lines.get(function, at.line))
    for d in facts.samples() if lines else ():
        stack = facts.run.stack(d.stack)
        if d.phase in _TRAINING or in_module(stack):
            for f in stack:
                if is_users(f, stack):
                    lines.pop(function_of(f), None)
    return lines


def _is_saving(facts: Facts, d: Detail, lines: dict[Function, int]) -> bool:
    stack = facts.run.stack(d.stack)
    at = user_frame(stack)
    line = lines.get(function_of(at)) if at is not None else None
    if at is None or line is None:
        return False
    if d.state == "blocked":
        return waiting_kind(syscall_name(d.syscall, facts.machine)) == "file"
    return at.line >= line and all(_is_plain(f) for f in itertools.takewhile(lambda f: f is not at, stack))


def _is_plain(frame: Frame) -> bool:
    return is_stdlib_file(frame.file) or is_own_file(frame.file) or frame.file.startswith("<frozen ")
