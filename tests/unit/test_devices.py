"""Devices in a run: the readers, `show --json`, and the line of the verdict."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import trainperf
from runfiles import RunFile
from trainperf.cli.main import main
from trainperf.errors import RunFileError
from trainperf.report import console
from trainperf.runfile import schema
from trainperf.runfile.schema import CAUSES


def starved(path: Path, *, merge: int = 1) -> RunFile:
    """100 steps of 10 ms: the device runs for 4 ms and waits for data for 5."""
    file = RunFile(path)
    file.device(0, "NVIDIA A100", lead_us=12.5, memory=80)
    of_step = {"busy": 4.0, "idle": {"data_wait": 5.0, "launch": 0.6}, "kernels": 40, "kernel": 4.0, "between": 0.1}
    more = {"first_kernels": 1, "first_kernel": 5.5, "queue_depth": 3, "starved_gaps": 1, "launches": 40}
    file.steps(100, data_wait=5.0, compute=5.0, devices={0: of_step | more})
    file.kernel("ampere_sgemm_128x64_nn", 300.0, kind="no_tensor_core", eligible=True, count=1000, steps=100)
    file.kernel("(other)", 350.0, count=3000, folded=7)
    file.kernel("elementwise", 100.0, count=3000, tiny=3000)
    file.copy("h2d", 50.0, src="pageable", dst="device", count=100, bytes=10**6, exposed=20.0)
    file.call("stream_sync", 40.0, count=100, failed=1).call("alloc", 90.0, thread=file.thread("autograd"))
    file.detail("call", 40.0, state="stream_sync", stack=file.stack("train.py:9 loop"))
    file.detail("idle_gil_wait", 7.0, code=0, thread=file.thread("hog"), stack=file.stack("hog.py:3 spin"))
    file.keep(7).keep_device(7, 0, ("idle", "data_wait", 5.0), ("kernel", "ampere_sgemm_128x64_nn", 5.0))
    return file.merge_steps(merge)


def test_steps_and_totals(tmp_path: Path) -> None:
    with starved(tmp_path / "a.tpr").open() as run:
        assert run.feeds_device and run.cause_ns("launch") == 500_000_000 and run.cause_ns("compute") == 0
        (device,) = run.devices
        assert (device.id, device.name, dict(device.description)) == (0, "NVIDIA A100", {"memory": 80})
        steps, totals = device.steps, device.totals
        assert (steps.busy_ns + steps.idle_ns == run.steps.wall_ns).all()
        assert (steps.idle_causes_ns.sum(axis=1) == steps.idle_ns).all() and len(steps.busy_ns) == 100
        assert steps.idle_causes_ns[3, CAUSES.index("data_wait")] == 5_000_000
        assert steps.idle_causes_ns[3, CAUSES.index("unknown")] == 400_000
        assert totals.busy_ns == 400_000_000 and totals.idle_ns == 600_000_000 and totals.kernels == 4000
        assert sum(totals.idle_causes_ns.values()) == totals.idle_ns and set(totals.idle_causes_ns) == set(CAUSES)
        assert totals.first_kernel_ns == 5_500_000 and totals.queue_depth == 3 and totals.lead_ns_median == 12_500
        # Neither what nobody knows nor the gaps between queued kernels are the host's doing.
        assert totals.critical_host_share == pytest.approx((5.0 + 0.6 - 0.1) / 10)


def test_merged_rows_sum_to_the_same(tmp_path: Path) -> None:
    with starved(tmp_path / "a.tpr").open() as run, starved(tmp_path / "b.tpr", merge=8).open() as merged:
        assert len(merged.devices[0].steps.busy_ns) == 13
        assert merged.devices[0].totals == run.devices[0].totals


def test_what_hangs_below(tmp_path: Path) -> None:
    with starved(tmp_path / "a.tpr").open() as run:
        sgemm, elementwise, other = run.kernels(0)
        assert (sgemm.name, sgemm.kind, sgemm.eligible, sgemm.ns) == (
            *("ampere_sgemm_128x64_nn", "no_tensor_core", True, 300_000_000),
        )
        assert elementwise.tiny == 3000 and (other.name, other.folded) == ("(other)", 7)  # last, whatever its cost
        (copy,) = run.copies(0)
        assert (copy.direction, copy.src, copy.dst, copy.exposed_ns) == ("h2d", "pageable", "device", 20_000_000)
        assert run.kernels(1) == () and run.copies(1) == ()
        alloc, sync = run.calls()
        assert alloc.thread is not None and alloc.thread.name == "autograd"
        assert (sync.call, sync.count, sync.failed, sync.thread) == ("stream_sync", 100, 1, run.step_thread)
        call = run.detail_totals("call")[0]
        assert call.state == "stream_sync" and run.stack(call.stack)[0].line == 9
        waited = run.detail_totals("idle_gil_wait")[0]
        assert waited.thread is not None and waited.thread.name == "hog" and waited.ns == 7_000_000
        idle, kernel = run.device_segments(7)
        assert (idle.what, idle.cause, idle.name) == ("idle", "data_wait", "")
        assert (kernel.what, kernel.cause, kernel.name) == ("kernel", "", "ampere_sgemm_128x64_nn")
        assert run.device_segments(8) == ()


def test_a_device_that_came_late_was_idle_for_an_unknown_cause(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr").steps(5, compute=10.0)
    file.steps(5, compute=10.0, devices={1: {"busy": 8.0, "idle": {"python": 2.0}}})
    with file.open() as run:
        (device,) = run.devices
        assert device.id == 1
        assert device.steps.idle_causes_ns[0, CAUSES.index("unknown")] == 10_000_000
        assert device.totals.idle_causes_ns["unknown"] == 50_000_000
        assert device.totals.critical_host_share == pytest.approx(0.1)


def test_no_device_is_none_and_not_an_idle_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = RunFile(tmp_path / "a.tpr").steps(5, compute=10.0)
    with file.open() as run:
        assert run.devices == () and run.calls() == () and not run.feeds_device
        assert "GPU " not in console.summary(run)
    assert main(["show", str(file.path), "--json", "--steps"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert "devices" not in document and "devices" not in document["per_step"][0]


def version_1(path: Path) -> Path:
    connection = sqlite3.connect(path)
    for (view,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'view'").fetchall():
        connection.execute(f"DROP VIEW {view}")
    for table in schema.TABLES_SINCE:
        connection.execute(f"DROP TABLE {table}")
    for table, column in schema.COLUMNS_SINCE:
        if table not in schema.TABLES_SINCE:
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    connection.execute("PRAGMA user_version = 1")
    connection.commit()
    connection.close()
    return path


def test_version_1_is_read(tmp_path: Path) -> None:
    path = version_1(RunFile(tmp_path / "a.tpr").steps(5, compute=10.0).detail("sample", 50).build())
    with trainperf.open(path) as run:
        assert run.schema_version == 1 and run.devices == () and run.step_count == 5
        assert run.kernels(0) == () and run.copies(0) == () and run.calls() == () and run.device_segments(0) == ()
        assert run.cause_ns("compute") == run.wall_ns
        assert "compute-bound" in run.summary()
    # There, the fact about the process did not yet say how native time is named.
    path = version_1(RunFile(tmp_path / "b.tpr").steps(5, compute=10.0).meta(feeds_device="1").build())
    with trainperf.open(path) as run:
        assert not run.feeds_device


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("UPDATE device_step SET busy_ns = busy_ns + 1 WHERE first_step = 3", "do not sum"),
        ("UPDATE device_step SET first_step = 999 WHERE first_step = 3", "of no step"),
        ("UPDATE device_step SET kernels = 'many' WHERE first_step = 3", "no number"),
        ("UPDATE device_step SET wall_ns = 2*wall_ns, busy_ns = busy_ns + wall_ns WHERE first_step = 3", "longer than"),
        ("UPDATE device_step SET busy_ns = 9e18, wall_ns = 9e18 WHERE first_step = 3", "damaged"),
        ("UPDATE device_step SET launches = -1 WHERE first_step = 3", "negative"),
        ("UPDATE device_step SET busy_ns = -1, idle_python_ns = idle_python_ns + busy_ns + 1", "negative"),
        ("UPDATE device_step SET kernels = 1152921504606846976 WHERE first_step = 3", "years long"),
        ("UPDATE device SET name = x'00'", "belongs"),
        ("DROP TABLE device_kernel", "missing"),
    ],
)
def test_damage_is_said(tmp_path: Path, damage: str, says: str) -> None:
    path = starved(tmp_path / "a.tpr").build()
    connection = sqlite3.connect(path)
    connection.execute(damage)
    connection.commit()
    connection.close()
    with pytest.raises(RunFileError, match=says) as caught, trainperf.open(path) as run:
        _ = run.devices
    assert "\n" not in str(caught.value)


def shown(file: RunFile, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main(["show", str(file.build()), "--json", *options]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = shown(starved(tmp_path / "a.tpr"), capsys, "--steps")
    (device,) = document["devices"]
    assert device["id"] == 0 and device["busy_share"] == pytest.approx(0.4)
    assert device["idle_ms_per_step"] == pytest.approx(6.0)
    assert list(device["idle_causes"]) == list(CAUSES)
    assert device["idle_causes"]["data_wait"] == {
        "ms_per_step": pytest.approx(5.0),
        "share_of_idle": pytest.approx(5 / 6),
    }
    assert sum(c["share_of_idle"] for c in device["idle_causes"].values()) == pytest.approx(1)
    for step in document["per_step"]:
        (of_step,) = step["devices"]
        assert of_step["busy_ns"] + sum(of_step["idle_causes_ns"].values()) == step["wall_ns"]
    page = (Path(__file__).resolve().parents[2] / "docs" / "show-json.md").read_text()
    example = json.loads(re.findall(r"```json\n(.*?)```", page, re.DOTALL)[0])
    assert set(example["devices"][0]) == set(device)


def test_the_verdict_has_a_line_for_the_device(tmp_path: Path) -> None:
    with starved(tmp_path / "a.tpr").open() as run:
        text = console.summary(run)
    (line,) = [line for line in text.splitlines() if line.startswith("GPU ")]
    assert line == "GPU   busy 40%, idle 6.00 ms/step: data_wait 5.00, launch 0.60, unknown 0.40"
    assert len(text.splitlines()) <= console.MAX_LINES


def test_of_several_devices_the_idlest_is_told(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr")
    file.steps(10, compute=10.0, devices={0: {"busy": 9.0}, 1: {"busy": 2.0, "idle": {"gil_wait": 8.0}}})
    with file.open() as run:
        text = console.summary(run)
    assert "GPU   2 devices, busy 20% to 90%; GPU 1 busy 20%, idle 8.00 ms/step: gil_wait" in text


def test_views(tmp_path: Path) -> None:
    connection = sqlite3.connect(starved(tmp_path / "a.tpr").build())
    assert connection.execute("SELECT device, busy_percent, idle_ms_per_step FROM device_use").fetchall() == [
        (0, 40.0, 6.0)
    ]
    idle = connection.execute("SELECT cause, ms_per_step, percent FROM device_idle").fetchall()
    connection.close()
    assert idle[0] == ("data_wait", 5.0, 83.33) and np.isclose(sum(row[2] for row in idle), 100, atol=0.05)
