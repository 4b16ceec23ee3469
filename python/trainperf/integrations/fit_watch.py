"""A watch that a callback begins and ends: it prints if asked to, and its file lies where the training's do."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from trainperf.settings import stamp
from trainperf.watch import Watch

if TYPE_CHECKING:
    from trainperf.settings import Settings


class FitWatch(Watch):
    """The verdict comes by tell(), when the framework's own last lines are out."""

    _telling = False
    end_if_over: Callable[[], None] | None = None  # set by who began it

    def go_without(self, why: str) -> None:
        """After an __enter__ that failed: runs as without the core, and says why."""
        self._why_off, self._state = why, "running"

    def end(self, error: BaseException | None, *, told: bool = True) -> None:
        """Not `told`: the training ended without a word, and nobody knows why."""
        if error is None and not told:
            self._stop("exception", None)
        else:
            self.__exit__(None if error is None else type(error), error, None)

    def give_way(self) -> None:
        """To another training: one that ended without a word is none any more."""
        if self.end_if_over is not None:
            self.end_if_over()

    def discard(self) -> None:
        self.leave_no_run("there was no training")

    def tell(self) -> None:
        if not self._telling:
            self._telling = True
            self._show()

    def _show(self, *, report_follows: bool = False) -> None:
        if self._telling:
            super()._show(report_follows=report_follows)

    def _at_exit(self) -> None:
        self._telling = True
        super()._at_exit()


def placed(settings: Settings, root: str, *, rank: int, world_size: int, fit: int) -> Settings:
    """`settings` with where the run file of this process goes.

    Named: there, and the second fit's beside it with a number. Else below `root`, the training's own folder; the ranks
    of a job together in a folder that each of them can name by itself.
    """
    settings = dataclasses.replace(
        settings, rank=rank if world_size > 1 else settings.rank, world_size=max(world_size, settings.world_size)
    )
    if settings.disabled:
        return settings
    if settings.path:
        stem, extension = os.path.splitext(settings.path)
        return settings if fit == 1 else dataclasses.replace(settings, path=f"{stem}-{fit}{extension}")
    folder = settings.directory or (os.path.join(root, "trainperf") if root and "://" not in root else "")
    if not folder or settings.world_size == 1:
        return dataclasses.replace(settings, directory=folder)
    job = dataclasses.replace(settings, directory=folder).job_name()
    for name in (job, f"{settings.stem()}-{stamp()}"):  # the second: a folder never has two jobs' ranks
        path = os.path.join(folder, name, "run.tpr")
        here = dataclasses.replace(settings, path=path, directory=os.path.dirname(path))
        if not os.path.exists(here.run_path()):
            break
    return here
