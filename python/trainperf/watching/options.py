"""The options of watch(), which start() and the callbacks of frameworks take too. Their defaults are in settings.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from trainperf.watching.closed_steps import ClosedStep


class Options(TypedDict, total=False):
    name: str | None
    overwrite: bool
    verbose: bool | None
    gil: str
    cuda: str
    sampler_hz: float
    budget: float
    flag_shares: Mapping[str, float] | None
    on_flag: Callable[[ClosedStep], Any] | None
