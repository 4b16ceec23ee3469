"""The loop's own functions: what of the training thread's Python and native code is theirs, and not training itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from trainperf.findings.facts import Affected
from trainperf.findings.frames import (
    below_users,
    called_by,
    called_by_module,
    calls_module,
    function_of,
    in_autograd_function,
    in_backward_hook,
    in_closure,
    in_module,
    in_step_hook,
    is_array_library,
    is_decorator,
    is_forward,
    is_framework,
    is_functional,
    is_other_library,
    is_the_loops,
    is_trainings_own,
    is_users,
    makes_text,
    of_average,
    of_metric,
    runs_layer,
    user_frame,
)
from trainperf.findings.framework import in_told_hook
from trainperf.findings.functions import Functions
from trainperf.findings.model import Cell, Limits, Params
from trainperf.findings.saving import beside_saves, saves
from trainperf.findings.text import Count
from trainperf.findings.thresholds import limit
from trainperf.runfile.schema import json_object

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.frames import FrameLike, Function
    from trainperf.runfile import Detail, Frame

    Keeps = Callable[[Sequence[Frame]], bool]
    Parts = list[tuple[Cell, Detail, float]]  # where, what was seen, ns of the exact time that it stands for

FORWARD: Cell = ("forward", "native")
_TRANSFER = "transfer"  # where there is no device to copy to, whatever that phase does is the loop's own
_OF_EACH_STEP = ("backward", "optimizer")  # phases in which nothing only looks
_SEVERAL = 3  # samples in a step


def beside_training(stack: Sequence[FrameLike]) -> bool:
    """Clipping gradients, or an optimizer of torch that no hook saw, is training and not beside it, and so is what a
    model does itself. It is what the user's function calls that counts: Lightning calls all of a training_step within
    the optimizer's step."""
    if makes_text(stack) or of_metric(stack) or of_average(stack):
        return True
    if in_module(stack) or in_autograd_function(stack):
        return False
    return not any(is_trainings_own(f) for f in below_users(stack))


def _outside_training(stack: Sequence[Frame]) -> bool:
    """Between the phases no backward goes through PyTorch's functions of layers either."""
    if beside_training(stack):
        return True
    own = [f for f in below_users(stack) if is_trainings_own(f)]
    return bool(own) and all(map(is_functional, own)) and not in_module(stack) and not in_autograd_function(stack)


def _in_closure(stack: Sequence[Frame]) -> bool:
    """What a closure does beside forward and backward, or a hook of the optimizer's, but what is training itself."""
    return (in_closure(stack) or in_step_hook(stack)) and beside_training(stack)


def _in_backward_hook(stack: Sequence[Frame]) -> bool:
    inner = in_backward_hook(stack)
    return bool(inner) and beside_training(inner)


def _saves(stack: Sequence[Frame]) -> bool:
    """Writing a file is neither the model nor a loss."""
    return is_the_loops(stack) and saves(stack)


def _before_the_model(stack: Sequence[Frame]) -> bool:
    """What ends with a backward is called forward, batches that the loop makes itself included: they are told from the
    model where another library computes (NumPy, pandas, PIL), outside of any module."""
    if not is_the_loops(stack) or not is_other_library(stack[0].file):
        return False
    return not in_module(stack) and not in_autograd_function(stack)


def of_arrays(facts: Facts) -> Keeps:
    """What a function beside the model computes that was seen to ask NumPy or its like for a third of it or more, and
    nothing that PyTorch writes in Python: `a - b` of arrays has no frame of the library's."""
    by_library: dict[Function, int] = {}
    on_its_lines: dict[Function, int] = {}
    others = functions_that_call_modules(facts)
    for d in facts.samples(phases=["forward"]):
        stack = facts.run.stack(d.stack)
        at = user_frame(stack)
        if at is None:
            continue
        called = below_users(stack)
        if in_module(stack) or in_autograd_function(stack) or any(is_framework(f.file) for f in called):
            others.add(function_of(at))
        elif d.state == "native":
            of = by_library if called and is_array_library(called[0].file) else on_its_lines
            of[function_of(at)] = of.get(function_of(at), 0) + d.ns
    known = {f for f, ns in by_library.items() if ns >= limit("half_share") * on_its_lines.get(f, 0)} - others
    beside = _beside_the_model(facts)
    return lambda stack: (at := user_frame(stack)) is not None and function_of(at) in known and beside(stack)


def _arrays_in_model(stack: Sequence[Frame]) -> bool:
    """Or in its loss: a function with a backward of its own is a part of one of them."""
    arrays = is_the_loops(stack) and is_array_library(stack[0].file)
    return arrays and (in_module(stack) or in_autograd_function(stack))


def hooks(facts: Facts) -> Keeps:
    """Forward hooks. A module calls them and its forward from different lines of one function, whatever those are in
    this version of PyTorch: the lines of forward are those from which the run found it called (meta.py), or something
    of that name was seen to be."""
    lines = _lines_of_forward(facts)
    for d in facts.samples(phases=["forward"]):
        stack = facts.run.stack(d.stack)
        for i, caller in enumerate(stack):
            called = called_by(stack, i) if calls_module(caller) else None
            if called is not None and is_forward(stack[called]):
                lines.setdefault((caller.file, caller.function), set()).add(caller.line)

    def in_hook(stack: Sequence[Frame]) -> bool:
        found = called_by_module(stack)
        if found is None:
            return False
        called, caller = found
        of_forward = lines.get((caller.file, caller.function), set())
        named = is_users(called, stack) and not is_forward(called)
        return named and bool(of_forward) and caller.line not in of_forward

    return in_hook


def _lines_of_forward(facts: Facts) -> dict[tuple[str, str], set[int]]:
    """By file and function; empty for a run of an older trainperf."""
    lines: dict[tuple[str, str], set[int]] = {}
    for file, functions in json_object(facts.run.meta.get("forward_lines", "{}")).items():
        for function, of in functions.items() if isinstance(functions, dict) else ():
            lines[file, function] = {line for line in of if isinstance(line, int)} if isinstance(of, list) else set()
    return lines


def functions_that_call_modules(facts: Facts) -> set[Function]:
    """The user's functions that were seen to call a module, directly or not."""
    loops: set[Function] = set()
    for d in facts.samples():
        stack = facts.run.stack(d.stack)
        call = next((i for i, f in enumerate(stack) if calls_module(f)), len(stack))
        loops |= {function_of(f) for f in stack[call:] if is_users(f, stack)}
    return loops


def _beside_the_model(facts: Facts) -> Keeps:
    """Of forward, what a function does that was never seen to call a module: a metric, an average of the weights; a
    loss or a batch as well. Nothing where no layer was seen, nor of what may be a part of the model: that may be a
    function."""
    loops = functions_that_call_modules(facts)
    model_seen = any(runs_layer(facts.run.stack(d.stack)) for d in facts.samples())
    before = facts.batch_work

    def keep(stack: Sequence[Frame]) -> bool:
        at = user_frame(stack)
        if not model_seen or at is None or in_module(stack) or not beside_training(stack):
            return False
        if before.may_be_the_model(stack):
            return False
        return at.function != "<module>" and function_of(at) not in loops

    return keep


@dataclass(frozen=True, slots=True)
class OwnCode(Functions):
    """Functions of one kind."""

    details: list[Detail]
    seen_from: Callable[[Sequence[Frame]], Sequence[Frame]] = tuple  # of a stack, the part that its function begins

    def affected(self, steps: int) -> Affected:
        """The few of so many steps that most of it was seen in, by several samples each: it is hardly in others too."""
        top = max(self.details, key=lambda d: d.ns)
        share = top.ns / sum(d.ns for d in self.details)
        if share < limit("most_share") or top.count < _SEVERAL * top.steps or not 0 < 2 * top.steps < steps:
            return Affected(steps, 1.0)
        return Affected(top.steps, share)

    def share(self, *, mechanism: str = "", phase: str = "") -> float:
        """Of their time."""
        ns = sum(ns for (p, m), ns in self.claims.items() if mechanism in ("", m) and phase in ("", p))
        return ns / self.ns if ns else 0.0


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
    where: dict[Cell, Keeps] = {
        ("other", "native"): _outside_training if facts.run.phase_ns("backward") else beside_training,
        ("backward", "native"): _in_backward_hook,
        ("optimizer", "native"): _in_closure,
        FORWARD: _no_models(facts),
    }
    if not facts.run.feeds_device:
        where[_TRANSFER, "native"] = beside_training
    return where


def _no_models(facts: Facts) -> Keeps:
    """Which stacks in forward, the phase of all that comes between the data and backward, are work of the loop's own
    and none of the model's."""
    in_hook, batch, is_of_arrays = hooks(facts), facts.batch_work, of_arrays(facts)

    def keep(stack: Sequence[Frame]) -> bool:
        if makes_text(stack) or of_metric(stack) or of_average(stack) or _saves(stack):
            return True  # it asked a library for that
        if batch.is_one(stack) or is_of_arrays(stack):
            return True  # it makes the batch
        return _before_the_model(stack) or in_hook(stack) or batch.is_after_update(stack)

    return keep


def own_code(facts: Facts, mostly: Literal["python", "native"]) -> OwnCode:
    """The functions of which most is Python, or of which most is native code: each is of one kind, with both. To make
    the text of a tensor is Python's work, with native code in it."""
    functions = _of_kind(facts, _functions(facts, native_cells(facts)), mostly)
    return _told(facts, functions | _in_small_operations(facts) if mostly == "python" else functions)


def with_what_they_call(facts: Facts, mine: OwnCode) -> OwnCode:
    """The same by the outermost functions that the loop calls, or a framework: of a metric in several functions none
    may be notable. Not of what is a model, or may be one."""
    outermost = _outermost(facts)
    return replace(mine, spots=facts.spots(mine.details, seen_from=outermost), seen_from=outermost)


def called_together(facts: Facts) -> OwnCode:
    """The Python of all functions that the loop calls beside the model, as far as that is known, by the outermost. Not
    of those that are mostly native code, needed or not: a loss in tensors looks the same, or a part of the model."""
    where, beside, outermost = native_cells(facts), _beside_the_model(facts), _outermost(facts)
    known, of_model = where.get(FORWARD), _functions_of_the_model(facts)

    def is_called(cell: Cell, stack: Sequence[Frame]) -> bool:
        at = user_frame(outermost(stack))
        if at is None or at.function.startswith("<") or any(function_of(f) in of_model for f in stack):
            return False
        return cell[0] not in _OF_EACH_STEP and beside(stack) and not _is_within_model(facts, stack)

    whole = _functions(facts, where | {FORWARD: lambda stack: beside(stack) or (known is not None and known(stack))})
    functions: dict[Function, Parts] = {}
    for function, parts in _of_kind(facts, _functions(facts, where), "python").items():
        python, native = _split(facts, whole[function])
        kept = [part for part in parts if is_called(part[0], facts.run.stack(part[1].stack))]
        if kept and native <= python:
            functions[function] = kept
    mine = _told(facts, functions)
    return replace(mine, spots=facts.spots(mine.details, seen_from=outermost), seen_from=outermost)


def _functions_of_the_model(facts: Facts) -> set[Function]:
    """That call no module, and were notably often seen to run what may be the model, themselves or by what they
    call."""
    ns: dict[Function, int] = {}
    of_model: dict[Function, int] = {}
    for d in facts.samples(phases=["forward"]):
        stack = facts.run.stack(d.stack)
        may_be = facts.batch_work.may_be_the_model(stack)
        for function in {function_of(f) for f in stack if is_users(f, stack)}:
            ns[function] = ns.get(function, 0) + d.ns
            of_model[function] = of_model.get(function, 0) + may_be * d.ns
    notably = {function for function, its in of_model.items() if 0 < limit("warn_share") * ns[function] <= its}
    return notably - functions_that_call_modules(facts)


def _decorators(facts: Facts) -> set[Function]:
    """Of the user's: functions of which one line calls another function for each line that they were called from, or
    several, where they were made by a function that has ended (its name has it, from Python 3.11 on)."""
    called_for: dict[tuple[Function, int], dict[tuple[Function, int], set[Function]]] = {}
    made: set[Function] = set()
    for d in facts.samples():
        stack = facts.run.stack(d.stack)
        users = [f for f in stack if is_users(f, stack)]
        running = {function_of(f) for f in users}
        for called, via, caller in zip(users, users[1:], users[2:], strict=False):
            entries = called_for.setdefault((function_of(via), via.line), {})
            entries.setdefault((function_of(caller), caller.line), set()).add(function_of(called))
            maker, within, _ = function_of(via)[1].rpartition(".<locals>.")
            if within and (via.file, maker) not in running:
                made.add(function_of(via))
    return {
        function
        for (function, _), entries in called_for.items()
        if len(set().union(*entries.values())) > 1
        and (function in made or all(len(of) == 1 for of in entries.values()))
    }


def _is_within_model(facts: Facts, stack: Sequence[Frame]) -> bool:
    """In a module, or between two layers that a function of the user's calls: of a function that makes the update as
    well, as the loop does, what is there is none of the model's."""
    return in_module(stack) or facts.batch_work.is_between_layers(stack)


def _outermost(facts: Facts) -> Callable[[Sequence[Frame]], Sequence[Frame]]:
    """Of a stack, what the outermost function that the loop calls beside the model begins; else all of it."""
    of_model = _functions_of_the_model(facts)
    passed_by = functions_that_call_modules(facts) | _decorators(facts)
    model_seen = any(runs_layer(facts.run.stack(d.stack)) for d in facts.samples())

    def outermost(stack: Sequence[Frame]) -> Sequence[Frame]:
        if not stack or not model_seen or _is_within_model(facts, stack):
            return stack
        first = len(below_users(stack))
        end = (i for i, f in enumerate(stack) if i > first and is_framework(f.file) and not is_decorator(f.file))
        users = (
            i
            for i in range(next(end, len(stack)) - 1, first, -1)
            if is_users(stack[i], stack) and not stack[i].function.startswith("<")
        )
        at = next((i for i in users if function_of(stack[i]) not in passed_by), 0)
        return stack if function_of(stack[at]) in of_model else stack[at:]

    return outermost


def beside_the_model(facts: Facts) -> OwnCode:
    """The functions of the loop's, outside of any module, of which most is native code in forward; which of them are
    needed is not known."""
    where = {FORWARD: _beside_the_model(facts)} if FORWARD in native_cells(facts) else {}
    functions = _of_kind(facts, _functions(facts, where), "native")
    told = _in_small_operations(facts)
    return _told(facts, {function: parts for function, parts in functions.items() if function not in told})


def arrays_in_model(facts: Facts) -> OwnCode:
    """The functions of which most is native code of NumPy's and its like in what modules call."""
    where: dict[Cell, Keeps] = {FORWARD: _arrays_in_model} if FORWARD in native_cells(facts) else {}
    return _told(facts, _of_kind(facts, _functions(facts, where), "native"))


def forward_beside_layers(facts: Facts) -> OwnCode | None:
    """All that the user's functions compute in forward outside of modules, where that and the layers take so long
    beside backward that much of it is no model: which part is not known. None elsewhere."""
    if FORWARD not in native_cells(facts) or facts.run.feeds_device:
        return None
    backward_ns = facts.run.phase_ns("backward")
    model_ns = _layers_ns(facts)
    where: dict[Cell, Keeps] = {FORWARD: lambda stack: not in_module(stack)}
    functions = {name: [p for p in parts if p[0] == FORWARD] for name, parts in _functions(facts, where).items()}
    mine = _told(facts, {name: parts for name, parts in functions.items() if parts})
    ratio = limit("untrained_ratio") if model_ns else limit("before_model_ratio")
    return mine if mine.ns + model_ns > ratio * backward_ns > 0 else None


def _layers_ns(facts: Facts) -> int:
    """Of forward, what modules compute: without those of a line that is longer than a backward through it."""
    samples = facts.samples(phases=["forward"], states=["native"])
    ns = sum(d.ns for d in samples if in_module(facts.run.stack(d.stack)))
    ns = ns * facts.matrix[FORWARD] // max(1, sum(d.ns for d in samples))
    return ns if ns <= limit("untrained_ratio") * facts.run.phase_ns("backward") else 0


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


def _functions(facts: Facts, native_where: dict[Cell, Keeps]) -> dict[Function, Parts]:
    where: dict[Cell, Keeps] = dict.fromkeys(python_cells(facts), is_the_loops) | native_where
    functions: dict[Function, Parts] = {}
    saving = beside_saves(facts).details  # told as the checkpoint's
    for cell, keep in where.items():
        samples = facts.samples(phases=[cell[0]], states=[cell[1]])
        kept = [
            (d, at)
            for d in samples
            if (at := user_frame(stack := facts.run.stack(d.stack))) is not None
            and keep(stack)
            and d not in saving
            and not facts.once(in_told_hook)(cell[0], stack)
        ]
        each = facts.matrix[cell] / max(1, _stood_for(facts, samples, [d for d, _ in kept]))
        for d, at in kept:
            functions.setdefault(function_of(at), []).append((cell, d, d.ns * each))
    return functions


def _stood_for(facts: Facts, samples: Sequence[Detail], kept: Sequence[Detail]) -> int:
    """ns of the samples that a cell's exact time is divided by: all; or those that were read, where nearly all of these
    are the kept ones, which then stand for the others: reads fail where functions call each other fast (pandas')."""
    read_ns = sum(d.ns for d in samples if facts.run.stack(d.stack))
    enough = sum(d.count for d in kept) >= limit("min_samples")
    if enough and sum(d.ns for d in kept) >= limit("held_share") * read_ns:
        return read_ns
    return sum(d.ns for d in samples)


def unread_share(facts: Facts, cells: Iterable[Cell]) -> float:
    """Of the samples of these cells, those whose stack could not be read."""
    samples = [d for phase, state in cells for d in facts.samples(phases=[phase], states=[state])]
    unread = sum(d.count for d in samples if not facts.run.stack(d.stack))
    return unread / max(1, sum(d.count for d in samples))


def _split(facts: Facts, parts: Parts) -> tuple[float, float]:
    """Of Python, with the native code that texts need; and of other native code."""
    python = sum(ns for (_, m), d, ns in parts if m == "python" or makes_text(facts.run.stack(d.stack)))
    return python, sum(ns for _, _, ns in parts) - python


def _of_kind(
    facts: Facts, functions: dict[Function, Parts], mostly: Literal["python", "native"]
) -> dict[Function, Parts]:
    kept: dict[Function, Parts] = {}
    for function, parts in functions.items():
        python, native = _split(facts, parts)
        if (python >= native) == (mostly == "python"):
            kept[function] = parts
    return kept


def _lines_in_modules(facts: Facts) -> Keeps:
    """What a module's function that calls no module computes on its own lines."""
    loops = functions_that_call_modules(facts)

    def keep(stack: Sequence[Frame]) -> bool:
        at = user_frame(stack)
        if at is None or not in_module(stack) or in_autograd_function(stack) or function_of(at) in loops:
            return False
        return not any(is_trainings_own(f) for f in below_users(stack))

    return keep


def _in_small_operations(facts: Facts) -> dict[Function, Parts]:
    """Functions whose Python is told by itself, and has little more native code between it: small operations, needed or
    not. With all of that; where it is much more, it may be a loss, or a part of the model."""
    where = native_cells(facts)
    if FORWARD not in where:
        return {}
    known, beside, of_module = where[FORWARD], _beside_the_model(facts), _lines_in_modules(facts)
    whole = _functions(facts, where | {FORWARD: lambda stack: known(stack) or beside(stack) or of_module(stack)})
    kept: dict[Function, Parts] = {}
    for function, parts in _of_kind(facts, _functions(facts, where), "python").items():
        python, native = _split(facts, whole[function])
        seen = sum(d.count for _, d, _ in parts) >= limit("min_samples")
        told = seen and facts.loop_share(int(python)) >= limit("one_function_share")
        if told and native <= limit("between_ratio") * python:
            kept[function] = whole[function]
    return kept


def _told(facts: Facts, functions: dict[Function, Parts]) -> OwnCode:
    claims: dict[Cell, float] = {}
    details: list[Detail] = []
    for parts in functions.values():
        for cell, d, ns in parts:
            claims[cell] = claims.get(cell, 0.0) + ns
            details.append(d)
    return OwnCode(facts.spots(details), {cell: int(ns) for cell, ns in claims.items()}, details)
