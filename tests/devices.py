"""Runs made by hand that train on a device.

file = DeviceFile(path).steps(100, launch=9.0, gil_wait=4.0)
file.gpu({"gil_wait": 3.0})                        # ms of each step so far; the rest of it the device is busy
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runfiles import RunFile
from runfiles_devices import device_step
from verdicts import LINUX, Make

Idle = Mapping[str, float] | Callable[[int], Mapping[str, float]]


class DeviceFile(RunFile):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, feeds_device="1", **kwargs)
        self.tier("cuda", "cupti-full")

    def gpu(
        self, idle: Idle, *, lead_us: float = 500, queue: int = 20, lost: int = 0, info: Any = None, **each: Any
    ) -> DeviceFile:
        """What device 0 did in the steps so far. `idle`: ms by cause, or that of a step. `each`: other columns of
        device_step, per step, or functions of the step. `lost`: so many steps lack records."""
        self.device(0, "NVIDIA H200", lead_us=lead_us, **(info or {}))
        for step, (_, facts) in enumerate(self._steps):
            causes = idle(step) if callable(idle) else idle
            row = {"kernels": 100, "launches": 100} | {k: v(step) if callable(v) else v for k, v in each.items()}
            wall = facts["wall_ns"] / 1e6
            busy = max(0.0, wall - sum(causes.values()) - 2e-5)  # what rounding the causes to nanoseconds may take
            row |= {"busy": busy, "idle": causes, "queue_depth": queue}
            row |= {"kernel": row["busy"], "incomplete": int(step < lost)}
            self._device_steps[step][0] = device_step(facts["wall_ns"], row)
        return self


def maker(path: Path) -> Make:
    """What makes the run file: on Linux, with 8 CPUs, unless its arguments say otherwise."""

    def make(**meta: str) -> DeviceFile:
        return DeviceFile(path, **({"cwd": "/home/me/job", "platform": LINUX, "cpus": "8"} | meta))

    return make
