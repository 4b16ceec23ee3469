"""The part of RunFile that is about devices."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainperf.runfile.schema import CAUSES, DEVICE_STEP_COLUMNS

if TYPE_CHECKING:
    from typing_extensions import Self


UNTRACED = {"untraced": True}  # a device in a step in which it was not traced


def _ns(ms: float) -> int:
    return round(ms * 1e6)


class DeviceParts:
    _meta: dict[str, str]
    _rows: defaultdict[str, list[dict[str, Any]]]
    _steps: list[tuple[dict[tuple[str, str], int], dict[str, int]]]
    _device_steps: defaultdict[int, dict[int, dict[str, int]]]
    _merge: int
    step_thread: int

    def _add(self, table: str, **row: Any) -> Self:
        raise NotImplementedError

    # Devices. A run that has one feeds it: native time is launch.

    def device(self, id: int = 0, name: str = "NVIDIA A100", *, lead_us: float = 0, **description: Any) -> int:
        self._meta["feeds_device"] = "1"
        self._add("device", id=id, name=name, description=json.dumps(description), lead_ns_median=round(lead_us * 1000))
        return id

    def kernel(
        self,
        name: str,
        ms: float,
        *,
        device: int = 0,
        kind: str = "unknown",
        eligible: bool = False,
        count: int = 1,
        longest: float | None = None,
        tiny: int = 0,
        steps: int = 1,
        folded: int = 0,
    ) -> Self:
        """`ms`, `count` and `tiny` of the whole run."""
        return self._add(
            "device_kernel",
            device=device,
            position=len(self._rows["device_kernel"]),
            name=name,
            kind=kind,
            eligible=int(eligible),
            count=count,
            ns=_ns(ms),
            max_ns=_ns(ms / max(1, count) if longest is None else longest),
            tiny=tiny,
            steps=steps,
            folded=folded,
        )

    def copy(
        self,
        direction: str,
        ms: float,
        *,
        device: int = 0,
        src: str = "unknown",
        dst: str = "unknown",
        count: int = 1,
        bytes: int = 0,
        exposed: float | None = None,
        small: int = 0,
        steps: int = 1,
    ) -> Self:
        """`ms`, `count`, `bytes` of the whole run. Exposed in full by default."""
        return self._add(
            "device_copy",
            device=device,
            direction=direction,
            src=src,
            dst=dst,
            count=count,
            bytes=bytes,
            ns=_ns(ms),
            exposed_ns=_ns(ms if exposed is None else exposed),
            small=small,
            steps=steps,
        )

    def call(
        self,
        call: str,
        ms: float,
        *,
        count: int = 1,
        failed: int = 0,
        longest: float | None = None,
        steps: int = 1,
        thread: int | None = None,
    ) -> Self:
        """A host call ("stream_sync", "alloc" ...), on the step thread by default; `ms` of the whole run."""
        return self._add(
            "call",
            thread=self.step_thread if thread is None else thread,
            call=call,
            count=count,
            failed=failed,
            ns=_ns(ms),
            max_ns=_ns(ms / max(1, count) if longest is None else longest),
            steps=steps,
        )

    def keep_device(self, step: int, device: int, *segments: tuple[str, str, float]) -> Self:
        """The kept step keeps this timeline of the device: ("kernel", its name, ms), ("idle", its cause, ms)."""
        at = self._steps[step][1]["start_ns"]
        for seq, (what, text, ms) in enumerate(segments):
            idle = what == "idle"
            self._add(
                "device_segment",
                step=step,
                device=device,
                seq=seq,
                start_ns=at,
                end_ns=at + _ns(ms),
                what=what,
                cause=text if idle else "",
                name="" if idle else text,
            )
            at += _ns(ms)
        return self

    def _device_rows(self) -> list[dict[str, int]]:
        rows: dict[tuple[int, int], dict[str, int]] = {}
        for step, devices in self._device_steps.items():
            first = step // self._merge * self._merge
            for id, row in devices.items():
                sums = rows.setdefault((first, id), dict.fromkeys(DEVICE_STEP_COLUMNS, 0))
                for column, value in row.items():
                    sums[column] += value
                sums |= {"first_step": first, "device": id}
        return list(rows.values())


def device_step(wall: int, given: Mapping[str, Any]) -> dict[str, int]:
    """A row of table device_step without its keys."""
    row: dict[str, int] = dict.fromkeys(DEVICE_STEP_COLUMNS[2:], 0)
    if given == UNTRACED:
        return row | {"untraced": 1, "untraced_ns": wall}
    for name, value in given.items():
        if name == "idle":
            row |= {f"idle_{cause}_ns": _ns(ms) for cause, ms in value.items()}
        elif f"{name}_ns" in row:
            row[f"{name}_ns"] = _ns(value)
        else:
            row[name] = value
    assert set(row) == set(DEVICE_STEP_COLUMNS[2:]), set(row) ^ set(DEVICE_STEP_COLUMNS[2:])
    row["wall_ns"] = wall
    row["idle_unknown_ns"] += wall - row["busy_ns"] - sum(row[f"idle_{cause}_ns"] for cause in CAUSES)
    assert row["idle_unknown_ns"] >= 0, "the device is busy and idle for longer than the step is"
    return row
