"""What PyTorch's caching allocator holds of each GPU's memory, over the run."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from trainperf.hooks.context import Context

_EVERY_S = 1.0
_EACH_BACKWARD = 5  # the first readings: in the first steps memory is taken
_ALL_DEVICES = 10  # readings, between those that look for GPUs in use from now on
_MOST_DEVICES, _MOST_READINGS, _MOST_RISES = 8, 64, 16
_WRITE_EACH = 5  # readings
_RISE = 1.01  # of a peak


class DeviceMemoryHook:
    """Reads the allocator's counts at the end of the first backwards, then once a second, and when the watch ends.
    Never initialises CUDA, asks no GPU, and resets no peak."""

    name = "device_memory"
    needs = "torch"

    def __init__(self) -> None:
        self._context: Context | None = None
        self._pid = os.getpid()
        self._devices: dict[int, _Device] = {}
        self._looks = self._own_ns = 0
        self._kept_each = 1  # of so many readings, once they are one a second, the first is kept

    def install(self, context: Context) -> None:
        self._context = context
        context.ticker.add(self.name, self._tick)

    def remove(self) -> None:
        """After a last reading: of a run that ran out of memory it is what there was."""
        context, self._context = self._context, None
        if context is None:
            return
        context.ticker.discard(self.name)
        if os.getpid() != self._pid:
            return
        try:
            if self._look(context):
                self._write(context)
        except Exception as error:
            context.fail(self.name, error)

    def _tick(self) -> float:
        context, began = self._context, time.perf_counter_ns()
        if context is None or not self._look(context):
            return _EVERY_S
        if self._looks % _WRITE_EACH == 0:
            self._write(context)
        self._own_ns += time.perf_counter_ns() - began
        context.session.set_overhead(self.name, self._own_ns)
        return 0.0 if self._looks < _EACH_BACKWARD else _EVERY_S

    def _look(self, context: Context) -> bool:
        """False: CUDA is not in use."""
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if cuda is None or not cuda.is_initialized():
            return False
        keep = self._looks >= _EACH_BACKWARD - 1 and self._looks % self._kept_each == 0
        look_for_all = self._looks < _EACH_BACKWARD or self._looks % _ALL_DEVICES == 0
        for id in range(min(_MOST_DEVICES, cuda.device_count())) if look_for_all else list(self._devices):
            stats = cuda.memory.memory_stats_as_nested_dict(id)
            if stats and (id in self._devices or stats["reserved_bytes"]["all"]["peak"]):
                if id not in self._devices:
                    self._devices[id] = _Device(int(cuda.get_device_properties(id).total_memory))
                device = self._devices[id]
                device.read(time.monotonic_ns(), stats, keep=keep)
        self._looks += 1
        if any(len(device.readings) > _MOST_READINGS for device in self._devices.values()):
            self._kept_each *= 2
            for device in self._devices.values():
                del device.readings[1::2]
        context.device_bytes = sum(device.last[1] for device in self._devices.values())
        return True

    def _write(self, context: Context) -> None:
        told = {str(id): device.told() for id, device in self._devices.items()}
        context.session.set_meta("device_memory", json.dumps(told))


class _Device:
    def __init__(self, total: int) -> None:
        self._total = total
        self.readings: list[list[int]] = []
        self.last: list[int] = [0, 0]
        self._peaks = [0, 0]  # allocated, reserved
        self._noted = [0, 0]  # likewise, as the last rise left them
        self._rises: list[list[int]] = []

    def read(self, now_ns: int, stats: Mapping[str, Any], *, keep: bool) -> None:
        peaks = [int(stats[kind]["all"]["peak"]) for kind in ("allocated_bytes", "reserved_bytes")]
        self._peaks = list(map(max, self._peaks, peaks))  # the program may reset its own
        if any(peak > _RISE * noted for peak, noted in zip(self._peaks, self._noted, strict=True)):
            rose = [peak - noted for peak, noted in zip(self._peaks, self._noted, strict=True)]
            self._rises = [*self._rises, [self.last[0], now_ns, *rose]][-_MOST_RISES:]
            self._noted = self._peaks
        kinds = ("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "segment")
        held = [int(stats[kind]["all"]["current"]) for kind in kinds]
        self.last = [now_ns, *held, int(stats["num_alloc_retries"]), int(stats["num_ooms"])]
        if keep:
            self.readings.append(self.last)

    def told(self) -> dict[str, Any]:
        last = [] if self.readings and self.readings[-1] is self.last else [self.last]
        return {"total": self._total, "peaks": self._peaks, "rises": self._rises, "readings": [*self.readings, *last]}
