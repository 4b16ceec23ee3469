"""The settings of a watch: argument > environment > default, read and checked here and nowhere else."""

from __future__ import annotations

import logging
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainperf.log import log
from trainperf.watching.closed_steps import FLAGS
from trainperf.watching.options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack

GIL_TIERS = ("auto", "exact", "procfs", "busy-only", "off")
CUDA_MODES = ("auto", "full", "off")
ENVIRONMENT = ("TRAINPERF_DISABLE", "TRAINPERF_DIR", "TRAINPERF_LOG_LEVEL", "TRAINPERF_CUPTI_PATH")

_LEVELS = ("debug", "info", "warning", "error", "critical")
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")
_MAX_SAMPLER_HZ = 2000.0
_NEVER_NONE = ("gil", "cuda", "sampler_hz", "budget")
_named: dict[tuple[str, str, int | None], int] = {}  # how often a job was, in this process


@dataclass(frozen=True, slots=True)
class Settings:
    """What one watch was asked for. Made by resolve(); every value has been checked."""

    path: str = ""  # "": a private temporary file, or a new one in `directory`
    name: str = ""
    overwrite: bool = False
    verbose: bool = True  # print the verdict to stderr at the end
    disabled: str = ""  # why nothing is to be watched
    gil: str = "auto"
    cuda: str = "auto"
    cupti_path: str = ""  # "": it is looked for
    sampler_hz: float = 60.0
    budget: float = 0.01
    flag_shares: Mapping[str, float] = field(default_factory=dict)
    on_flag: Callable[[Any], Any] | None = None
    directory: str = ""
    log_level: int | None = None  # None: left as it is
    rank: int | None = None  # None: not a distributed job
    world_size: int = 1

    @property
    def several_ranks(self) -> bool:
        return self.rank is not None and self.world_size > 1

    def run_path(self) -> str:
        """Where the run file goes. With several ranks each has its own file: a.tpr becomes a.rank3.tpr.

        In a directory each call gives another name.
        """
        if self.path or not self.directory:
            return self._of_rank(self.path)
        if self.several_ranks:  # one that all of them can make without asking one another, or looking at what is there
            path = self._of_rank(os.path.join(self.directory, f"{self.job_name()}.tpr"))
            if not os.path.exists(path):
                return path
        return self._of_rank(os.path.join(self.directory, f"{self.stem()}-{stamp()}.tpr"))

    def _of_rank(self, path: str) -> str:
        root, extension = os.path.splitext(path)
        return f"{root}.rank{self.rank}{extension}" if path and self.several_ranks else path

    def stem(self) -> str:
        script = os.path.splitext(os.path.basename(sys.argv[0]))[0] if sys.argv else ""
        return file_stem(self.name or script.strip("-") or "run")

    def job_name(self) -> str:
        """The same on each rank of a job, another for the next job, and for this one's next watch in that directory."""
        from trainperf.launch import launch_id

        name = f"{self.stem()}-{launch_id(self.rank or 0)}"
        key = (os.path.abspath(self.directory), name, self.rank)
        number = _named[key] = _named.get(key, 0) + 1
        return name if number == 1 else f"{name}-{number}"


def stamp() -> str:
    """For a name that no other process makes."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{time.monotonic_ns() % 10**6:06d}"


def file_stem(name: str) -> str:
    """As much of a run's name as may stand in a file's."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)


def resolve(
    path: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    **options: Unpack[Options],
) -> Settings:
    """Checks everything that can be checked before the loop starts.

    Raises ValueError (or TypeError, for a value of the wrong kind) whose text names the fix.
    """
    environ = os.environ if environ is None else environ
    disabled = "TRAINPERF_DISABLE is set" if _flag(environ, "TRAINPERF_DISABLE") else ""
    if disabled:
        environ = {}  # whatever else is set in it is of no account, and no reason to stop a program
    _warn_of_unknown(environ)
    level = _log_level(environ)
    rank, world_size = _rank(environ)
    file, directory = _target(path, environ)
    verbose = options.get("verbose")
    return Settings(
        path=file,
        directory=directory,
        verbose=(level is None or level <= logging.WARNING) if verbose is None else bool(verbose),
        disabled=disabled,
        cupti_path=_cupti_path(environ),
        log_level=level,
        rank=rank,
        world_size=world_size,
        **_checked(options),
    )


def _checked(options: Options) -> dict[str, Any]:
    """The settings that are options just as they are given; those that are not given are left to their defaults."""
    known = tuple(Options.__annotations__)
    for option in options:
        if option not in known:
            raise TypeError(f"{option!r} is not an option of watch(){_nearest(option, known)}: use {', '.join(known)}")
    given: dict[str, Any] = {k: v for k, v in options.items() if k != "verbose" and (v is not None or k in _NEVER_NONE)}
    if "flag_shares" in given:
        given["flag_shares"] = _shares(given["flag_shares"])
    for option, values, what in (("gil", GIL_TIERS, "tier"), ("cuda", CUDA_MODES, "mode")):
        value = given.get(option, "auto")
        if value not in values:
            last = " or " if len(values) == 2 else ", "
            raise ValueError(f"{option}={value!r} is not a {what}{_nearest(value, values)}: use {last.join(values)}")
    if "sampler_hz" in given:
        _check_number("sampler_hz", given["sampler_hz"], 0.0, _MAX_SAMPLER_HZ, "use 60, or 0 for no sampler")
        given["sampler_hz"] = float(given["sampler_hz"])
    if "budget" in given:
        _check_number("budget", given["budget"], 0.0, 1.0, "0.01 is one percent of the run's time", open_low=True)
        given["budget"] = float(given["budget"])
    _check_on_flag(given.get("on_flag"))
    name = given.get("name", "")
    if not isinstance(name, str):
        raise TypeError(f"name={name!r} must be a str")
    return given | {"name": _utf8("name", name), "overwrite": bool(given.get("overwrite"))}


def _shares(given: object) -> dict[str, float]:
    if not isinstance(given, Mapping):
        raise TypeError(f'flag_shares={given!r} must be a dict, such as {{"data_starved": 0.1}}')
    for flag, share in given.items():
        if flag not in FLAGS:
            raise ValueError(f"flag_shares: {flag!r} is not a flag{_nearest(flag, FLAGS)}: use {', '.join(FLAGS)}")
        _check_number(f"flag_shares[{flag!r}]", share, 0.0, 1.0, "0.1 is ten percent of a step", open_low=True)
    return dict(given)


def _target(path: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> tuple[str, str]:
    """The run file that was asked for, or the folder in which it is to be made."""
    if path is None:
        return "", _directory(environ)
    file = _path(path)
    if not file.endswith(os.sep) and not os.path.isdir(file):
        return file, ""
    if os.path.exists(file.rstrip(os.sep)) and not os.path.isdir(file):
        raise ValueError(f"{file} is not a folder: drop the trailing {os.sep}, or name another")
    return "", file


def _path(path: str | os.PathLike[str]) -> str:
    if not isinstance(path, (str, bytes, os.PathLike)):
        fix = "a decorator is written @trainperf.watch(), with its parentheses"
        if not callable(path):
            fix = "give a file name, or None for a private temporary file"
        raise TypeError(f"path={path!r} must be a str or a Path: {fix}")
    text = os.fsdecode(path)
    if not text:
        raise ValueError("path is empty: give a file name, or None for a private temporary file")
    if "\0" in text:
        raise ValueError("path has a NUL character in it: give a plain file name")
    return _utf8("path", text)


def _utf8(what: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what}={text!r} cannot be written as UTF-8: give another") from None
    return text


def _check_number(what: str, value: object, low: float, high: float, hint: str, *, open_low: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{what}={value!r} must be a number: {hint}")
    if not math.isfinite(value) or value > high or value < low or (open_low and value == low):
        bounds = f"{'above ' if open_low else ''}{low:g} .. {high:g}"
        raise ValueError(f"{what}={value!r} is not in {bounds}: {hint}")


def _check_on_flag(on_flag: object) -> None:
    if on_flag is None:
        return
    if not callable(on_flag):
        raise TypeError(f"on_flag={on_flag!r} must be callable: give a function of one argument, the step")
    import inspect

    if inspect.iscoroutinefunction(on_flag):
        raise TypeError(f"on_flag={on_flag!r} is a coroutine function, which is never awaited: give a plain function")


def _flag(environ: Mapping[str, str], variable: str) -> bool:
    text = environ.get(variable, "").strip().lower()
    if text not in _TRUE + _FALSE:
        raise ValueError(f"{variable}={text!r} is neither on nor off: set it to 1 or 0, or unset it")
    return text in _TRUE


def _log_level(environ: Mapping[str, str]) -> int | None:
    text = environ.get("TRAINPERF_LOG_LEVEL", "").strip().lower()
    if not text:
        return None
    if text not in _LEVELS:
        nearest = _nearest(text, _LEVELS)
        raise ValueError(f"TRAINPERF_LOG_LEVEL={text!r} is not a level{nearest}: use {', '.join(_LEVELS)}")
    return int(getattr(logging, text.upper()))


def _directory(environ: Mapping[str, str]) -> str:
    text = environ.get("TRAINPERF_DIR", "")
    if text and os.path.exists(text) and not os.path.isdir(text):
        raise ValueError(f"TRAINPERF_DIR={text!r} is not a folder: set it to one, which is made if it is missing")
    return _utf8("TRAINPERF_DIR", text)


def _cupti_path(environ: Mapping[str, str]) -> str:
    text = environ.get("TRAINPERF_CUPTI_PATH", "")
    if text and not os.path.isfile(text):
        raise ValueError(f"TRAINPERF_CUPTI_PATH={text!r} is not a file: set it to a libcupti.so.12 or .13, or unset it")
    return text


def _rank(environ: Mapping[str, str]) -> tuple[int | None, int]:
    """As torchrun, accelerate and the like set them; ours is not the place to complain of another's variables."""
    try:
        return int(environ["RANK"]), int(environ.get("WORLD_SIZE", "1"))
    except (KeyError, ValueError):
        return None, 1


def _warn_of_unknown(environ: Mapping[str, str]) -> None:
    """Not an error: another version of trainperf may know the variable."""
    for variable in environ:
        if variable.startswith("TRAINPERF_") and variable not in ENVIRONMENT:
            log.warning("%s is set, but trainperf does not know it%s", variable, _nearest(variable, ENVIRONMENT))


def _nearest(word: object, words: tuple[str, ...]) -> str:
    import difflib  # for a message only: its import would be a tenth of ours

    found = difflib.get_close_matches(str(word), words, n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""
