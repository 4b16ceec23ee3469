"""Accelerate's launcher: a run file per rank, of one name, and rank 0 prints."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trainperf
from trainperf.ranks import open_job, ranks

if importlib.util.find_spec("accelerate") is None:
    pytest.skip("accelerate is not installed", allow_module_level=True)


@pytest.mark.live
@pytest.mark.timeout(100)
def test_accelerate_launch_of_two_ranks(tmp_path: Path) -> None:
    """With --multi_gpu it starts processes, which the script then trains on CPUs; with --cpu it starts one alone."""
    script = Path(__file__).with_name("accelerate_child.py")
    done = subprocess.run(
        [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines",
         "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0", str(script),
         f"{tmp_path}/"],
        check=False, capture_output=True, text=True, timeout=90, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("16 steps)") == 1  # one verdict
    files = sorted(tmp_path.glob("*.tpr"))
    stems, numbers = zip(*(file.name.rsplit(".", 2)[:2] for file in files), strict=True)
    assert numbers == ("rank0", "rank1") and stems[0] == stems[1] and stems[0].startswith("accelerate_child-")
    with open_job(tmp_path) as job:
        assert [run.step_count for run in job.runs] == [16, 16]
        assert all(run.meta["ended"] == "normally" and run.meta["process_group"] == "1" for run in job.runs)
        assert len({run.meta["launch"] for run in job.runs}) == 1 and ranks(job.runs) is not None


@pytest.mark.parametrize(
    "late", [pytest.param(False, marks=pytest.mark.live, id="imported before"), pytest.param(True, id="imported late")]
)
def test_a_state_has_the_bytes_of_all_its_files(tmp_path: Path, late: bool) -> None:
    """Once: what is imported in the watch, as by `trainperf run`, takes our wrappers of other modules along."""
    body = f"""
import pathlib, sys, trainperf
folder = pathlib.Path({str(tmp_path)!r})
if not {late}:
    import accelerate
with trainperf.watch(folder / "a.tpr", gil="off", sampler_hz=0):
    import accelerate, torch
    accelerator = accelerate.Accelerator(cpu=True)
    model = torch.nn.Linear(512, 512)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    for _ in range(4):
        accelerator.backward(model(torch.ones(4, 512)).sum())
        optimizer.step()
    accelerator.save_state(folder / "state")
    for _ in range(2):
        accelerator.backward(model(torch.ones(4, 512)).sum())
        optimizer.step()
from accelerate.utils import other
from safetensors.torch import save_file
assert other.safe_save_file is save_file and not hasattr(save_file, "__wrapped__")
"""
    done = subprocess.run([sys.executable, "-c", body], check=False, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    with trainperf.open(tmp_path / "a.tpr") as run:
        written = run.span_total("checkpoint").value
    tensors = [f.stat().st_size for f in (tmp_path / "state").iterdir() if f.suffix in (".safetensors", ".bin")]
    assert len(tensors) == 2 and 3 * 512 * 512 * 4 < sum(tensors) <= written < 1.05 * sum(tensors)
