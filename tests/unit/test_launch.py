"""What the ranks of one launch agree on, and those of another do not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from runfiles import RunFile
from trainperf.cli.main import main
from trainperf.launch import launch_id
from trainperf.settings import Settings

TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
SLURM = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "MASTER_ADDR": "node0", "RANK": "0", "WORLD_SIZE": "8"}

# Two children of one parent, each prints its launch's id; torch.multiprocessing's spawn makes the ranks likewise.
LAUNCHER = r"""
import multiprocessing, os, subprocess, sys
code = "from trainperf.launch import launch_id; import sys; print(launch_id(int(sys.argv[1])))"

def rank(number):
    from trainperf.launch import launch_id
    os.write(1, f"{launch_id(number)}\n".encode())  # print: two of them could mix

def launch():
    if sys.argv[1] == "processes":
        for number in range(2):
            subprocess.run([sys.executable, "-c", code, str(number)], check=True)
        return
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=rank, args=(number,)) for number in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()

if __name__ == "__main__":
    for _ in range(int(sys.argv[2])):
        launch()
"""


def launched(how: str, times: int, environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    with monkeypatch.context() as patch:
        for name, value in environ.items():
            patch.setenv(name, value)
        command = [sys.executable, "-c", LAUNCHER, how, str(times)]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.split()


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc, which says who the parent is")
def test_the_same_environment_of_two_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (launched("processes", 1, TORCHRUN, monkeypatch) for _ in range(2))
    assert first[0] == first[1] != second[0] == second[1]
    spawned = launched("spawn", 2, {"MASTER_ADDR": "localhost", "MASTER_PORT": "12355"}, monkeypatch)
    assert len(spawned) == 4 and len(set(spawned)) == 2 and all(spawned.count(name) == 2 for name in spawned)


def test_on_several_hosts_the_scheduler_says_which_job_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainperf.launch._parent", lambda rank: pytest.fail("each host has another"))
    first = launch_id(0, SLURM)
    assert first == launch_id(5, {**SLURM, "RANK": "5", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "none"})
    others = [{"SLURM_JOB_ID": "8"}, {"SLURM_STEP_ID": "1"}, {"SLURM_RESTART_COUNT": "1"}]
    others += [{"TORCHELASTIC_RUN_ID": "a1"}, {"TORCHELASTIC_RUN_ID": "a1", "TORCHELASTIC_RESTART_COUNT": "1"}]
    assert len({first, *(launch_id(0, {**SLURM, **other}) for other in others)}) == 6


def test_a_rank_that_died_early_does_not_shift_the_next_jobs_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def job(number: int, ranks: int) -> set[str]:
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", f"job {number}")
        monkeypatch.setenv("WORLD_SIZE", "4")
        monkeypatch.delenv("MASTER_ADDR", raising=False)
        paths = [Path(Settings(directory=str(tmp_path), rank=r, world_size=4).run_path()) for r in range(ranks)]
        for path in paths:
            path.touch()
        return {path.name.partition(".rank")[0] for path in paths}

    names = [job(number, ranks) for number, ranks in enumerate((4, 3, 4))]
    assert [len(each) for each in names] == [1, 1, 1] and len(set.union(*names)) == 3


def test_files_of_two_jobs_are_not_taken_for_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank, day in enumerate((1, 1, 1, 9)):
        file = RunFile(tmp_path / f"t.rank{rank}.tpr", world_size="4", rank=str(rank), started=f"2026-01-0{day}T00:00Z")
        file.steps(20, compute=20.0 if rank == 3 else 10.0).build()
    assert main(["show", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "t.rank3.tpr started at 2026-01-09T00:00Z, t.rank0.tpr at 2026-01-01" in error and error.count("\n") == 1
    RunFile(tmp_path / "t.rank3.tpr", world_size="4", rank="3", launch="0a", started="2026-01-01T00:04Z").steps(
        20, compute=10.0
    ).build()
    assert main(["show", str(tmp_path)]) == 1  # at the same time, and still another's
    assert "several runs" in capsys.readouterr().err


def test_of_one_launch_files_may_have_several_names(tmp_path: Path) -> None:
    for rank, name in enumerate(("a", "a", "a-20260102")):
        file = RunFile(tmp_path / f"{name}.rank{rank}.tpr", world_size="3", rank=str(rank), launch="0a1b2c3d")
        file.steps(20, compute=10.0).build()
    assert main(["show", str(tmp_path)]) == 0
