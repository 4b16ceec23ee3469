"""What the machine did: its counters in the run file, the report, Perfetto's tracks and the findings."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runfiles import RunFile
from trainperf.cli.main import main
from trainperf.findings.cpus import busiest_disk
from trainperf.findings.facts import Facts
from trainperf.report.details.host import host
from trainperf.run import Run

MB = 10**6
BUSY = {
    "disk_busy_ns:sda": 0.97e9,
    "disk_read_bytes:sda": 212 * MB,
    "disk_busy_ns:sdb": 0.1e9,
    "disk_read_bytes:sdb": 500 * MB,
    "own_read_bytes": 106 * MB,
    "psi_io_ns": 0.5e9,
    "major_faults": 0,
}


@pytest.fixture
def file(tmp_path: Path) -> RunFile:
    return RunFile(tmp_path / "a.tpr")


def of(file: RunFile, machine: dict[str, float]) -> Run:
    file.steps(80, data_wait=90, compute=10).loader(1, workers=0, fetches=80, wait=90)
    return Run(file.host(8, process_cpus=0.2, machine=machine).build())


def test_a_counter_that_stood_still_is_as_before(file: RunFile) -> None:
    run = of(file, BUSY)
    assert run.machine["disk_read_bytes:sda"].tolist() == [10**9 + i * 212 * MB for i in range(9)]
    assert run.machine["major_faults"].tolist() == [10**9] * 9


def test_a_counter_that_came_later_was_as_at_first(file: RunFile) -> None:
    path = file.steps(10, compute=100).host(4, process_cpus=1, machine={"own_read_bytes": 5}).build()
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM machine WHERE at_ns < 1002000000000")
    assert np.diff(Run(path).machine["own_read_bytes"]).tolist() == [0, 0, 5, 5]


def test_files_before_version_8_have_none(file: RunFile) -> None:
    path = file.steps(10, compute=100).host(4, process_cpus=1).build()
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE machine")
        db.execute("DROP TABLE counter")
        db.execute("PRAGMA user_version = 7")
    assert Run(path).machine == {}


def test_the_report_has_what_moved(file: RunFile) -> None:
    shown = {series.name: series for series in host(of(file, BUSY)).series}
    assert shown["disk sda"].mean == pytest.approx(97) and shown["disk sda"].unit == "%"
    assert shown["read from sda"].mean == pytest.approx(212) and shown["own reads"].mean == pytest.approx(106)
    assert shown["IO pressure"].mean == pytest.approx(50)
    assert "major faults" not in shown, "nothing was read back from storage"


def test_perfetto_has_a_track_for_each_counter(file: RunFile) -> None:
    of(file, BUSY)
    trace = file.path.with_suffix(".trace.json")
    assert main(["export", str(file.path), "--format", "chrome", "-o", str(trace)]) == 0
    tracks: dict[str, list[float]] = {}
    for event in json.loads(trace.read_text())["traceEvents"]:
        if event["ph"] == "C":
            tracks.setdefault(event["name"], []).append(event["args"]["value"])
    assert tracks["disk read:sda (MB/s)"] == pytest.approx([212] * 8)
    assert tracks["disk busy:sda (%)"] == pytest.approx([97] * 8)
    assert tracks["major faults (/s)"] == [0] * 8


def test_data_that_waits_for_a_busy_disk_says_so(file: RunFile) -> None:
    finding = next(f for f in of(file, BUSY).findings if f.id == "TP101")
    assert (
        "meanwhile disk sda is busy 97% of the time, and reads 212.0 MB/s, 50% of it for this run" in finding.evidence
    )


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"disk_busy_ns:sda": 0.4e9}, "it has time"),
        ({"disk_read_bytes:sda": 0}, "it writes"),
    ],
)
def test_a_disk_that_holds_nobody_up_is_not_told(file: RunFile, changed: dict[str, float], why: str) -> None:
    run = of(file, BUSY | changed)
    assert busiest_disk(Facts(run), "read") == {}, why
    assert not any("disk sda" in line for f in run.findings for line in f.evidence)


def test_whose_reads_it_does_may_not_be_known(file: RunFile) -> None:
    known = {name: each for name, each in BUSY.items() if not name.startswith("own")}
    assert busiest_disk(Facts(of(file, known)), "read")["disk_own"] is None


@pytest.mark.parametrize(
    ("of_own", "text"),
    [
        (38 * MB, "this run receives 38.0 MB/s over TCP: 3.8 MB a step"),
        # Each of its connections was gone before it was looked at.
        (0, "interface eth1 receives 40.0 MB/s: 4.0 MB a step (of all programs)"),
    ],
)
def test_data_that_comes_over_the_network_says_how_much(file: RunFile, of_own: float, text: str) -> None:
    of_interfaces = {"net_received_bytes:eth0": 2 * MB, "net_received_bytes:eth1": 40 * MB}
    run = of(file, {**of_interfaces, "own_net_received_bytes": of_own})
    finding = next(f for f in run.findings if f.id == "TP101")
    assert f"meanwhile {text}" in finding.evidence


@pytest.mark.parametrize(("received", "ranks"), [(0.9 * MB, 1), (38 * MB, 2)])
def test_little_of_it_and_what_other_ranks_send_is_not_told(file: RunFile, received: float, ranks: int) -> None:
    of_all = {"own_net_received_bytes": received, "net_received_bytes:eth0": received}
    run = of(file.meta(world_size=str(ranks)), of_all)
    assert not any("receives" in line for f in run.findings for line in f.evidence)


def test_reads_far_larger_than_batches_are_told(file: RunFile) -> None:
    reads = json.dumps({"1": [120 * MB, 10, 3 * MB, 3]})
    finding = next(f for f in of(file.meta(reads=reads), {}).findings if f.id == "TP101")
    assert "12.0 MB are read for each batch of 1.0 MB: 12 times its size" in finding.evidence


@pytest.mark.parametrize(
    ("reads", "why"),
    [
        ({"1": [30 * MB, 10, MB, 1]}, "as float64 that becomes float32, or a photo that is shrunk"),
        ({"1": [MB // 2, 10, 1000, 1]}, "to read 50 kB takes next to nothing of 1.1 ms"),
        ({"2": [120 * MB, 10, MB, 1]}, "another loader's"),
        ({"1": [120 * MB, 10, 0, 0]}, "what its batches have is not known"),
        ({"1": [0, 0, MB, 1]}, "nor what is read"),
        ({"1": [120 * MB, 10, "x", 1]}, "a damaged file"),
        ({"1": None}, "a damaged file"),
    ],
)
def test_reads_that_do_not_matter_or_are_not_known_are_not_told(file: RunFile, reads: Any, why: str) -> None:
    run = of(file.meta(reads=json.dumps(reads)), {"own_net_received_bytes": 800 * MB})
    assert not any("its size" in line for f in run.findings for line in f.evidence), why


def test_what_is_no_counter_is_no_rate(file: RunFile, tmp_path: Path) -> None:
    """In Perfetto a clock is its MHz, and CPUs that share a number are left out."""
    file.steps(10, compute=100).host(
        1, process_cpus=1, machine={"gpu_sm_mhz:0": [1200, 1300], "cpu_levels:0": [31, 17]}
    )
    target = tmp_path / "a.json"
    assert main(["export", str(file.build()), "--format", "chrome", "-o", str(target)]) == 0
    rows = [e for e in json.loads(target.read_text())["traceEvents"] if e["ph"] == "C"]
    assert [e["args"]["value"] for e in rows if e["name"] == "gpu sm mhz:0"] == [1300]
    assert not any("levels" in e["name"] for e in rows)


def test_bytes_of_its_own_connections_have_a_lane(file: RunFile) -> None:
    series = {s.name: s for s in host(of(file, {"own_net_received_bytes": 80 * MB, "own_net_sent_bytes": 5})).series}
    assert series["own received"].mean == pytest.approx(80) and "own sent" not in series
