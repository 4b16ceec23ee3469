"""The loop's own functions: what of the training thread's Python and native code is theirs and not training itself, how
they save checkpoints, and what one of them does, and when."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Literal, NamedTuple

from trainperf.findings import frames
from trainperf.findings.frames import (
    Function,
    Label,
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
from trainperf.findings.framework import in_told_hook
from trainperf.findings.loaders import only_validates, with_workers_of
from trainperf.findings.model import Affected, Cell, Limits, Params
from trainperf.findings.module_calls import batch_work
from trainperf.findings.places import NOTHING, Functions, Part, total
from trainperf.findings.text import Count
from trainperf.findings.thresholds import limit
from trainperf.findings.waits import call_of, syscall_name, waiting_kind
from trainperf.runfile.schema import described

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts, Spot
    from trainperf.findings.frames import FrameLike
    from trainperf.runfile import Detail, Frame

    Keeps = Callable[[Label], bool]
    Parts = list[tuple[Cell, Detail, float]]  # where, what was seen, ns of the exact time that it stands for
    OfFunctions = dict[Function, Parts]

# -- checkpoints: by which call the user's code saves; what its functions do around that call, to save (they write,
# flush and move the file); and what they do within saves that is no writing

TORCH_SAVE = "torch.save"
# What writes a file by native code; pickle itself has no frames.
_SAVER = re.compile(
    r"[/\\](numpy[/\\]lib[/\\]_?npyio(_impl)?|joblib[/\\]numpy_pickle|safetensors[/\\]\w+|zipfile([/\\]__init__)?)\.py$"
)
_OF_RANKS = re.compile(r"[/\\]torch[/\\]distributed[/\\]checkpoint[/\\]\w+\.py$")
_SERIALIZER = re.compile(r"[/\\]torch[/\\](serialization|distributed[/\\]checkpoint[/\\]\w+)\.py$")
_SAVE = re.compile(r"(^|\.)(save\w*|dump|write|writestr)$")
_TRAINS = ("fetch", "backward", "optimizer", "validation")


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
        if d.phase in _TRAINS or in_module(stack):
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


# -- the loop's own functions

FORWARD: Cell = ("forward", "native")
_BACKWARD: Cell = ("backward", "native")
_TRANSFER = "transfer"  # where there is no device to copy to, whatever that phase does is the loop's own
_OF_EACH_STEP = ("backward", "optimizer")  # phases in which nothing only looks
_SEVERAL = 3  # samples in a step


@dataclass(frozen=True, slots=True)
class OwnCode(Functions):
    """Functions of one kind."""

    details: list[Detail]
    seen_from: Callable[[Sequence[Frame]], Sequence[Frame]] = tuple  # of a stack, the part that its function begins

    def affected(self, steps: int) -> Affected:
        """The few of so many steps that most of it was seen in, by several samples each: it is hardly in others too."""
        top = max(self.details, key=lambda d: d.ns)
        share = top.ns / total(self.details)
        if share < limit("most_share") or top.count < _SEVERAL * top.steps or not 0 < 2 * top.steps < steps:
            return Affected(steps, 1.0)
        return Affected(top.steps, share)

    def share(self, *, mechanism: str = "", phase: str = "") -> float:
        """Of their time."""
        ns = sum(ns for (p, m), ns in self.claims.items() if mechanism in ("", m) and phase in ("", p))
        return ns / self.ns if ns else 0.0


# -- where it is


def python_cells(facts: Facts) -> dict[Cell, int]:
    """Where the loop's own Python may be."""
    cells = facts.cells("python")
    moving = (_TRANSFER, "python")
    if facts.matrix[moving] and not facts.run.feeds_device:
        cells[moving] = facts.matrix[moving]
    return cells


def native_cells(facts: Facts) -> dict[Cell, Keeps]:
    """Where the loop's own native code may be, and which stacks are; nowhere where it may be waiting for a device that
    was not seen."""
    if facts.run.feeds_device and facts.gpu is None:
        return {}
    trains = facts.run.phase_ns("backward") > 0
    where: dict[Cell, Keeps] = {
        ("other", "native"): lambda label: label.outside_training if trains else label.beside_training,
        _BACKWARD: _in_backward_hook,
        ("optimizer", "native"): _in_closure,
        FORWARD: _no_models(facts),
    }
    if not facts.run.feeds_device:
        where[_TRANSFER, "native"] = lambda label: label.beside_training
    return where


def _in_backward_hook(label: Label) -> bool:
    inner = label.stack[: len(frames.in_backward_hook(label.stack))]
    return bool(inner) and Label(inner).beside_training


def _in_closure(label: Label) -> bool:
    """What a closure does beside forward and backward, or a hook of the optimizer's, but what is training itself."""
    return (frames.in_closure(label.stack) or frames.in_step_hook(label.stack)) and label.beside_training


def _no_models(facts: Facts) -> Keeps:
    """Which stacks in forward, the phase of all that comes between the data and backward, are work of the loop's own
    and none of the model's: what it asks a library for (a text, a metric, a file), a batch that it makes itself or by
    another library (NumPy, pandas, PIL), hooks, what comes after the update."""
    in_hook, batch, is_of_arrays = hooks(facts), facts.once(batch_work), facts.once(of_arrays)

    def keep(label: Label) -> bool:
        if label.asks_for or (label.is_the_loops and saves(label.stack)):
            return True
        if batch.is_one(label) or is_of_arrays(label) or in_hook(label) or batch.is_after_update(label):
            return True
        return label.is_the_loops and not label.in_model and frames.is_other_library(label.stack[0].file)

    return keep


def of_arrays(facts: Facts) -> Keeps:
    """What a function beside the model computes that was seen to ask NumPy or its like for a third of it or more, and
    nothing that PyTorch writes in Python: `a - b` of arrays has no frame of the library's."""
    by_library: Counter[Function] = Counter()
    on_its_lines: Counter[Function] = Counter()
    others = set(facts.once(functions_that_call_modules))
    for d in facts.samples(phases=["forward"]):
        label = facts.labelled(d)
        if label.in_model or any(frames.is_framework(f.file) for f in label.below):
            others.add(label.function)
        elif d.state == "native":
            of = by_library if label.below and frames.is_array_library(label.below[0].file) else on_its_lines
            of[label.function] += d.ns
    known = {f for f, ns in by_library.items() if ns >= limit("half_share") * on_its_lines[f]} - others
    beside = facts.once(_beside_the_model)
    return lambda label: label.function in known and beside(label)


def hooks(facts: Facts) -> Keeps:
    """Forward hooks. A module calls them and its forward from different lines of one function, whatever those are in
    this version of PyTorch: the lines of forward are those from which the run found it called (meta.py), or something
    of that name was seen to be."""
    lines: dict[Function, set[int]] = {}
    for file, functions in described(facts.run.meta, "forward_lines").items():
        for function, of in functions.items() if isinstance(functions, dict) else ():
            lines[file, function] = {line for line in of if isinstance(line, int)} if isinstance(of, list) else set()
    for label in map(facts.labelled, facts.samples(phases=["forward"])):
        for i, caller in enumerate(label.stack):
            called = frames.called_by(label.stack, i) if frames.calls_module(caller) else None
            if called is not None and frames.is_forward(label.stack[called]):
                lines.setdefault((caller.file, caller.function), set()).add(caller.line)

    def in_hook(label: Label) -> bool:
        found = frames.called_by_module(label.stack)
        if found is None:
            return False
        called, caller = found
        of_forward = lines.get((caller.file, caller.function), set())
        named = frames.is_users(called, label.stack) and not frames.is_forward(called)
        return named and bool(of_forward) and caller.line not in of_forward

    return in_hook


def functions_that_call_modules(facts: Facts) -> set[Function]:
    """The user's functions that were seen to call a module, directly or not."""
    loops: set[Function] = set()
    for label in map(facts.labelled, facts.samples()):
        call = next((i for i, f in enumerate(label.stack) if frames.calls_module(f)), len(label.stack))
        loops |= {frames.function_of(f) for f in label.stack[call:] if frames.is_users(f, label.stack)}
    return loops


def runs_layers(facts: Facts) -> bool:
    """Whether a layer of torch.nn was seen."""
    return any(facts.labelled(d).runs_layer for d in facts.samples())


def _beside_the_model(facts: Facts) -> Keeps:
    """Of forward, what a function does that was never seen to call a module: a metric, an average of the weights; a
    loss or a batch as well. Nothing where no layer was seen, nor of what may be a part of the model: that may be a
    function."""
    loops, model_seen = facts.once(functions_that_call_modules), facts.once(runs_layers)

    def keep(label: Label) -> bool:
        if not model_seen or label.at is None or label.in_module or not label.beside_training:
            return False
        own = label.at.function != "<module>" and label.function not in loops
        return own and not facts.once(batch_work).may_be_the_model(label)

    return keep


# -- whose it is


def own_code(facts: Facts, mostly: Literal["python", "native"]) -> OwnCode:
    """The functions of which most is Python, or of which most is native code: each is of one kind, with both. To make
    the text of a tensor is Python's work, with native code in it."""
    functions = _of_kind(facts, facts.once(_all_functions), mostly)
    if mostly == "python":
        native = facts.once(_native_operations)
        functions = {f: parts for f, parts in functions.items() if f not in native}
        functions |= facts.once(_in_small_operations)
    return _told(facts, functions)


def with_what_they_call(facts: Facts, mine: OwnCode) -> OwnCode:
    """The same by the outermost functions that the loop calls, or a framework: of a metric in several functions none
    may be notable. Not of what is a model, or may be one."""
    outermost = facts.once(_outermost)
    return replace(mine, spots=facts.spots(mine.details, seen_from=outermost), seen_from=outermost)


def called_together(facts: Facts) -> OwnCode:
    """The Python of all functions that the loop calls beside the model, as far as that is known, by the outermost. Not
    of those that are mostly native code, needed or not: a loss in tensors looks the same, or a part of the model."""
    where, beside = native_cells(facts), facts.once(_beside_the_model)
    outermost, of_model = facts.once(_outermost), facts.once(_functions_of_the_model)
    known = where.get(FORWARD)

    def is_called(cell: Cell, label: Label) -> bool:
        at = frames.user_frame(outermost(label.stack))
        if at is None or at.function.startswith("<") or any(frames.function_of(f) in of_model for f in label.stack):
            return False
        return cell[0] not in _OF_EACH_STEP and beside(label) and not _is_within_model(facts, label)

    whole = _functions(facts, where | {FORWARD: lambda label: beside(label) or (known is not None and known(label))})
    functions: OfFunctions = {}
    for function, parts in _of_kind(facts, facts.once(_all_functions), "python").items():
        python, native = _split(facts, whole[function])
        kept = [part for part in parts if is_called(part[0], facts.labelled(part[1]))]
        if kept and native <= python:
            functions[function] = kept
    return with_what_they_call(facts, _told(facts, functions))


def beside_the_model(facts: Facts) -> OwnCode:
    """The functions of the loop's, outside of any module, of which most is native code in forward; which of them are
    needed is not known."""
    functions = _of_kind(facts, _functions(facts, _of_forward(facts, facts.once(_beside_the_model))), "native")
    told = facts.once(_in_small_operations)
    return _told(facts, {function: parts for function, parts in functions.items() if function not in told})


def arrays_in_model(facts: Facts) -> OwnCode:
    """The functions of which most is native code of NumPy's and its like in what modules call, or in a loss."""

    def keep(label: Label) -> bool:
        arrays = label.is_the_loops and frames.is_array_library(label.stack[0].file)
        return label.in_model and arrays and not _in_own_operation(label)

    return _told(facts, _of_kind(facts, _functions(facts, _of_forward(facts, keep)), "native"))


def own_operations(facts: Facts) -> OwnCode:
    """The functions of which most is native code in operations with a backward of their own, in both directions."""
    return _told(facts, facts.once(_native_operations))


def _native_operations(facts: Facts) -> OfFunctions:
    where = _of_forward(facts, _in_own_operation)
    if where:
        where[_BACKWARD] = _in_own_operation
    functions = _functions(facts, where)
    mine = {f: [part for part in parts if _in_own_operation(facts.labelled(part[1]))] for f, parts in functions.items()}
    told = facts.once(_in_small_operations)
    return {f: parts for f, parts in _of_kind(facts, mine, "native").items() if parts and f not in told}


def _in_own_operation(label: Label) -> bool:
    """The forward or backward of a torch.autograd.Function of the user's, and what that computes."""
    inner = label.stack[: len(frames.in_own_operation(label.stack))]
    return bool(inner) and Label(inner).outside_training


def forward_beside_layers(facts: Facts) -> OwnCode | None:
    """All that the user's functions compute in forward outside of modules, where that and the layers take so long
    beside backward that much of it is no model: which part is not known. None elsewhere."""
    where = _of_forward(facts, lambda label: not label.in_module)
    if not where or facts.run.feeds_device:
        return None
    backward_ns = facts.run.phase_ns("backward")
    samples = facts.samples(phases=["forward"], states=["native"])
    model_ns = (
        total(d for d in samples if facts.labelled(d).in_module) * facts.matrix[FORWARD] // max(1, total(samples))
    )
    if model_ns > limit("untrained_ratio") * backward_ns:
        model_ns = 0  # a line of it is longer than a backward through it
    functions = {name: [p for p in parts if p[0] == FORWARD] for name, parts in _functions(facts, where).items()}
    mine = _told(facts, functions)
    ratio = limit("untrained_ratio") if model_ns else limit("before_model_ratio")
    return mine if mine.ns + model_ns > ratio * backward_ns > 0 else None


def _of_forward(facts: Facts, keep: Keeps) -> dict[Cell, Keeps]:
    return {FORWARD: keep} if FORWARD in native_cells(facts) else {}


def _all_functions(facts: Facts) -> OfFunctions:
    return _functions(facts, native_cells(facts))


def _functions(facts: Facts, native_where: dict[Cell, Keeps]) -> OfFunctions:
    where: dict[Cell, Keeps] = dict.fromkeys(python_cells(facts), lambda label: label.is_the_loops) | native_where
    functions: OfFunctions = {}
    saving = frozenset(facts.once(beside_saves).details)  # told as the checkpoint's
    is_told = facts.once(in_told_hook)
    for cell, keep in where.items():
        samples = facts.samples(phases=[cell[0]], states=[cell[1]])
        kept = [
            d
            for d in samples
            if (label := facts.labelled(d)).users
            and keep(label)
            and d not in saving
            and not is_told(cell[0], label.stack)
        ]
        each = facts.matrix[cell] / max(1, _stood_for(facts, samples, kept))
        for d in kept:
            functions.setdefault(facts.labelled(d).function, []).append((cell, d, d.ns * each))
    return {function: _untold(facts, function, parts) for function, parts in functions.items()}


def _untold(facts: Facts, function: Function, parts: Parts) -> Parts:
    """Less what a finding has told of the function: in proportion, of each of its samples."""
    phases = {phase for (phase, _), _, _ in parts}
    whole = {phase: sum(ns for (of, _), _, ns in parts if of == phase) for phase in phases}
    told = {phase: min(1.0, facts.ledger.told_of(function, phase) / max(1.0, ns)) for phase, ns in whole.items()}
    if not any(told.values()):
        return parts
    left = {phase: 1 - share for phase, share in told.items()}
    return [(cell, replace(d, ns=round(d.ns * left[cell[0]])), ns * left[cell[0]]) for cell, d, ns in parts]


def _stood_for(facts: Facts, samples: Sequence[Detail], kept: Sequence[Detail]) -> int:
    """ns of the samples that a cell's exact time is divided by: all; or those that were read, where nearly all of these
    are the kept ones, which then stand for the others: reads fail where functions call each other fast (pandas')."""
    read_ns = total(d for d in samples if facts.run.stack(d.stack))
    enough = sum(d.count for d in kept) >= limit("min_samples")
    return read_ns if enough and total(kept) >= limit("held_share") * read_ns else total(samples)


def _split(facts: Facts, parts: Parts) -> tuple[float, float]:
    """Of Python, with the native code that texts need; and of other native code."""
    python = sum(ns for (_, m), d, ns in parts if m == "python" or facts.labelled(d).asks_for == "text")
    return python, sum(ns for _, _, ns in parts) - python


def _of_kind(facts: Facts, functions: OfFunctions, mostly: Literal["python", "native"]) -> OfFunctions:
    kept: OfFunctions = {}
    for function, parts in functions.items():
        python, native = _split(facts, parts)
        if (python >= native) == (mostly == "python"):
            kept[function] = parts
    return kept


def _in_small_operations(facts: Facts) -> OfFunctions:
    """Functions whose Python is told by itself, and has little more native code between it: small operations, needed or
    not. With all of that; where it is much more, it may be a loss, or a part of the model."""
    where = native_cells(facts)
    if FORWARD not in where:
        return {}
    known, around_model = where[FORWARD], facts.once(_beside_the_model)
    loops = facts.once(functions_that_call_modules)

    def on_lines_in_module(label: Label) -> bool:
        """What a module's function that calls no module computes itself."""
        return label.in_module and not label.in_autograd and label.function not in loops and not label.of_training

    def in_forward(label: Label) -> bool:
        return known(label) or around_model(label) or on_lines_in_module(label) or _in_own_operation(label)

    def in_backward(label: Label) -> bool:
        return _in_backward_hook(label) or _in_own_operation(label)

    whole = _functions(facts, where | {FORWARD: in_forward, _BACKWARD: in_backward})
    kept: OfFunctions = {}
    for function, parts in _of_kind(facts, facts.once(_all_functions), "python").items():
        python, native = _split(facts, whole[function])
        seen = sum(d.count for _, d, _ in parts) >= limit("min_samples")
        told = seen and facts.loop_share(int(python)) >= limit("one_function_share")
        if told and native <= limit("between_ratio") * python:
            kept[function] = whole[function]
    return kept


def _told(facts: Facts, functions: OfFunctions) -> OwnCode:
    claims: dict[Cell, float] = {}
    details: list[Detail] = []
    for parts in functions.values():
        for cell, d, ns in parts:
            claims[cell] = claims.get(cell, 0.0) + ns
            details.append(d)
    return OwnCode(facts.spots(details), {cell: int(ns) for cell, ns in claims.items()}, details)


# -- the outermost functions


def _functions_of_the_model(facts: Facts) -> set[Function]:
    """That call no module, and were notably often seen to run what may be the model, themselves or by what they
    call."""
    ns: Counter[Function] = Counter()
    of_model: Counter[Function] = Counter()
    for d in facts.samples(phases=["forward"]):
        label = facts.labelled(d)
        may_be = facts.once(batch_work).may_be_the_model(label)
        for function in set(label.functions):
            ns[function] += d.ns
            of_model[function] += may_be * d.ns
    notably = {function for function, its in of_model.items() if 0 < limit("warn_share") * ns[function] <= its}
    return notably - facts.once(functions_that_call_modules)


def _decorators(facts: Facts) -> set[Function]:
    """Of the user's: functions of which one line calls another function for each line that they were called from, or
    several, where they were made by a function that has ended (its name has it, from Python 3.11 on)."""
    called_for: dict[tuple[Function, int], dict[tuple[Function, int], set[Function]]] = {}
    made: set[Function] = set()
    for label in map(facts.labelled, facts.samples()):
        users = list(zip(label.users, label.functions, strict=True))
        for (_, called), (via, function), (caller, calling) in zip(users, users[1:], users[2:], strict=False):
            entries = called_for.setdefault((function, via.line), {})
            entries.setdefault((calling, caller.line), set()).add(called)
            maker, within, _ = function[1].rpartition(".<locals>.")
            if within and (via.file, maker) not in label.functions:
                made.add(function)
    return {
        function
        for (function, _), entries in called_for.items()
        if len(set().union(*entries.values())) > 1
        and (function in made or all(len(of) == 1 for of in entries.values()))
    }


def _is_within_model(facts: Facts, label: Label) -> bool:
    """In a module, or between two layers that a function of the user's calls: of a function that makes the update as
    well, as the loop does, what is there is none of the model's."""
    return label.in_module or facts.once(batch_work).is_between_layers(label)


def _outermost(facts: Facts) -> Callable[[Sequence[Frame]], Sequence[Frame]]:
    """Of a stack, what the outermost function that the loop calls beside the model begins; else all of it."""
    of_model, model_seen = facts.once(_functions_of_the_model), facts.once(runs_layers)
    passed_by = facts.once(functions_that_call_modules) | _decorators(facts)

    def outermost(stack: Sequence[Frame]) -> Sequence[Frame]:
        label = Label(tuple(stack))
        if not model_seen or _is_within_model(facts, label):
            return stack
        first = len(label.below)
        own = takewhile(lambda f: not frames.is_framework(f.file) or frames.is_decorator(f.file), stack[first:])
        named = [
            i for i, f in enumerate(own, first) if i > first and f in label.users and not f.function.startswith("<")
        ]
        at = next((i for i in reversed(named) if frames.function_of(stack[i]) not in passed_by), 0)
        return stack if at == 0 or frames.function_of(stack[at]) in of_model else stack[at:]

    return outermost


# -- how well it was seen


def too_few_samples(facts: Facts, mine: OwnCode, limits: Limits) -> Params | None:
    """By how many samples the costliest function is not named, though it may be worth a warning.

    In a short run even the exact row was split by few samples: what counts is the larger of its cost and its share of
    all samples.
    """
    top = mine.spots[0] if mine.spots else None
    if top is None:
        return None
    least, every = limit("min_samples"), max(1, sum(d.count for d in facts.samples()))
    if top.samples >= least and every * limit("one_function_share") >= least:
        return None
    may_cost = max(int(mine.ns * top.share), facts.wall_ns * top.samples // every)
    if facts.grade(may_cost, limits) is None:
        return None
    return {"few": Count(top.samples), "samples": Count(every), "place": facts.label(top)}


def unread_share(facts: Facts, cells: Iterable[Cell]) -> float:
    """Of the samples of these cells, those whose stack could not be read."""
    samples = [d for phase, state in cells for d in facts.samples(phases=[phase], states=[state])]
    unread = sum(d.count for d in samples if not facts.run.stack(d.stack))
    return unread / max(1, sum(d.count for d in samples))


# -- what one of them does, by what was seen of it

_AT_FILES = ("fetch", "checkpoint", "validation", "logging")  # phases in which the kernel may do so for others


def of_function(facts: Facts, mine: OwnCode, spot: Spot, among: Iterable[Detail] | None = None) -> list[Detail]:
    """What was seen of one of these functions."""
    function = frames.function_of(spot.frame)
    among = mine.details if among is None else among
    seen = ((d, frames.user_frame(mine.seen_from(facts.run.stack(d.stack)))) for d in among)
    return [d for d, at in seen if at is not None and frames.function_of(at) == function]


def share_that(facts: Facts, seen: Sequence[Detail], is_so: Callable[[Label], bool]) -> float:
    """Of the time of what was seen."""
    return total(d for d in seen if is_so(facts.labelled(d))) / max(1, total(seen))


def asks_for(facts: Facts, seen: Sequence[Detail]) -> str:
    """What most of it is that it asks a library for: "text", "metrics", "average"; "" for anything else."""
    times: Counter[str] = Counter()
    for d in seen:
        times[facts.labelled(d).asks_for] += d.ns
    asked, ns = max(times.items(), key=lambda of: of[1], default=("", 0))
    return asked if ns > limit("most_share") * times.total() else ""


def works_on_weights(facts: Facts, seen: Sequence[Detail]) -> bool:
    """It was notably often seen to ask modules for what they keep: an average of the weights, or a copy."""
    return share_that(facts, seen, lambda label: any(map(frames.reads_module, label.below))) >= limit("warn_share")


def computes_loss(facts: Facts, mine: OwnCode, spot: Spot) -> bool:
    """One of these functions was notably often seen to ask PyTorch for a loss, and never to run a layer, as a whole
    training_step does."""
    function, samples = frames.function_of(spot.frame), facts.samples()
    labels = map(facts.labelled, samples)
    if any(label.runs_layer and function in map(frames.function_of, label.stack) for label in labels):
        return False
    seen = of_function(facts, mine, spot, samples)
    return bool(seen) and share_that(facts, seen, lambda label: frames.of_loss(label.stack)) >= limit("warn_share")


def may_be_of_tensors(facts: Facts, seen: Sequence[Detail]) -> bool:
    """Notably much of it is told as of arrays on lines of its own: tensors would look the same."""
    is_of_arrays = facts.once(of_arrays)
    bare = total(
        d for d in seen if d.phase == "forward" and not facts.labelled(d).below and is_of_arrays(facts.labelled(d))
    )
    return bare >= limit("warn_share") * total(seen)


class AroundTheModel(NamedTuple):
    """Shares of what was seen, by the lines on which a function calls the model; the rest is on none of these."""

    before: float
    between: float  # two calls
    after: float  # and before the backward
    updated: float  # after the update


def around_the_model(facts: Facts, seen: Sequence[Detail]) -> AroundTheModel:
    work, whole = facts.once(batch_work), max(1, total(seen))
    forward = [(d.ns, facts.labelled(d)) for d in seen if d.phase == "forward"]
    where = (work.is_before, work.is_between, work.is_after, work.is_after_update)
    return AroundTheModel(*(sum(ns for ns, label in forward if at(label)) / whole for at in where))


def may_free_a_batch(facts: Facts, spot: Spot, seen: Sequence[Detail]) -> bool:
    """Of the loop itself nearly all was seen on one line, with no function of Python's below it, and workers make the
    batches: their memory is given back where the last name of one goes, on the CPU and with the GIL held, which looks
    like Python."""
    function = frames.function_of(spot.frame)
    if spot.frame.function != function[1]:  # a generator's own frame
        return False
    if function not in facts.once(functions_that_call_modules) or all(map(only_validates, with_workers_of(facts))):
        return False
    return share_that(facts, seen, lambda label: label.stack[0] == spot.frame) >= limit("held_share")


def untold_of_line(facts: Facts, mine: OwnCode, spot: Spot) -> int:
    """ns of native code that the function's line runs before the backward beside what is told; 0 where it was seen to
    call a module."""
    if FORWARD not in native_cells(facts):
        return 0
    told = {d.stack for d in mine.details if (d.phase, d.state) == FORWARD}
    samples = facts.samples(phases=["forward"], states=["native"])
    on_line = [d for d in samples if facts.is_at(d, spot, line=True)]
    if any(frames.calls_module(f) for d in on_line for f in facts.run.stack(d.stack)):
        return 0
    ns = total(d for d in on_line if d.stack not in told and facts.labelled(d).beside_training)
    return ns * facts.matrix[FORWARD] // max(1, total(samples))


def share_in_hooks(facts: Facts, mine: OwnCode) -> float:
    in_hook = hooks(facts)
    return total(d for d in mine.details if d.phase == "forward" and in_hook(facts.labelled(d))) / max(
        1, total(mine.details)
    )


def part_of_step(facts: Facts, seen: Sequence[Detail]) -> str:
    """The part of the step that most of it is in: a phase, the "model", a "closure", a "hook"."""
    parts: Counter[str] = Counter()
    for d in seen:
        label = facts.labelled(d)
        part = d.phase
        if part == "forward" and label.in_module:
            part = "model"
        elif part == "optimizer" and frames.in_closure(label.stack):
            part = "closure"
        elif part == "backward" and frames.in_backward_hook(label.stack):
            part = "hook"
        parts[part] += d.ns
    return max(parts, key=lambda part: parts[part], default="")


def file_call(facts: Facts, mine: OwnCode) -> str:
    """The call on files that the costliest of the functions makes: most of the time is its, it waits in such calls as
    well, no library computes below it, and the kernel works for the training thread, beside page faults and
    what others may write or read, for half of that time or more. "" elsewhere."""
    top = mine.spots[0]
    waits = [d for d in facts.samples(states=["blocked"]) if facts.is_at(d, top)]
    call = call_of(waits, facts.machine)
    if waiting_kind(call) != "file" or sum(d.count for d in waits) < limit("min_samples"):
        return ""
    plain = share_that(
        facts,
        of_function(facts, mine, top),
        lambda label: frames.is_users(label.stack[0], label.stack) or frames.is_stdlib_file(label.stack[0].file),
    )
    if min(top.share, plain) < limit("most_share"):
        return ""
    elsewhere = sum(facts.matrix[phase, "native"] for phase in _AT_FILES)
    left = _kernel_share(facts) * facts.wall_ns - elsewhere
    return call if left >= limit("half_share") * mine.ns else ""


def _kernel_share(facts: Facts) -> float:
    """Of the training thread's time: what the kernel does for it on the CPU, but page faults; 0 when not known."""
    known = [h for h in facts.run.host if h.faults >= 0 and h.system_ns >= 0]
    price_ns = facts.number("page_fault_ns")
    if not price_ns:
        return 0.0
    pairs = [(a, b) for a, b in pairwise(known) if b.faults >= a.faults and b.system_ns >= a.system_ns]
    ns = sum(b.system_ns - a.system_ns for a, b in pairs)
    faults_ns = sum(b.faults - a.faults for a, b in pairs) * price_ns
    return max(0.0, ns - faults_ns) / max(1, sum(b.at_ns - a.at_ns for a, b in pairs))
