"""Where CPUs, memory and GPUs are on a machine of several NUMA nodes: read, kept, and said in the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from devices import DeviceFile
from runfiles import RunFile
from trainperf.numa import placement
from trainperf.report.details.host import host


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A /sys of two nodes, and the process' cgroup."""
    for path, text in {
        "devices/system/node/node0/cpulist": "0-3,8-11\n",
        "devices/system/node/node1/cpulist": "4-7,12-15\n",
        "devices/system/node/online": "0-1\n",
        "fs/cgroup/cgroup.controllers": "cpu memory\n",
        "fs/cgroup/job/memory.numa_stat": "anon N0=300 N1=100\nfile N0=7 N1=9\n",
        "cgroup": "0::/job\n",
    }.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_cpus_and_memory_by_node(machine: Path) -> None:
    process = str(machine / "cgroup")
    found = placement(sys=str(machine), process=process, affinity={0, 1, 8, 12})
    assert found == {"cpus": {"0": 3, "1": 1}, "memory": {"0": 300, "1": 100}}
    (machine / "fs/cgroup/job/memory.numa_stat").unlink()
    assert placement(sys=str(machine), process=process, affinity={15}) == {"cpus": {"0": 0, "1": 1}}


def test_a_machine_of_one_node_has_no_placement(machine: Path) -> None:
    (machine / "devices/system/node/node1/cpulist").unlink()
    (machine / "devices/system/node/node1").rmdir()
    assert placement(sys=str(machine)) == {} == placement(sys=str(machine / "none"))


def told(file: RunFile, **numa: dict[str, int]) -> str:
    file.meta(process_settings=json.dumps({"numa": numa})).steps(20, launch=50)
    with file.open() as run:
        return host(run).numa


def test_the_report_says_where_they_are(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr")
    assert told(file, cpus={"0": 32, "1": 4}, memory={"0": 900, "1": 100}) == (
        "2 NUMA nodes; CPUs of node 0 (32), node 1 (4); memory of its cgroup 90% on node 0, 10% on node 1"
    )
    assert told(RunFile(tmp_path / "b.tpr")) == ""


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (0, "GPU 0 on node 0"),
        (1, "GPU 0 on node 1, of whose CPUs this run may use none: its copies go through another node"),
    ],
)
def test_a_gpu_on_a_node_whose_cpus_the_run_may_not_use(tmp_path: Path, node: int, said: str) -> None:
    file = DeviceFile(tmp_path / "a.tpr")
    file.device(0, "NVIDIA H200", numa_node=node)
    assert told(file, cpus={"0": 32, "1": 0}) == f"2 NUMA nodes; CPUs of node 0 (32); {said}"


def test_what_others_wrote_is_no_placement(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "a.tpr").meta(process_settings='{"numa": {"cpus": {"0": "x", "1": []}, "memory": 7}}')
    with file.steps(20, launch=50).open() as run:
        assert host(run).numa == ""
