"""Each rank of a Lightning job writes its own run file, and rank 0 prints."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import trainperf

if importlib.util.find_spec("pytorch_lightning") is None:
    pytest.skip("pytorch_lightning is not installed", allow_module_level=True)


# That spawned processes import the script again is in test_watch_processes.py, too.
@pytest.mark.parametrize("strategy", ["ddp_fork", pytest.param("ddp_spawn", marks=pytest.mark.live)])
def test_two_ranks(strategy: str, tmp_path: Path) -> None:
    script = Path(__file__).with_name("lightning_ddp.py")
    done = subprocess.run(
        [sys.executable, str(script), strategy, str(tmp_path)], check=False, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("16 steps)") == 1  # one verdict
    files = sorted(tmp_path.rglob("*.tpr"))
    assert [file.name for file in files] == ["run.rank0.tpr", "run.rank1.tpr"] and len({f.parent for f in files}) == 1
    for rank, file in enumerate(files):
        with trainperf.open(file) as run:
            assert run.step_count == 16 and run.meta["ended"] == "normally"
            assert (run.meta["rank"], run.meta["world_size"]) == (str(rank), "2")
            settings = json.loads(run.meta["lightning"])
            assert settings["package"] == "pytorch_lightning" and settings["strategy"] == "DDPStrategy"
            parts = [d for kind, d in run.objects.values() if kind == "lightning" and d["name"] == "SIGTERM broadcast"]
            if run.tiers.get("lightning_sigterm_broadcast") is not None:  # Lightning has it since 2.5.3
                assert (
                    parts[0]["hooks"]["_broadcast_sigterm_tensor"]["count"] == 15
                )  # the first is before the first step
