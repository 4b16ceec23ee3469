"""What the looks at calls of modules say of the lines that call them: whether a backward can go through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainperf.findings.frames import calls_module, function_of, is_users, user_frame
from trainperf.runfile import Frame
from trainperf.runfile.schema import json_object

if TYPE_CHECKING:
    from trainperf.findings.frames import Function
    from trainperf.runfile import RunReader


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

    def __init__(self, run: RunReader) -> None:
        described = json_object(run.meta.get("module_calls", "{}")).get("calls")
        calls = (_call(one) for one in (described if isinstance(described, list) else ()) if isinstance(one, dict))
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
        parameters=_count(described.get("parameters")),
        trained=_count(described.get("trained")),
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


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
