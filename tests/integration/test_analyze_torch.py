"""Traces that this torch makes of a loop whose truth is known: the same steps and phases as the loop had."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import trainperf
from trainperf.traces import analyze

STEPS = 25


class Slow(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return STEPS * 4

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.001)
        return torch.full((64,), float(index))


def train(path: Path, *, marks: bool, stack: bool) -> float:
    """Writes the trace; the share of the loop's time that fetching took."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    fetching = 0.0
    plan = schedule(wait=0, warmup=1, active=10 * STEPS) if marks else None  # without one, step() marks nothing
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, with_stack=stack) as profiler:
        begin = asked = time.perf_counter()
        for i, batch in enumerate(torch.utils.data.DataLoader(Slow(), batch_size=4)):
            fetching += time.perf_counter() - asked
            optimizer.zero_grad()
            with record_function("forward"):
                loss = model(batch).mean()
            loss.backward()
            optimizer.step()
            if marks:
                profiler.step()
            asked = time.perf_counter()
            if marks and i == 0:  # the profiler's warm-up, which no trace has
                begin, fetching = asked, 0.0
        whole = time.perf_counter() - begin
    profiler.export_chrome_trace(str(path))
    return fetching / whole


@pytest.mark.filterwarnings("ignore::UserWarning")  # of the profiler, that there is no CUDA
@pytest.mark.parametrize("stack", [False, True], ids=["plain", "with_stack"])
@pytest.mark.parametrize("marks", [True, False], ids=["marks", "no_marks"])
def test_the_trace_tells_what_the_loop_did(tmp_path: Path, *, marks: bool, stack: bool) -> None:
    share = train(tmp_path / "t.json.gz", marks=marks, stack=stack)
    analyze(str(tmp_path / "t.json.gz"), str(tmp_path / "a.tpr"))
    with trainperf.open(tmp_path / "a.tpr") as run:
        assert STEPS - 2 <= run.step_count <= STEPS + 1
        assert any("no ProfilerStep" in note for note in run.notes) != marks
        # On a busy machine what is around the fetches is preempted too: a wide margin, and never the wrong side.
        assert run.phase_ns("fetch") / run.wall_ns == pytest.approx(share, abs=0.12)
        assert run.phase_ns("backward") > 0
        assert run.phase_ns("optimizer") > 0
        assert run.cause_ns("gil_wait") == 0
        assert run.tiers["stacks"].tier == ("trace" if stack else "off")
        assert "data-starved" in run.summary()
        assert not run.devices
