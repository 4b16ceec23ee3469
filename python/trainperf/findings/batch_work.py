"""What the loop does before it calls the model, and after its update: told from the model by the lines that it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings.frames import calls_module, function_of, is_functional, is_users
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.frames import Function
    from trainperf.findings.module_calls import ModuleCalls
    from trainperf.findings.stacks import Label
    from trainperf.runfile import Frame

Lines = tuple[int, int]  # first and last


@dataclass(frozen=True, slots=True)
class BatchWork:
    """Native code in forward of functions that come to their first call of a layer on a later line, outside of any
    module but such as only shape a batch."""

    calls: Mapping[Function, Lines]  # of layers
    updates: Mapping[Function, int]  # the last line of its backward and its optimizer's step
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
        found = self._caller(label)
        return found is not None and found[0].line < found[1][0]

    def is_after_update(self, label: Label) -> bool:
        """Whether a function that calls the model has made its update, on an earlier line: no loss comes after it."""
        found = None if _is_trainings(label) else self._caller(label)
        return found is not None and found[1][1] <= self._update(found[0]) < found[0].line

    def is_between(self, label: Label) -> bool:
        """Whether it is on a line between its calls of layers."""
        found = self._caller(label)
        return found is not None and found[1][0] < found[0].line < found[1][1]

    def is_between_layers(self, label: Label) -> bool:
        """Likewise, of a function that makes no update on a later line: it may be a model, and is not the loop. What is
        computed once more in backward lies within its layers."""
        found = self._caller(label)
        return found is not None and found[1][1] >= self._update(found[0]) and self.is_between(label)

    def is_after(self, label: Label) -> bool:
        """Whether its last call of one is on an earlier line, and its update is not."""
        found = self._caller(label)
        return found is not None and found[0].line > found[1][1] and not self.is_after_update(label)

    def may_be_the_model(self, label: Label) -> bool:
        return self.is_before(label) and label.function in self.of_model

    def _caller(self, label: Label) -> tuple[Frame, Lines] | None:
        return None if label.in_module else _innermost(label, self.calls)

    def _update(self, frame: Frame) -> int:
        return self.updates.get(function_of(frame), -1)


def batch_work(facts: Facts) -> BatchWork:
    """A function may be a part of the model where backward is as long as if it went through that too, unless the model
    was seen to be given data: no gradient goes to what comes before it."""
    native = facts.samples(phases=["forward"], states=["native"])
    calls, modules = _calls(facts), facts.module_calls
    model_ns = 0
    ns_of: Counter[Function] = Counter()
    functional: Counter[Function] = Counter()  # of these, with PyTorch's functions of layers
    given_data: dict[Function, bool | None] = {}  # the modules that are called later
    for d in native:
        label = facts.labelled(d)
        if label.in_module:
            model_ns += 0 if modules.shapes_batch(label.stack) else d.ns
            continue
        found = _innermost(label, calls)
        if found is None or found[0].line >= found[1][0] or _is_trainings(label):
            continue
        ns_of[label.function] += d.ns
        given_data[label.function] = modules.is_given_data(function_of(found[0]))
        if any(map(is_functional, label.of_training)):
            functional[label.function] += d.ns
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
    return BatchWork(calls, _updates(facts), frozenset(ns_of) - of_model, of_model, int(unsure_ns * each), modules)


def _calls(facts: Facts) -> dict[Function, Lines]:
    """Of the user's functions that a layer was seen to be called through."""
    calls: dict[Function, Lines] = {}
    for label in map(facts.labelled, facts.samples(phases=["forward"])):
        if not label.runs_layer or facts.module_calls.shapes_batch(label.stack):
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


def _innermost(label: Label, calls: Mapping[Function, Lines]) -> tuple[Frame, Lines] | None:
    """The innermost of the functions through which layers are called, and the lines of its calls."""
    pairs = zip(label.users, label.functions, strict=True)
    return next(((f, calls[function]) for f, function in pairs if function in calls), None)


def _is_trainings(label: Label) -> bool:
    """PyTorch's functions of layers are asked of a batch as well: a morphology of masks is a max_pool2d."""
    return label.in_autograd or not all(map(is_functional, label.of_training))
