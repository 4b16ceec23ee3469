"""Facts about the process that a run keeps: what ran, where, with what."""

from __future__ import annotations

import dataclasses
import datetime
import dis
import json
import os
import platform
import socket
import sys
import types
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from trainperf.child_cpu import child_cpu_ns
from trainperf.container import cpu_quota, memory_limit
from trainperf.launch import launch_id
from trainperf.masking import masked
from trainperf.process_settings import process_settings, zeroing_lines
from trainperf.settings import Settings


def process_meta(settings: Settings, version: str) -> Mapping[str, str]:
    """`version`: trainperf's."""
    meta = {
        "trainperf": version,
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds"),
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "cpus": str(_cpus()),
        "argv": json.dumps(masked(sys.argv)),
        "command": json.dumps(masked(_command())),
        "cwd": _cwd(),
        "home": os.path.expanduser("~"),  # which is ~ in what is made to be sent
        "pid": str(os.getpid()),
        "feeds_device": "0",  # until CUDA is seen
    }
    if settings.name:
        meta["name"] = settings.name
    quota, memory = cpu_quota(), memory_limit()
    if quota is not None:
        meta["cpu_quota"] = f"{quota:g}"
    if memory is not None:
        meta["memory_limit"] = str(memory)
    for variable in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        value = os.environ.get(variable, "")
        if value.isdigit():
            meta[variable.lower()] = value
    if settings.rank is not None:  # a framework may know what the environment does not say
        meta |= {"rank": str(settings.rank), "world_size": str(settings.world_size)}
    if settings.several_ranks:
        meta["launch"] = launch_id(settings.rank or 0)
    return {**meta, **torch_meta()}


def _command() -> list[str]:
    """As it was started, to be started so again: the interpreter by name, what lies beside it too (`trainperf run`)."""
    words = [word for word in sys.orig_argv[1:] if word != "-u"]
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return ["torchrun", "...", *words]
    if words and os.path.isabs(words[0]) and os.path.dirname(words[0]) == os.path.dirname(sys.executable):
        return [os.path.basename(words[0]), *words[1:]]
    return ["python", *words]


def torch_meta() -> Mapping[str, str]:
    """Of torch, if it has been imported; empty when not."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_num_threads"):
        return {}
    meta = {"torch": str(torch.__version__), "torch_threads": str(torch.get_num_threads())}
    call = getattr(getattr(getattr(torch, "nn", None), "Module", None), "_call_impl", None)
    if isinstance(call, types.FunctionType):
        meta["forward_lines"] = json.dumps({call.__code__.co_filename: _forward_lines(call.__code__)})
        meta["zeroing_lines"] = json.dumps(zeroing_lines())
    if torch.cuda.is_initialized():
        meta["feeds_device"] = "1"
    if process_group():
        meta["process_group"] = "1"
    return meta


@lru_cache(maxsize=4)  # a watch asks at its begin and at its end, and it takes milliseconds
def _forward_lines(call: types.CodeType) -> Mapping[str, list[int]]:
    """By function: the lines from which a module's call calls its forward. What it calls from others are hooks."""
    found: dict[str, list[int]] = {}
    codes = [call]
    for code in codes:  # it grows
        codes += [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]
        line = 0
        for instruction in dis.get_instructions(code):
            position = getattr(instruction, "positions", None)
            line = (position.lineno if position is not None else instruction.starts_line) or line
            loaded = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
            if "forward_call" in loaded and instruction.opname.startswith("LOAD_"):
                found.setdefault(getattr(code, "co_qualname", code.co_name), []).append(line)
    return found


def process_group() -> bool:
    """Whether torch.distributed has a process group just now. Never imports it."""
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_available() and bool(distributed.is_initialized())


def of_group(settings: Settings) -> Settings:
    """With the rank of torch.distributed, where no variable has one: spawned ranks, and those of srun and mpirun."""
    if settings.rank is not None or not process_group():
        return settings
    distributed = sys.modules["torch.distributed"]
    return dataclasses.replace(settings, rank=distributed.get_rank(), world_size=distributed.get_world_size())


def _cpus() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def _cwd() -> str:
    try:
        return os.getcwd().encode("utf-8", "replace").decode()  # the run file has no other names
    except OSError:  # removed under us
        return ""


def describe_process(session: Any, settings: Settings, version: str) -> Mapping[str, str]:
    meta = process_meta(settings, version)
    session.set_meta("process_settings", json.dumps(process_settings()))
    session.set_meta("children_cpu_before_ns", str(child_cpu_ns()))
    for key, value in meta.items():
        session.set_meta(key, value)
    return meta


def describe_end(session: Any) -> None:
    """What is known when the watch ends: of torch, and of a notebook's cells."""
    meta = torch_meta()
    session.set_meta("process_settings", json.dumps(process_settings()))
    session.set_meta("children_cpu_after_ns", str(child_cpu_ns()))
    for key, value in meta.items():
        session.set_meta(key, value)
    if not meta:
        session.set_tier("torch_hooks", "off", "torch was not imported while the watch ran")
    else:
        from trainperf.source_marks import source_marks  # imports ast: not as the watch begins

        session.set_meta("source_marks", source_marks())
    describe_cells(session)


def describe_cells(session: Any) -> None:
    """How a notebook numbers its cells so far."""
    if "IPython" in sys.modules:
        from trainperf.notebook import cells

        session.set_meta("cells", cells.names())
