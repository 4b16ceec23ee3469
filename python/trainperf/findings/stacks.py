"""What a stack of frames does: a label, worked out once for each distinct stack of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from trainperf.findings import frames
from trainperf.findings.frames import NO_FUNCTION, FrameLike, Function

if TYPE_CHECKING:
    from trainperf.runfile import Frame


@dataclass(frozen=True)
class Label:
    """Of one stack, innermost frame first."""

    stack: tuple[Frame, ...]

    @cached_property
    def users(self) -> tuple[Frame, ...]:
        return tuple(f for f in self.stack if frames.is_users(f, self.stack))

    @property
    def at(self) -> Frame | None:
        """The innermost frame of the user's."""
        return self.users[0] if self.users else None

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """Those of the user's, innermost first."""
        return tuple(map(frames.function_of, self.users))

    @property
    def function(self) -> Function:
        return self.functions[0] if self.functions else NO_FUNCTION

    @cached_property
    def below(self) -> Sequence[FrameLike]:
        """What the innermost function of the user's calls; all where there is none."""
        return frames.below_users(self.stack)

    @cached_property
    def asks_for(self) -> str:
        """What the user's code asks a library for that is no training: "text" of a tensor, "metrics", an "average" of
        the weights; or ""."""
        if frames.makes_text(self.stack):
            return "text"
        if frames.of_metric(self.stack):
            return "metrics"
        return "average" if frames.of_average(self.stack) else ""

    @cached_property
    def in_module(self) -> bool:
        return frames.in_module(self.stack)

    @cached_property
    def in_autograd(self) -> bool:
        return frames.in_autograd_function(self.stack)

    @property
    def in_model(self) -> bool:
        """A function with a backward of its own is a part of it."""
        return self.in_module or self.in_autograd

    @cached_property
    def runs_layer(self) -> bool:
        return frames.runs_layer(self.stack)

    @cached_property
    def is_the_loops(self) -> bool:
        return frames.is_the_loops(self.stack)

    @cached_property
    def of_training(self) -> tuple[FrameLike, ...]:
        """What the user's function calls of PyTorch's for training: clipping gradients, a loss, an optimizer."""
        return tuple(f for f in self.below if frames.is_trainings_own(f))

    @property
    def beside_training(self) -> bool:
        """It is what the user's function calls that counts: Lightning calls all of a training_step within the
        optimizer's step."""
        return bool(self.asks_for) or not (self.in_model or self.of_training)

    @property
    def outside_training(self) -> bool:
        """Likewise between the phases: no backward goes through PyTorch's functions of layers there."""
        return bool(self.asks_for) or not (self.in_model or not all(map(frames.is_functional, self.of_training)))
