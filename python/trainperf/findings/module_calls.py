"""The lines that call modules: whether a backward can go through, and what the loop does before, between and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from trainperf.findings.frames import calls_module, function_of, is_functional, is_users, user_frame
from trainperf.findings.thresholds import limit
from trainperf.runfile import Frame
from trainperf.runfile.schema import count, described

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.frames import Function, Label


@dataclass(frozen=True, slots=True)
class Call:
    """Of a module that no other one called, by one way through the program."""

    callers: tuple[Frame, ...]
    forward: Function
    calls: int
    with_gradient: int  # of the result
    given: int  # calls with tensors in the arguments
    given_gradient: int  # and one of these has a gradient
    parameters: int
    trained: int
    frozen: tuple[str, ...]  # children whose parameters are all frozen

    @property
    def is_given_data(self) -> bool:
        """Nothing before it has a gradient."""
        return self.given > 0 == self.given_gradient

    @property
    def shapes_batch(self) -> bool:
        """A module without a parameter, such as an augmentation, of what has no gradient."""
        return self.calls > 0 == self.with_gradient and not self.parameters

    @property
    def may_train(self) -> bool:
        return self.with_gradient > 0 and self.parameters > 0


class ModuleCalls:
    """Empty where nothing was looked at: with an older trainperf, or where something was compiled."""

    def __init__(self, facts: Facts) -> None:
        found = described(facts.run.meta, "module_calls").get("calls")
        calls = (_call(one) for one in (found if isinstance(found, list) else ()) if isinstance(one, dict))
        seen = [call for call in calls if user_frame(call.callers) is not None]
        self._calls = [call for call in seen if call.calls]
        training = [call for call in self._calls if call.may_train]
        first = [call for call in training if not call.given_gradient]
        # The backward goes through a call whose result has a gradient: where there is one, or the others are given what
        # that returned, through this.
        unclear = any(call.parameters and not call.calls for call in seen)
        self._trained = training if len(first) == 1 and not unclear else []

    def is_trained(self, stack: Sequence[Frame]) -> bool:
        """A backward is known to go through each call of the module that the stack comes from."""
        found = self._of(stack)
        return bool(found) and all(any(c is t for t in self._trained) and c.calls == c.with_gradient for c in found)

    def has_gradient(self, stack: Sequence[Frame]) -> bool | None:
        """Whether the result of each call has one; None where no call was looked at, or where they differ."""
        found = {min(call.with_gradient, 1) * (1 + (call.with_gradient < call.calls)) for call in self._of(stack)}
        return None if len(found) != 1 or 2 in found else bool(found.pop())

    def frozen(self, stack: Sequence[Frame]) -> tuple[str, ...]:
        """The layers of that module whose parameters are all frozen; "" among them where others have some."""
        found = self._of(stack)
        names = [name for call in found for name in call.frozen]
        return tuple(dict.fromkeys(names or [""] * any(call.trained < call.parameters for call in found)))

    def shapes_batch(self, stack: Sequence[Frame]) -> bool:
        found = self._of(stack)
        return bool(found) and all(call.shapes_batch for call in found)

    def is_given_data(self, function: Function) -> bool | None:
        """Whether the first module with parameters that a function calls, directly or not, is given what has no
        gradient; None where none was looked at."""
        at = [
            (f.line, call)
            for call in self._calls
            if call.parameters and call.given
            for f in call.callers
            if function_of(f) == function
        ]
        first = min((line for line, _ in at), default=0)
        return any(call.is_given_data for line, call in at if line == first) if at else None

    def _of(self, stack: Sequence[Frame]) -> list[Call]:
        """By the line of the user's; where several calls come from it, by the module's forward and by all callers."""
        outermost = max((i for i, f in enumerate(stack) if calls_module(f)), default=None)
        if outermost is None or not self._calls:
            return []
        at = next((f for f in stack[outermost + 1 :] if is_users(f, stack)), None)
        on_line = [
            call
            for call in self._calls
            if at is not None
            and (there := user_frame(call.callers)) is not None
            and (there.file, there.function, there.line) == (at.file, at.function, at.line)
        ]
        inner = outermost
        while inner > 0 and calls_module(stack[inner - 1]):
            inner -= 1
        forward = (stack[inner - 1].file, stack[inner - 1].function) if inner else None
        same = [call for call in on_line if call.forward == forward] or on_line
        return [call for call in same if _is_way(call.callers, stack[outermost + 1 :])] or same


def _is_way(callers: Sequence[Frame], stack: Sequence[Frame]) -> bool:
    return all(
        (a.file, a.function, a.line) == (b.file, b.function, b.line) for a, b in zip(callers, stack, strict=False)
    )


def _call(described: Mapping[str, Any]) -> Call:
    """A damaged file may have anything."""
    training, evaluating = _pair(described.get("training")), _pair(described.get("evaluating"))
    # Evaluation has a phase of its own, and may be by the line that trains.
    seen = training if training[1] else (training[0] + evaluating[0], evaluating[1])
    given, frozen, forward = _pair(described.get("given")), described.get("frozen"), described.get("forward")
    return Call(
        callers=_frames(described.get("callers")),
        forward=(str(forward[0]), str(forward[1])) if isinstance(forward, list) and len(forward) == 2 else ("", ""),
        calls=seen[0],
        with_gradient=seen[1],
        given=given[0],
        given_gradient=given[1],
        parameters=count(described.get("parameters")),
        trained=count(described.get("trained")),
        frozen=tuple(map(str, frozen)) if isinstance(frozen, list) else (),
    )


def _frames(value: Any) -> tuple[Frame, ...]:
    found: list[Frame] = []
    for frame in value if isinstance(value, list) else ():
        match frame:
            case [str(file), str(function), int(line)]:
                found.append(Frame(file=file, function=function, line=line))
            case _:
                return ()
    return tuple(found)


def _pair(value: Any) -> tuple[int, int]:
    match value:
        case [int(calls), int(some)]:
            return calls, some
    return 0, 0


# -- what the loop does before it calls the model, between its calls and after: told by the lines that it runs

Lines = tuple[int, int]  # first and last


class _At(NamedTuple):
    """Where in the innermost of the user's functions through which layers are called."""

    function: Function
    line: int
    first: int  # line on which it calls a layer
    last: int
    update: int  # the last line of its backward and its optimizer's step; -1: none


@dataclass(frozen=True, slots=True)
class BatchWork:
    """Native code in forward of functions that come to their first call of a layer on a later line, outside of any
    module but such as only shape a batch."""

    calls: Mapping[Function, Lines]  # of layers
    updates: Mapping[Function, int]
    of_batch: frozenset[Function]
    of_model: frozenset[Function]  # those that may be a part of the model itself
    unsure_ns: int  # of these, what may as well be work on a batch
    modules: ModuleCalls

    def is_one(self, label: Label) -> bool:
        if self.modules.shapes_batch(label.stack):
            return True
        return not _is_trainings(label) and self.is_before(label) and label.function in self.of_batch

    def is_before(self, label: Label) -> bool:
        """Whether the function comes to its first call of a layer on a later line."""
        at = self._at(label)
        return at is not None and at.line < at.first

    def is_after_update(self, label: Label) -> bool:
        """Whether a function that calls the model has made its update, on an earlier line: no loss comes after it."""
        at = self._at(label)
        return at is not None and at.last <= at.update < at.line and not _is_trainings(label)

    def is_between(self, label: Label) -> bool:
        """Whether it is on a line between its calls of layers."""
        at = self._at(label)
        return at is not None and at.first < at.line < at.last

    def is_between_layers(self, label: Label) -> bool:
        """Likewise, of a function that makes no update on a later line: it may be a model, and is not the loop. What is
        computed once more in backward lies within its layers."""
        at = self._at(label)
        return at is not None and at.update <= at.last and at.first < at.line < at.last

    def is_after(self, label: Label) -> bool:
        """Whether its last call of one is on an earlier line, and its update is not."""
        at = self._at(label)
        return at is not None and at.line > at.last and not self.is_after_update(label)

    def may_be_the_model(self, label: Label) -> bool:
        return self.is_before(label) and label.function in self.of_model

    def _at(self, label: Label) -> _At | None:
        return None if label.in_module else _innermost(label, self.calls, self.updates)


def batch_work(facts: Facts) -> BatchWork:
    """A function may be a part of the model where backward is as long as if it went through that too, unless the model
    was seen to be given data: no gradient goes to what comes before it."""
    native = facts.samples(phases=["forward"], states=["native"])
    modules = facts.once(ModuleCalls)
    calls, updates = _calls(facts, modules), _updates(facts)
    model_ns = 0
    ns_of: Counter[Function] = Counter()
    functional: Counter[Function] = Counter()  # of these, with PyTorch's functions of layers
    given_data: dict[Function, bool | None] = {}  # the modules that are called later
    for d in native:
        label = facts.labelled(d)
        if label.in_module:
            model_ns += 0 if modules.shapes_batch(label.stack) else d.ns
            continue
        at = _innermost(label, calls, updates)
        if at is not None and at.line < at.first and not _is_trainings(label):
            ns_of[label.function] += d.ns
            given_data[label.function] = modules.is_given_data(at.function)
            functional[label.function] += any(map(is_functional, label.of_training)) * d.ns
    each = facts.matrix["forward", "native"] / max(1, sum(d.ns for d in native))  # exact time for that of samples
    backward_ns = facts.run.phase_ns("backward")

    def may_be_the_model(function: Function, ns: int) -> bool:
        if given_data[function]:
            return False
        if facts.inference:  # without a backward, any may be
            return True
        if functional[function] >= limit("half_share") * ns:
            return limit("untrained_ratio") * backward_ns >= (functional.total() + model_ns) * each
        return ns > limit("before_model_ratio") * model_ns and backward_ns >= (ns + model_ns) * each

    of_model = frozenset(function for function, ns in ns_of.items() if may_be_the_model(function, ns))
    unsure_ns = sum(ns_of[f] for f in of_model if given_data[f] is None)
    return BatchWork(calls, updates, frozenset(ns_of) - of_model, of_model, int(unsure_ns * each), modules)


def _calls(facts: Facts, modules: ModuleCalls) -> dict[Function, Lines]:
    """Of the user's functions that a layer was seen to be called through."""
    calls: dict[Function, Lines] = {}
    for label in map(facts.labelled, facts.samples(phases=["forward"])):
        if not label.runs_layer or modules.shapes_batch(label.stack):
            continue
        outermost = max(i for i, f in enumerate(label.stack) if calls_module(f))
        for f in label.stack[outermost + 1 :]:
            if is_users(f, label.stack):
                first, last = calls.get(function_of(f), (f.line, f.line))
                calls[function_of(f)] = min(f.line, first), max(f.line, last)
    return calls


def _updates(facts: Facts) -> dict[Function, int]:
    """Of the user's functions that run a backward, or call who does; empty where no optimizer steps: what comes after a
    backward may be the update itself."""
    if not facts.run.steps.optimizer_steps.any():
        return {}
    lines: dict[Function, Counter[int]] = {}  # ns
    for d in facts.samples(phases=["backward", "optimizer"]):
        label = facts.labelled(d)
        for f, function in zip(label.users, label.functions, strict=True):
            lines.setdefault(function, Counter())[f.line] += d.ns
    # A look that took a moment may show what comes after.
    return {
        function: max(line for line, ns in of.items() if ns >= limit("felt_share") * of.total())
        for function, of in lines.items()
        if any(of.values())
    }


def _innermost(label: Label, calls: Mapping[Function, Lines], updates: Mapping[Function, int]) -> _At | None:
    pairs = zip(label.users, label.functions, strict=True)
    found = ((function, f.line) for f, function in pairs if function in calls)
    return next((_At(function, line, *calls[function], updates.get(function, -1)) for function, line in found), None)


def _is_trainings(label: Label) -> bool:
    """PyTorch's functions of layers are asked of a batch as well: a morphology of masks is a max_pool2d."""
    return label.in_autograd or not all(map(is_functional, label.of_training))
