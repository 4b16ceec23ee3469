"""What the callbacks of all frameworks have in common: their options, and what the last training's watch found."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from trainperf.errors import TrainperfError
from trainperf.integrations.fit_watch import FitWatch, placed
from trainperf.log import log
from trainperf.settings import resolve
from trainperf.watch import Watch
from trainperf.watching import process

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from trainperf.findings.model import Finding
    from trainperf.opened import OpenedRun
    from trainperf.watching.options import Options


class FitCallback:
    """The base of callbacks that watch one training after the other."""

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        log_metrics: bool = True,
        **options: Unpack[Options],
    ) -> None:
        self._settings = resolve(path, **options)
        self._log_metrics = bool(log_metrics)
        self._fits = 0
        self._watch: Watch | None = None  # the last one's

    def _begin_watch(self, root: str, *, rank: int, world_size: int) -> tuple[Watch, FitWatch | None]:
        """The training's watch, and again if it is ours: the program's own goes on, and prints the verdict itself."""
        running = process.current()
        if isinstance(running, FitWatch):
            running.give_way()
            running = process.current()
        if isinstance(running, Watch) and not running.gives_way:
            self._watch = running
            return running, None
        watch = FitWatch(placed(self._settings, root, rank=rank, world_size=world_size, fit=self._fits + 1))
        try:
            watch.__enter__()
        except OSError as error:
            if world_size == 1:
                raise  # nothing has been trained yet, and nobody waits for us
            log.error("this rank trains unwatched, its run file cannot be made: %s", error)
            watch.go_without(str(error))
        self._fits += 1
        self._watch = watch
        return watch, watch

    # What it found.

    @property
    def watch(self) -> Watch:
        """The watch of the last training. TrainperfError before the first, and in a process that trained in others."""
        if self._watch is None:
            raise TrainperfError(
                "there is no run: nothing was trained in this process (spawned ranks write their own files)"
            )
        return self._watch

    @property
    def path(self) -> str:
        """The run file of the last training; "" when there is none in this process."""
        return self._watch.path if self._watch is not None else ""

    @property
    def run(self) -> OpenedRun:
        return self.watch.run

    @property
    def findings(self) -> list[Finding]:
        return self.watch.findings

    def summary(self) -> str:
        return self.watch.summary()

    # What checkpoints and other processes get.

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_fit": None, "_watch": None}
