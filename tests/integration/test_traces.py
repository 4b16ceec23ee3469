"""Real traces of torch.profiler: what trainperf says of their devices equals an independent computation, exactly."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import traces as truth
import trainperf
from trainperf.traces import analyze

FILES = sorted(truth.SHARED.glob("*.json.gz"))
pytestmark = pytest.mark.skipif(not FILES, reason=f"the traces of {truth.SHARED} are not on this machine")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, trainperf.Run]:
    folder = tmp_path_factory.mktemp("traces")
    found = {}
    for file in FILES:
        name = file.name.removesuffix(".json.gz")
        analyze(str(file), str(folder / f"{name}.tpr"))
        found[name] = trainperf.open(folder / f"{name}.tpr")
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name.removesuffix(".json.gz"))
def test_devices_equal_an_independent_computation(file: Path, runs: dict[str, trainperf.Run]) -> None:
    run = runs[file.name.removesuffix(".json.gz")]
    events = truth.load(file)
    windows = truth.step_windows(events)
    zero = int(run.meta["trace_zero_ns"])
    if windows:
        assert [int(i) for i in run.steps.index] == [number for number, _, _ in windows]
        assert [int(s) + zero for s in run.steps.start_ns] == [start for _, start, _ in windows]
        assert [int(w) for w in run.steps.wall_ns] == [end - start for _, start, end in windows]
    else:
        windows = [
            (int(i), int(s) + zero, int(s + w) + zero)
            for i, s, w in zip(run.steps.index, run.steps.start_ns, run.steps.wall_ns, strict=True)
        ]
        assert windows, "all of it is one step at least"
    expected = truth.devices(events)
    assert {d.id for d in run.devices} == set(expected)
    for device in run.devices:
        told, true = device.steps, expected[device.id]
        for row, (_, start, end) in enumerate(windows):
            assert told.busy_ns[row] == truth.within(true.busy, start, end)
            assert told.busy_ns[row] + told.idle_ns[row] == end - start
            assert told.idle_causes_ns[row].sum() == told.idle_ns[row]
            assert (told.idle_causes_ns[row] >= 0).all()
            assert told.kernel_ns[row] == truth.within(true.kernels, start, end)
            assert told.collective_ns[row] == truth.within(true.collectives, start, end)
            assert told.exposed_collective_ns[row] == true.exposed_collectives(start, end)
            assert told.kernels[row] == true.started("kernel", start, end)
            assert told.copies[row] == true.started("copy", start, end)


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name.removesuffix(".json.gz"))
def test_host_calls_equal_those_of_the_trace(file: Path, runs: dict[str, trainperf.Run]) -> None:
    run = runs[file.name.removesuffix(".json.gz")]
    events = truth.load(file)
    zero = int(run.meta["trace_zero_ns"])
    assert len(run.steps.start_ns)
    start, end = int(run.steps.start_ns[0]) + zero, int(run.steps.start_ns[-1] + run.steps.wall_ns[-1]) + zero
    for call, names in {
        "launch_kernel": ("cudaLaunchKernel", "cudaLaunchKernelExC"),
        "stream_sync": ("cudaStreamSynchronize",),
        "event_sync": ("cudaEventSynchronize",),
        "device_sync": ("cudaDeviceSynchronize",),
        "alloc": ("cudaMalloc",),
    }.items():
        inside = [e for e in events if e.get("ph") == "X" and e["name"] in names and start <= truth.span(e)[1] <= end]
        told = sum(c.count for c in run.calls() if c.call == call)
        edge = sum(truth.span(e)[1] in (start, end) for e in inside)
        assert abs(told - len(inside)) <= edge, call
        assert len(inside) == 0 or told > 0


def test_the_verdicts_are_those_of_a_person_who_reads_the_trace(runs: dict[str, trainperf.Run]) -> None:
    """Why, for each: docs/trace-verdicts.md."""
    top = {name: run.judged.verdict.finding for name, run in runs.items()}
    # Its device idles for the host's launches; nearly half of its collectives hides behind computation.
    assert top["a100_6steps_dataloader"] == "TP510"
    # Kernels that wait 160 ms in the queue of an idle device wait for what the trace does not hold.
    assert "TP501" not in {f.id for f in runs["ddp_5steps_syncs"].findings}
    assert "TP501" in {a.id for a in runs["ddp_5steps_syncs"].judged.abstained}
    # Busy a quarter of its time, with nothing in the queue.
    assert top["nccl_3steps"] in ("TP501", "TP506")
    for name in ("cpu_only", "no_gpu_rank"):
        run = runs[name]
        assert not run.devices
        assert any("no device" in note for note in run.notes)
        assert not top[name]
