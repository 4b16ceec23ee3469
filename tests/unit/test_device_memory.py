"""What a run says of its GPUs' memory, on runs made by hand: no GPU is asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from runfiles import RunFile
from trainperf.findings.device_memory import DeviceMemory, devices_memory
from trainperf.report import console
from trainperf.report import json as as_json
from trainperf.report.html import render
from trainperf.report.model import build
from trainperf.runfile import HAS_VALIDATION, WARM_UP
from verdicts import TRAIN, Make, abstained, loud, only, said, unsure

GB, MB = 10**9, 10**6
START = 1_000_000_000_000  # of the first step


def told(
    seconds: int = 40,
    *,
    allocated: Callable[[int], int] = lambda s: 8 * GB,
    reserved: int = 22 * GB,
    split: int = 0,
    peaks: tuple[int, int] = (20 * GB, 22 * GB),
    rises: tuple[tuple[float, float, int, int], ...] = ((0, 0.15, 20 * GB, 22 * GB),),
    retries: int = 0,
    ooms: int = 0,
) -> dict[str, Any]:
    """Of one GPU, as the hook tells it; rises by the second of the run."""
    return {
        "total": 80 * GB,
        "peaks": list(peaks),
        "rises": [[a and START + round(a * 1e9), START + round(b * 1e9), *rose] for a, b, *rose in rises],
        "readings": [
            [START + s * GB + 50 * MB, allocated(s), reserved, allocated(s), split, 40, retries, ooms]
            for s in range(seconds)
        ],
    }


def trained(file: RunFile, gpu: dict[str, Any], *, validation: int = -1) -> RunFile:
    """400 steps of 100 ms, one of which has a validation."""
    for step in range(400):
        file.step(compute=100.0, flags=WARM_UP if step == 0 else HAS_VALIDATION if step == validation else 0)
    return file.meta(device_memory=json.dumps({"0": gpu}))


def memory(file: RunFile) -> DeviceMemory:
    with file.open() as run:
        (found,) = devices_memory(run)
    return found


def test_memory_that_the_peak_needed(make: Make) -> None:
    found = memory(trained(make(), told()))
    assert (found.cache, found.per_step, found.last.retries) == ("needed", 0, 0)
    assert found.rose is not None and (found.rose.first, found.rose.last) == (0, 1)
    assert found.counted == (
        "at most 20.0 GB allocated, 22.0 GB reserved; the peak rose last in steps 0 to 1; no steady growth; "
        "the peak needed nearly all that is reserved"
    )


@pytest.mark.parametrize(("split", "cache"), [(6 * GB, "fragmented"), (2 * GB, "cache")])
def test_memory_that_is_reserved_and_never_was_allocated(make: Make, split: int, cache: str) -> None:
    file = trained(make(), told(reserved=30 * GB, peaks=(20 * GB, 30 * GB), split=split))
    assert memory(file).cache == cache and "10.0 GB more than was allocated at once" in memory(file).of_cache


def test_memory_of_a_validation(make: Make) -> None:
    gpu = told(rises=((0, 0.1, 8 * GB, 9 * GB), (20.0, 21.0, 12 * GB, 13 * GB)))
    found = memory(trained(make(), gpu, validation=205))
    assert found.cache == "validation" and found.rose is not None and found.rose.first == 200
    assert found.of_cache == "another phase: 13.0 GB of what is reserved was taken in steps 200 to 209, with validation"
    assert memory(trained(make(), gpu, validation=215)).cache == "needed"  # at another time
    merged = trained(make(), gpu, validation=205).merge_steps(20)
    assert memory(merged).cache == "needed"  # it may be of another of these steps
    first = told(rises=((0, 1.0, 20 * GB, 22 * GB),))
    assert memory(trained(make(), first, validation=2)).cache == "needed"  # all memory is taken then


def test_memory_that_grows(make: Make) -> None:
    found = memory(trained(make(), told(allocated=lambda s: 8 * GB + 20 * MB * s, retries=2, ooms=1)))
    assert found.per_step == pytest.approx(2 * MB, rel=0.01)
    assert "grows by 2.0 MB a step; allocation retried 2 times; 1 out-of-memory error" in found.counted
    assert memory(trained(make(), told(seconds=8))).growth is None  # too few readings


def line(**of: Any) -> dict[str, Any]:
    """What the looks saw of a list of outputs."""
    seen = {"kind": "container", "type": "list", "elements": 30, "holds": "tensors", "bytes": 2 * MB, "scalar": False}
    named = {"of": "local", "name": "outs", "owner": "main", "inside": 0, "file": TRAIN, "line": 41}
    return {**seen, **named, "text": "outs.append(out)", "argument": "out", "on_gpu": True, **of}


def grows(file: RunFile, *kept: dict[str, Any], seconds: int = 40, each: float = 60 * MB) -> RunFile:
    """The GPU's memory, and not the process's."""
    looks = {"seconds": 3.1, "bytes": 60 * MB, "steps": 31, "objects": 300_000, "kept": kept}
    file.meta(kept_memory=json.dumps(looks), kept_memory_pauses="[21.4, 18.6]")
    trained(file, told(seconds, allocated=lambda s: 8 * GB + round(each * s)))
    return file.host(40, process_cpus=1.0, rss_bytes=lambda s: 2 * GB)


def test_a_gpus_memory_that_grows_is_a_finding(make: Make) -> None:
    f = only(grows(make()))
    assert (f.id, f.variant, f.severity, f.confidence) == ("TP601", "leak", "warning", "high")
    assert f.title == "GPU 0's memory grows by 6.0 MB a step" and f.params["readings"] == 30
    assert f.params["left"] == pytest.approx((80 - 20) * GB / (60 * MB), rel=0.01)  # till its peak does not fit
    assert "mapped files" not in " ".join(f.evidence) and "on GPU 0 in 29 s" in f.evidence[0]
    f = only(grows(make(), line(on_gpu=False, text="log.append(x)"), line()))
    assert (f.variant, f.where) == ("kept_elements", f"{TRAIN}:41")
    assert f.title == "`outs.append(out)` keeps 1.9 MB a step: tensors"


def test_an_allocator_that_did_not_tell(make: Make) -> None:
    file = make().steps(400, compute=100.0).host(40, process_cpus=1.0, rss_bytes=2 * GB)
    file.tier("hook_device_memory", "off", "RuntimeError: not supported")
    assert unsure(file, "TP601") == "memory_of_gpu_off" and "RuntimeError: not supported" in abstained(file, "TP601")
    leaks = make().steps(400, compute=100.0).tier("hook_device_memory", "off", "RuntimeError: not supported")
    assert only(leaks.host(40, process_cpus=1.0, rss_bytes=lambda s: 2 * GB + 60 * MB * s)).id == "TP601"


@pytest.mark.parametrize(
    "allocated",
    [
        lambda s: 8 * GB,
        lambda s: 8 * GB + 5 * MB * s,  # 2 % in all
        lambda s: 8 * GB + min(s, 15) * 300 * MB,  # it settles
        lambda s: 8 * GB + (s % 10) * 300 * MB,
        lambda s: 12 * GB - 60 * MB * s,
    ],
)
def test_a_gpus_memory_that_does_not_grow_for_good(make: Make, allocated: Callable[[int], int]) -> None:
    file = trained(make(), told(allocated=allocated)).host(40, process_cpus=1.0, rss_bytes=2 * GB)
    assert loud(file) == []


def test_a_gpus_memory_that_grows_early_is_an_info(make: Make) -> None:
    file = grows(make(), seconds=14)
    assert loud(file) == []
    (f,) = [f for f in said(file).findings if f.id == "TP601"]
    assert (f.variant, f.severity) == ("early", "info") and f.title.startswith("GPU 0's memory grows")


def test_a_run_that_ran_out_of_memory_says_what_there_was(make: Make) -> None:
    gpu = told(allocated=lambda s: 19 * GB, ooms=1)
    with trained(make(ended="exception", exception="OutOfMemoryError"), gpu).open() as run:
        (note,) = build(run).notes
    assert note == (
        "out of GPU memory: at the end GPU 0 had 19.0 GB allocated, 22.0 GB reserved of 80.0 GB (at most 20.0 GB "
        "and 22.0 GB)"
    )
    with grows(make(ended="exception", exception="OutOfMemoryError"), line()).open() as run:
        model = build(run)
    assert model.notes[0].endswith("; `outs.append(out)` keeps tensors there") and model.urgent_notes == 1
    assert model.notes[0][:40] in console.to_plain(console.summary_lines(model, width=200))
    with trained(make(ended="exception", exception="ValueError"), gpu).open() as run:
        assert build(run).notes == ()


def test_every_view_has_it(make: Make) -> None:
    with trained(make(), told()).open() as run:
        model, page = build(run), render(run)
    lines = console.to_plain(console.show_lines(model, width=200))
    assert "Mem   GPU 0: at most 20.0 GB allocated, 22.0 GB reserved" in lines
    (shown,) = as_json.to_dict(model)["device_memory"]
    assert (shown["peak_allocated_bytes"], shown["peak_rose_steps"], shown["cache"]) == (20 * GB, [0, 1], "needed")
    assert shown["grows_bytes_per_step"] == 0 and shown["last"]["reserved_bytes"] == 22 * GB
    assert 'href="#memory"' in page and "GPU 0: at most 20.0 GB allocated" in page
    with make().steps(20, compute=10.0).open() as run:  # an older file, or no GPU
        model, page = build(run), render(run)
    assert "device_memory" not in as_json.to_dict(model) and "#memory" not in page


@pytest.mark.parametrize(
    "damaged",
    [
        "[]",
        '{"0": 3}',
        '{"0": {"peaks": [1], "readings": [], "rises": []}}',
        json.dumps({"0": {**told(), "readings": [[1, 2]]}}),
        json.dumps({"0": {**told(), "peaks": [1, "<b>"]}}),
        json.dumps({"0": {**told(), "peaks": [1, 1e300]}}),
        json.dumps({"<b>": told()}),
    ],
)
def test_a_damaged_file(make: Make, damaged: str) -> None:
    with make(device_memory=damaged).steps(20, compute=10.0).open() as run:
        assert devices_memory(run) == () and render(run)
