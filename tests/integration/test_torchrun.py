"""A plain loop under torchrun, and in forked ranks: a run file per rank, of one name, and rank 0 prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trainperf
import warm
from trainperf.ranks import open_job, ranks
from trainperf.settings import Settings


@pytest.mark.timeout(100)
def test_two_ranks(tmp_path: Path) -> None:
    script = Path(__file__).with_name("torchrun_child.py")
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script),
         f"{tmp_path}/"],
        check=False, capture_output=True, text=True, timeout=90, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("16 steps)") == 1  # one verdict
    files = sorted(tmp_path.glob("*.tpr"))
    stems, numbers = zip(*(file.name.rsplit(".", 2)[:2] for file in files), strict=True)
    assert numbers == ("rank0", "rank1") and stems[0] == stems[1] and stems[0].startswith("torchrun_child-")
    for file in files:
        with trainperf.open(file) as run:
            assert run.step_count == 16 and run.meta["ended"] == "normally" and run.meta["world_size"] == "2"
    with open_job(tmp_path) as job:  # both sleep as long in a step: one in its hook, the other for it
        found = ranks(job.runs)
        assert found is not None and found.stragglers == (0,) and "mostly blocked_io" in found.sentence
        assert found.told(found.ranks[1]).startswith("waits for the others"), found
        assert len({run.meta["launch"] for run in job.runs}) == 1


@pytest.mark.timeout(100)
def test_two_ranks_that_no_variable_tells_of(tmp_path: Path) -> None:
    done = warm.run([str(Path(__file__).with_name("forked_child.py")), str(tmp_path / "a.tpr")])
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("16 steps)") == 1  # one verdict
    assert sorted(file.name for file in tmp_path.glob("*.tpr")) == ["a.rank0.tpr", "a.rank1.tpr"]
    with open_job(tmp_path) as job:
        assert [(run.meta["rank"], run.meta["world_size"], run.step_count) for run in job.runs] == [
            ("0", "2", 16),
            ("1", "2", 16),
        ]
        assert len({run.meta["launch"] for run in job.runs}) == 1 and ranks(job.runs) is not None


def test_ranks_agree_on_a_name_and_the_next_job_has_another(tmp_path: Path) -> None:
    both = [Settings(directory=str(tmp_path), rank=rank, world_size=2) for rank in range(2)]
    first = [rank.run_path() for rank in both]
    assert [path.replace("rank1", "rank0") for path in first] == [first[0]] * 2 and first[0] != first[1]
    for path in first:
        Path(path).touch()
    second = [rank.run_path() for rank in both]
    assert len({*first, *second}) == 4 and second[1].replace("rank1", "rank0") == second[0]
