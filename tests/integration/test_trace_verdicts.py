"""What is said of real traces, and that a person who reads them would agree."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import traces
import trainperf
from trainperf.traces import analyze

# The verdict, by how it begins, and the findings that are no infos.
#   a100: 12.8 ms of 77.5 are idle, nearly all of them waiting for launches; of 27.3 ms of NCCL nothing hides 14.7.
#   ddp: 133 ms of 215 are idle while kernels wait in the queue, 160 ms each, for something that the trace lacks.
#   nccl: 813 of 900 kernels a step find the GPU waiting; they start 2 us after their launch.
#   sampled: half of it idles while the host does what has no record; all-to-all takes 198 ms, 168 with nothing else.
VERDICTS = {
    "a100_6steps_dataloader": ("GPU idle 16%: exposed-communication, 14.7 ms/step (19%)", {"TP510", "TP501"}),
    "ddp_5steps_syncs": ("GPU idle 64%, 62% for an unidentified reason: exposed-communication, 32.4", {"TP510"}),
    "nccl_3steps": ("GPU idle 76%: launch-bound, 146 ms/step (66%)", {"TP506"}),
    "sampled_2steps": ("GPU idle 55%, 50% for an unidentified reason: exposed-communication, 168", {"TP510"}),
    "alexnet_cuda_sync": ("only 1 step seen: too few for a verdict; the GPU is idle 100% of it", set()),
    "event_sync": ("only 1 step seen: too few for a verdict; the GPU is idle 98% of it", set()),
    "cpu_only": ("only 1 step seen: too few for a verdict; the GPU was not seen (cuda off: the trace holds no", set()),
    "no_gpu_rank": ("only 1 step seen: too few for a verdict; the GPU was not seen (cuda off: the trace holds", set()),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_the_verdict_on_a_real_trace(name: str, tmp_path: Path) -> None:
    file = traces.SHARED / f"{name}.json.gz"
    if not file.exists():
        pytest.skip(f"{file} is not on this machine")
    analyze(str(file), str(tmp_path / "a.tpr"))
    with trainperf.open(tmp_path / "a.tpr") as run:
        found = run.judged
        says, ids = VERDICTS[name]
        assert found.verdict.text.startswith(says), found.verdict.text
        assert {f.id for f in found.findings if f.severity != "info"} == ids
        assert sum(f.idle_ns or 0 for f in found.findings) <= sum(d.totals.idle_ns for d in run.devices)
        assert all(f.confidence != "high" for f in found.findings)  # few steps
        assert {a.id for a in found.abstained} >= {"TP201", "TP307", "TP601"}  # no trace tells of these
