"""The limits of a container, read from folders made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from trainperf.container import cpu_quota, memory_limit


@pytest.fixture
def process(tmp_path: Path) -> Path:
    return tmp_path / "cgroup"


def write(root: Path, **files: str) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / name.replace("__", ".")).write_text(text)


def test_version_2_takes_the_least_of_a_group_and_those_above(tmp_path: Path, process: Path) -> None:
    process.write_text("0::/pod/job\n")
    write(tmp_path, cgroup__controllers="cpu memory")
    write(tmp_path / "pod", cpu__max="400000 100000\n", memory__max="4000000\n")
    write(tmp_path / "pod" / "job", cpu__max="max 100000\n", memory__max="max\n")
    assert cpu_quota(root=str(tmp_path), process=str(process)) == 4.0
    assert memory_limit(root=str(tmp_path), process=str(process)) == 4_000_000
    write(tmp_path / "pod" / "job", cpu__max="150000 100000\n")
    assert cpu_quota(root=str(tmp_path), process=str(process)) == 1.5


def test_version_1(tmp_path: Path, process: Path) -> None:
    process.write_text("5:cpu,cpuacct:/job\n4:memory:/job\n0::/job\n")
    write(tmp_path / "cpu" / "job", cpu__cfs_quota_us="50000\n", cpu__cfs_period_us="100000\n")
    write(tmp_path / "cpu", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    write(tmp_path / "memory" / "job", memory__limit_in_bytes="9223372036854771712\n")
    write(tmp_path / "memory", memory__limit_in_bytes="3000000\n")
    assert cpu_quota(root=str(tmp_path), process=str(process)) == 0.5
    assert memory_limit(root=str(tmp_path), process=str(process)) == 3_000_000


def test_a_path_of_the_host_leads_to_the_containers_root(tmp_path: Path, process: Path) -> None:
    process.write_text("0::/../../kubepods/abc\n")
    write(tmp_path, cgroup__controllers="cpu", cpu__max="200000 100000")
    assert cpu_quota(root=str(tmp_path), process=str(process)) == 2.0


@pytest.mark.parametrize("text", ["", "0::\n", "nonsense", "0::/gone\n", "5:cpu:/x\n"])
def test_what_cannot_be_read_is_no_limit(tmp_path: Path, process: Path, text: str) -> None:
    process.write_text(text)
    write(tmp_path / "cpu" / "x", cpu__cfs_quota_us="much", cpu__cfs_period_us="")
    assert cpu_quota(root=str(tmp_path), process=str(process)) is None
    assert (memory_limit(root=str(tmp_path), process=str(process)) or 1 << 20) >= 1 << 20  # the machine's own


def test_this_machine_has_memory() -> None:
    assert (memory_limit() or 0) > 1 << 20
