"""Rules about the device on runs that are odd, cut short or hardly seen: what can't be told is not told."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from devices import maker
from trainperf.findings.engine import find
from trainperf.findings.rules import ALL
from trainperf.runfile.schema import CAUSES, MECHANISMS, PHASES
from verdicts import TRAIN, Make, abstained, loud, only, said, unsure

DEVICE_RULES = {f"TP5{i:02}" for i in range(1, 15)}
HOST_CALLS = ("launch_kernel", "memcpy", "stream_sync", "alloc", "free", "pinned_alloc", "module_load", "jit")


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return maker(tmp_path / "a.tpr")


@pytest.mark.parametrize("seed", range(60))
def test_any_run_has_a_verdict_and_no_time_is_told_twice(make: Make, seed: int) -> None:
    """Whatever the tables hold; the sums of what is told stay below what there is, on both clocks."""
    random = Random(seed)

    def part(most: float) -> float:
        return random.choice((0.0, 0.0, random.random() * most, most))

    file = make(source=random.choice(("", "trace")), cpus=random.choice(("", "2", "x")), cpu_quota="1.5")
    for _ in range(random.choice((1, 2, 5, 40))):
        cells = {(p, m): part(4) for p in PHASES for m in random.sample(MECHANISMS, 5)}
        file.step({**cells, ("forward", "launch"): 1.0}, flags=random.choice((0, 0, 16, 32)), compile=part(1))
    wall = file._steps[0][1]["wall_ns"] / 1e6
    names = random.sample(CAUSES, 6)
    idle = [{c: part(wall / 7) for c in names} for _ in file._steps]
    file.gpu(
        lambda step: {c: ns * file._steps[step][1]["wall_ns"] / 1e6 / wall for c, ns in idle[step].items()},
        lead_us=random.choice((0, 3, 400)),
        lost=random.choice((0, 1, 30)),
        kernels=random.choice((0, 1, 900)),
        tiny_kernels=random.choice((0, 1)),
        starved_gaps=random.choice((0, 1, 800)),
        exposed_copy=part(wall / 8),
        collective=wall / 8,
        exposed_collective=part(wall / 8),
    )
    for call in random.sample(HOST_CALLS, 6):
        file.call(call, part(20), count=random.choice((1, 90)), failed=random.choice((0, 1)))
    for i in range(random.choice((0, 1, 14))):
        kind = random.choice(("tensor_core", "no_tensor_core", "collective", "unknown"))
        file.kernel(f"k{i}", part(50), kind=kind, eligible=random.random() < 0.5, tiny=random.choice((0, 9)))
    for way in random.sample(("h2d", "d2h", "d2d", "unknown"), 2):
        file.copy(way, part(20), src=random.choice(("pageable", "pinned", "unknown")), bytes=random.choice((0, 10**7)))
    holder = file.thread(random.choice(("", "hog")))
    file.detail("gil_wait", part(90), thread=holder, count=random.choice((0, 30)))
    file.detail("idle_gil_wait", part(90), thread=holder, stack=random.choice((0, file.stack(f"{TRAIN}:5 f"))))
    file.detail("sample", part(90), phase="forward", state="python", stack=file.stack(f"{TRAIN}:5 f"))
    if random.random() < 0.5:
        file.loader(1, fetches=9, wait=part(90), num_workers=random.choice((0, 3)), ready={0: (4, 9), 2: (5, 9)})
    with file.open() as run:
        found = find(run)
        assert found.verdict.text and len(found.findings) + len(found.abstained) <= len(ALL)
        gpu = run.devices[0].totals
        assert sum(f.idle_ns or 0 for f in found.findings) <= gpu.idle_ns
        claimed: Counter[tuple[str, str]] = Counter()
        for f in found.findings:
            claimed.update(f.claims)
            assert f.cost_ns >= 0 and f.title and f.severity in ("critical", "warning", "info")
        for (phase, mechanism), ns in claimed.items():
            assert ns <= run.matrix_ns[PHASES.index(phase), MECHANISMS.index(mechanism)]


# What cannot be told


def test_work_that_waits_in_the_queue_while_the_device_idles_has_no_verdict(make: Make) -> None:
    file = make().steps(6, launch=20.0).gpu({"unknown": 8.0, "launch": 0.4})
    found = said(file)
    assert loud(file) == [] and unsure(file, "TP501") == "gpu_idle_unseen"
    assert found.verdict.text == "GPU idle 42%, 40% for an unidentified reason: no clear verdict"


def test_what_no_rule_is_about_is_told_by_its_cause(make: Make) -> None:
    file = make().steps(100, {("other", "blocked"): 1.0}, launch=19.0).gpu({"compute": 5.0, "launch": 1.0})
    f = only(file)
    assert (f.id, f.variant, f.params["each"], f.params["others"]) == ("TP501", "compute", 5e6, ("launch 1.0 ms",))


def test_many_small_causes_are_no_finding(make: Make) -> None:
    file = make().steps(100, launch=20.0).gpu({"launch": 1.5, "python": 1.2, "data_wait": 0.8})
    found = said(file)
    assert loud(file) == []
    assert found.verdict.text == "GPU idle 18%, busy 82%: no trouble found above 10% (most: launch 8%, python 6%)"
    assert found.verdict.kind == "healthy"
    slowed = said(file.meta(profiled_percent="80")).verdict
    assert slowed.kind == "partly" and slowed.text.startswith(f"{found.verdict.text}; PyTorch's profiler was on"), (
        slowed
    )


def test_a_verdict_says_how_much_idleness_it_does_not_explain(make: Make) -> None:
    file = make().steps(5, launch=200.0).gpu({"unknown": 120.0}, collective=33.0, exposed_collective=32.0)
    file.kernel("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", 165, kind="collective", count=75)
    f = only(file)
    assert f.id == "TP510" and f.variant == "other" and "60% of the time" in f.confidence_why
    assert said(file).verdict.text.startswith("GPU idle 60%, 60% for an unidentified reason: exposed-communication")


def test_lost_records_make_the_device_unseen(make: Make) -> None:
    file = make().steps(100, launch=10.0, blocked_io=10.0).gpu({"blocked_io": 9.0}, lost=60)
    assert {a.id for a in said(file).abstained} >= DEVICE_RULES
    assert "lost in 60 of 100 steps" in abstained(file, "TP501") and only(file).idle_ns is None
    some = only(make().steps(100, launch=10.0, blocked_io=10.0).gpu({"compute": 9.0}, lost=20))
    assert some.id == "TP501" and "records were lost in 20 steps" in some.confidence_why


def test_a_device_that_was_not_seen(make: Make) -> None:
    file = make().steps(100, compute=20.0).tier("cuda", "off", "no CUPTI")
    found = said(file)
    assert {a.id for a in found.abstained if a.why == "cuda off: no CUPTI"} >= DEVICE_RULES
    assert "the GPU was not seen (cuda off: no CUPTI)" in found.verdict.text


def test_a_trace_without_a_device_says_so(tmp_path: Path) -> None:
    from runfiles import RunFile

    file = RunFile(tmp_path / "t.tpr", source="trace").tier("cuda", "off", "the trace shows no device")
    with file.steps(5, compute=20.0).open() as run:
        found = find(run)
    assert {a.id for a in found.abstained} >= DEVICE_RULES and "the trace shows no device" in found.verdict.text


def test_training_on_the_cpu_has_no_device_to_look_at(tmp_path: Path) -> None:
    from runfiles import RunFile

    file = RunFile(tmp_path / "c.tpr").tier("cuda", "off", "no driver")
    with file.steps(100, compute=20.0).open() as run:
        found = find(run)
    assert not DEVICE_RULES & {a.id for a in found.abstained} and "GPU" not in found.verdict.text
