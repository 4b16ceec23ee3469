"""The launch that this process belongs to: what all ranks of a job, and only they, know without asking one another."""

from __future__ import annotations

import os
from collections.abc import Mapping

# A restart of the same job is another launch. MASTER_PORT: Lightning and many scripts take a free one each time.
_VARIABLES = (
    *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
    *("PMIX_NAMESPACE", "PBS_JOBID", "LSB_JOBID", "MASTER_ADDR", "MASTER_PORT"),
)
_THIS_HOST = ("localhost", "127.0.0.1", "::1")


def launch_id(rank: int, environ: Mapping[str, str] | None = None) -> str:
    """Eight hexadecimal digits. `rank`: this process'."""
    import zlib

    environ = os.environ if environ is None else environ
    facts = [f"{v}={environ[v]}" for v in _VARIABLES if environ.get(v, "none") != "none"]
    if _on_one_host(environ) and _parent_launched(environ):
        facts.append(_parent(rank))  # torchrun's default run id is "none", and its port always the same
    return f"{zlib.crc32('|'.join(facts).encode()):08x}"


def _on_one_host(environ: Mapping[str, str]) -> bool:
    """Whether all ranks certainly are: on several each has a launcher of its own."""
    world = environ.get("WORLD_SIZE", "")
    return (world != "" and world == environ.get("LOCAL_WORLD_SIZE")) or environ.get("MASTER_ADDR") in _THIS_HOST


def _parent_launched(environ: Mapping[str, str]) -> bool:
    """Whether all ranks are children of this one's parent. Those of Lightning's "ddp" are children of rank 0."""
    if "TORCHELASTIC_RUN_ID" in environ:
        return True
    import multiprocessing

    if multiprocessing.parent_process() is not None:
        return True
    return "RANK" in environ and _stat(os.getppid())[0].startswith(("python", "deepspeed", "accelerate"))


def _parent(rank: int) -> str:
    """Who it is, and how many processes it had made before it made the ranks: a program can spawn them twice."""
    import multiprocessing

    number = os.getppid()
    made = getattr(multiprocessing.current_process(), "_identity", ())
    before = f" after {made[-1] - rank}" if made else ""
    return f"{number} started {_stat(number)[1]}{before}"


def _stat(process: int) -> tuple[str, str]:
    """Its name, and when it started; empty where that cannot be read (not Linux)."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            head, _, rest = file.read().rpartition(")")
    except OSError:
        return "", ""
    return head.partition("(")[2], rest.split()[19]
