"""Rules about the device, on runs made by hand: what they say, and when they must be silent."""

from __future__ import annotations

from pathlib import Path

import pytest
from devices import DeviceFile, maker
from trainperf.findings.model import Said
from verdicts import TRAIN, Make, abstained, infos, loud, only, said, unsure


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return maker(tmp_path / "a.tpr")


# One trouble, one finding


def test_a_host_finding_costs_what_the_device_idled_for_it(make: Make) -> None:
    file = make().steps(100, {("fetch", "python"): 6.5}, compute=7.5).gpu({"data_wait": 6.2})
    file.loader(1, fetches=100, wait=650, dataset="Slow")
    found = said(file)
    f = only(file)
    assert f.id == "TP101" and f.cost_ns == f.idle_ns == 620_000_000
    assert "the GPU was idle 6.2 ms a step because of it: 100% of its idle time" in f.evidence
    assert found.verdict.text.startswith("GPU idle 44%: data-starved, 6.2 ms/step (44%): ")


def test_a_host_finding_that_the_device_does_not_feel_is_an_info(make: Make) -> None:
    """It runs ahead: fetching while the device works off its queue costs nothing."""
    file = make().steps(100, {("fetch", "python"): 6.0}, compute=8.0).gpu({"data_wait": 0.2})
    file.loader(1, fetches=100, wait=600, dataset="Slow")
    found = said(file)
    assert [(f.id, f.severity) for f in found.findings if f.id == "TP101"] == [("TP101", "info")]
    (f,) = [f for f in found.findings if f.id == "TP101"]
    assert "the GPU had work meanwhile: it was idle only 0.20 ms a step because of it" in f.evidence
    assert found.verdict.text.startswith("GPU-bound: the GPU is busy 99%") and found.verdict.finding == ""


def test_an_info_that_the_device_does_not_feel_is_left_out(make: Make) -> None:
    file = make().steps(1000, launch=0.7, python=0.7)
    torch = file.stack("/x/site-packages/torch/nn/functional.py:1 relu", f"{TRAIN}:12 Net.forward")
    file.detail("sample", 700, state="python", stack=torch)
    assert "framework-python" not in infos(file.gpu({"python": 0.05}))


def test_a_slow_part_in_which_the_device_works_longer_is_an_info(make: Make) -> None:
    file = make().steps(100, launch=5.0, gpu_wait=20.0).steps(200, launch=5.0, gpu_wait=5.0).gpu({"launch": 0.2})
    (f,) = [f for f in said(file).findings if f.id == "TP401"]
    assert f.severity == "info" and "look for more work on the GPU then" in f.fix and loud(file) == []


def test_what_follows_a_wait_of_the_host_is_not_denied(make: Make) -> None:
    file = make().steps(100, {("other", "gpu_wait"): 6.0}, launch=6.0, python=8.0).gpu({"gpu_wait": 8.5})
    file.call("stream_sync", 600, count=100)
    file.detail("sample", 790, state="python", stack=file.stack(f"{TRAIN}:60 count_tokens"))
    by_id = {f.id: f for f in said(file).findings}
    assert by_id["TP504"].severity == "critical" and by_id["TP302"].severity == "info"
    assert not any("had work" in e for e in by_id["TP302"].evidence)
    assert any("after a wait of the host" in e for e in by_id["TP302"].evidence)


def test_two_findings_of_a_cause_share_its_idleness(make: Make) -> None:
    file = make().steps(100, {("fetch", "python"): 9.0}, compute=11.0).gpu({"data_wait": 8.0})
    file.loader(1, fetches=100, wait=450)
    file.loader(2, fetches=100, wait=450, ready={0: (100, 450)}, num_workers=2)
    by_id = {f.id: f for f in said(file).findings}
    assert by_id["TP101"].cost_ns == by_id["TP102"].cost_ns == 400_000_000
    assert "TP503" not in by_id


def test_no_idle_nanosecond_is_told_twice(make: Make) -> None:
    idle = {"data_wait": 4, "gil_wait": 3, "gpu_wait": 3, "launch": 3, "python": 2, "blocked_io": 2, "h2d_copy": 2}
    file = make().steps(60, {("fetch", "blocked"): 5.0}, gil_wait=3.0, blocked_io=2.0, python=3.0, launch=12.0)
    file.gpu(idle, lead_us=5, starved_gaps=100).call("stream_sync", 300, count=60).loader(1, fetches=60, wait=300)
    file.copy("h2d", 60, src="pageable", dst="device", count=60, bytes=60_000_000, exposed=30)
    found = said(file)
    told = sum(f.idle_ns or 0 for f in found.findings)
    assert 0 < told <= 60 * sum(idle.values()) * 1_000_000
    assert sum(f.cost_ns for f in found.findings) <= 60 * 25 * 1_000_000
    assert {f.id for f in found.findings} >= {"TP101", "TP201", "TP504", "TP505", "TP506"} - {"TP201"}


def test_validation_costs_its_wall_time_also_while_the_device_is_busy(make: Make) -> None:
    file = make().steps(40, compute=10.0, validation=12.0).gpu({"validation": 1.0})
    (f,) = [f for f in said(file).findings if f.id == "TP306"]
    assert f.severity == "warning" and f.cost_ms_per_step == pytest.approx(12.0)


# The GIL


def hog(file: DeviceFile, ms: float) -> int:
    at = file.stack("/usr/lib/python3.11/json/__init__.py:346 loads", f"{TRAIN}:88 index")
    thread = file.thread("indexer")
    file.detail("idle_gil_wait", ms, thread=thread, stack=at, count=100)
    return at


def test_the_gil_finding_says_what_the_device_waited_for(make: Make) -> None:
    file = make().steps(100, compute=9.0, gil_wait=31.0).gpu({"gil_wait": 31.0})
    at = hog(file, 3100)
    file.detail("gil_wait", 3100, thread=file.thread("other"), stack=at)
    f = only(file)
    assert f.id == "TP201"
    assert f.params["device_wait"] == 31e6 and f.params["device_holder"] == Said("named_thread", {"name": "indexer"})
    assert f.params["device_at"] == Said("in", {"place": "json.loads called by index (train.py:88)"})
    assert f.tells_idle and not any("idle" in e for e in f.evidence)


def test_a_gil_wait_of_another_thread_is_the_devices_own_finding(make: Make) -> None:
    """Autograd's thread waits, which the step thread's time does not show."""
    file = make().steps(100, compute=20.0).gpu({"gil_wait": 8.0})
    hog(file, 800)
    f = only(file)
    assert (f.id, f.who, f.where) == ("TP502", ("indexer",), "train.py:88")
    assert f.params["device_wait"] == 8e6 and f.cost_ms_per_step == pytest.approx(8.0)
    unread = only(make().steps(100, compute=20.0).gpu({"gil_wait": 8.0}))
    assert (unread.id, unread.variant, unread.where) == ("TP502", "unread", "")
    blind = make().steps(100, compute=20.0).gpu({"gil_wait": 8.0}).tier("gil_waits", "off", "a trace")
    assert abstained(blind, "TP502") == "gil_waits off: a trace"


# What the device waits for


def test_data_without_loaders_as_in_a_trace(make: Make) -> None:
    file = make(source="trace").steps(6, {("fetch", "unknown"): 6.0}, launch=14.0).gpu({"data_wait": 5.5})
    found = said(file)
    assert [f.id for f in found.findings] == ["TP503"]
    assert found.findings[0].severity == "warning" and "only 6 steps" in found.findings[0].confidence_why
    assert found.verdict.text.startswith("GPU idle 28%: gpu-starved-by-data, 5.5 ms/step (28%)")


@pytest.mark.parametrize(
    ("ready", "variant"), [({2: (190, 560), 0: (10, 40)}, "handed_over_slowly"), ({-1: (200, 600)}, "not_ready")]
)
def test_a_batch_that_is_ready_is_not_said_to_be_missing(
    make: Make, ready: dict[int, tuple[int, float]], variant: str
) -> None:
    """What the step's own fetches took is less than the device lost by them."""
    file = make(cpus="8").steps(200, {("fetch", "native"): 1.2}, launch=12.8).gpu({"data_wait": 4.0})
    file.loader(1, fetches=200, wait=600, ready=ready, num_workers=12)
    file.detail("sample", 200, phase="fetch", state="native", stack=file.stack(f"{TRAIN}:50 train"))
    (f,) = (f for f in said(file).findings if f.id == "TP503")
    assert f.variant == variant and f.params["full"], "12 workers share 8 CPUs: more of them do not help"
    assert f.params["taking"] == (pytest.approx(560e6 / 190, rel=0.01) if variant == "handed_over_slowly" else None)


def test_more_workers_than_cpus_are_advised_where_they_wait(make: Make) -> None:
    for share, advised in ((0.05, (9, True, False)), (0.9, (8, False, True))):
        file = make(cpus="8").steps(200, {("fetch", "native"): 1.2}, launch=12.8).gpu({"data_wait": 4.0})
        file.loader(1, fetches=200, wait=600, ready={-1: (200, 600)}, num_workers=8)
        file.worker(1, 70, cpu_share=share, seconds=12, states={"R" if share > 0.5 else "S": 12})
        f = next(f for f in said(file).findings if f.id == "TP503")
        assert (f.params["workers"], f.params["waiting"], f.params["full"]) == advised


def test_batches_that_the_loop_makes_while_the_device_waits(make: Make) -> None:
    file = make().steps(100, {("fetch", "python"): 1.0}, launch=19.0).gpu({"data_wait": 4.0})
    file.detail("sample", 90, phase="fetch", state="python", stack=file.stack(f"{TRAIN}:50 batches"))
    (f,) = (f for f in said(file).findings if f.id == "TP503")
    assert (f.variant, f.where) == ("in_the_loop", "train.py:50")


def test_an_info_that_the_device_idled_for_is_in_the_verdict(make: Make) -> None:
    file = make()
    file.step({("forward", "python"): 900.0, ("forward", "native"): 300.0}, compile=1200.0, flags=16)
    file.steps(99, launch=1.0, gpu_wait=12.0)
    file.span("compile", 1200, step=0)
    found = said(file.gpu({"python": 6.0, "launch": 2.2}))
    assert loud(file) == [] and "; no other trouble found above 10%" in found.verdict.text
    assert ": torch.compile warmed up, " in found.verdict.text


def sync(file: DeviceFile, *, idle: float = 4.0, calls: int = 200, small: int = 200) -> DeviceFile:
    file.steps(100, {("other", "gpu_wait"): 6.0}, launch=14.0).gpu({"gpu_wait": idle})
    file.call("stream_sync", 600, count=calls).call("launch_kernel", 100, count=9000)
    return file.copy("d2h", 1, src="device", dst="pinned", count=calls, small=small)


def test_item_in_the_loop_names_the_line(make: Make) -> None:
    file = sync(make())
    at = file.stack("/x/site-packages/torch/_tensor.py:10 __float__", f"{TRAIN}:61 train")
    file.detail("call", 590, state="stream_sync", stack=at)
    f = only(file)
    assert (f.id, f.where, f.severity) == ("TP504", "train.py:61", "critical")
    assert (f.variant, f.params["rate"], f.params["number"]) == ("numbers", 2, "loss")


def test_a_sync_while_the_device_works_is_no_trouble(make: Make) -> None:
    file = sync(make(), idle=0.3)
    assert loud(file) == [] and "gpu-bound" in infos(file)


def test_syncs_that_read_no_numbers_are_not_called_item(make: Make) -> None:
    f = only(sync(make(), small=0))
    assert (f.id, f.variant) == ("TP504", "sync")


def test_rules_about_calls_abstain_without_them(make: Make) -> None:
    file = make().steps(100, {("other", "gpu_wait"): 6.0}, launch=14.0).gpu({"gpu_wait": 4.0})
    for id in ("TP504", "TP508", "TP509"):
        assert unsure(file, id) == "no_calls"
    assert loud(file) == ["gpu-idle"]


def copies(file: DeviceFile, kind: str, *, exposed: float = 150.0) -> DeviceFile:
    file.steps(100, {("transfer", "copy"): 3.0}, launch=17.0).gpu({"h2d_copy": 1.0}, exposed_copy=1.5)
    file.copy("h2d", 200, src=kind, dst="device", count=200, bytes=600_000_000, exposed=exposed)
    return file.call("memcpy", 300, count=200)


def test_pageable_copies(make: Make) -> None:
    f = only(copies(make(), "pageable"))
    assert f.id == "TP505" and f.cost_ms_per_step == pytest.approx(2.5) and f.idle_ns == 100_000_000
    assert (f.params["copies"], f.params["bytes"], f.params["speed"]) == (2, 6e6, pytest.approx(3e9, rel=0.01))
    assert "pageable-copies" not in loud(copies(make(), "pinned"))
    assert loud(copies(make(), "pageable", exposed=0.0)) == ["pageable-copies"]


def test_copies_whose_memory_is_not_known(make: Make) -> None:
    assert unsure(copies(make(), "unknown"), "TP505") == "memory_unseen"
    few = make().steps(100, launch=17.0).gpu({}).copy("h2d", 1, src="unknown", dst="device", count=100, bytes=1_000_000)
    assert abstained(few, "TP505") == ""


def launching(make: Make, **options: float) -> DeviceFile:
    facts = {"kernels": 800, "tiny_kernels": 700, "starved_gaps": 400, "lead_us": 6} | options
    return make().steps(100, {("forward", "launch"): 12.0}, python=8.0).gpu({"launch": 6.0, "python": 4.0}, **facts)


def test_launch_bound(make: Make) -> None:
    f = only(launching(make))
    assert (f.id, f.variant) == ("TP506", "tiny") and f.cost_ms_per_step == pytest.approx(10.0)
    assert (f.params["kernels"], f.params["tiny"]) == (800, 0.875)
    slow = only(launching(make, starved_gaps=90))  # nearly each launch is waited for, and takes long
    assert slow.id == "TP506" and slow.params["gap_us"] == pytest.approx(111, abs=1)
    large = only(launching(make, tiny_kernels=10))
    assert (large.id, large.variant) == ("TP506", "large")


@pytest.mark.parametrize("facts", [{"lead_us": 800.0}, {"starved_gaps": 20}, {"starved_gaps": 0}])
def test_gaps_that_are_no_launching(make: Make, facts: dict[str, float]) -> None:
    """A full queue, or long stalls: it idles, but not because launches are slow."""
    file = launching(make, **facts)
    assert loud(file) == ["gpu-idle"] and only(file).cause == "launch"


def test_the_users_own_python_is_told_by_the_host_finding(make: Make) -> None:
    file = make().steps(100, launch=10.0, python=10.0).gpu({"python": 8.0}, lead_us=5, starved_gaps=10, kernels=100)
    file.detail("sample", 990, state="python", stack=file.stack(f"{TRAIN}:60 count_tokens"))
    f = only(file)
    assert f.id == "TP302" and "the GPU was idle 8.0 ms a step because of it: 100% of its idle time" in f.evidence


def test_tiny_kernels_of_a_busy_device_are_mentioned(make: Make) -> None:
    file = make().steps(100, launch=20.0).gpu({}, kernels=2000, tiny_kernels=1800)
    file.kernel("void at::native::vectorized_elementwise_kernel<4, F>(int, F)", 900, count=90000, tiny=90000)
    found = said(file)
    assert {"tiny-kernels", "gpu-bound"} <= set(infos(file)) and loud(file) == []
    (f,) = [f for f in found.findings if f.id == "TP507"]
    assert f.variant == "busy" and f.params["names"] == ("vectorized_elementwise_kernel",)
    assert "tiny-kernels" not in infos(launching(make))


def test_gaps_between_kernels_that_were_launched_are_not_the_hosts(make: Make) -> None:
    """A part of the idleness that is called launch: the device's own pause between two kernels."""
    file = make().steps(100, launch=20.0)
    f = only(file.gpu({"launch": 4.0}, between=3.5, kernels=2000, tiny_kernels=1800))
    assert (f.id, f.variant) == ("TP507", "pauses") and f.cost_ms_per_step == pytest.approx(3.5)
    assert said(file).verdict.text.startswith("GPU idle 20%: tiny-kernels, 3.5 ms/step (18%)")
    both = make().steps(100, {("forward", "launch"): 20.0})
    both.gpu({"launch": 8.0}, between=3.0, kernels=800, tiny_kernels=700, starved_gaps=400, lead_us=6)
    costs = {f.id: f.cost_ms_per_step for f in said(both).findings}
    assert costs == {"TP506": pytest.approx(5.0), "TP507": pytest.approx(3.0)}


def test_launching_is_not_judged_where_leads_are_not_known(make: Make) -> None:
    assert unsure(launching(make, lead_us=0), "TP506") == "leads_unseen"


def test_allocator_churn_and_what_a_warm_up_is(make: Make) -> None:
    file = make().steps(100, {("forward", "cuda_alloc"): 2.0}, launch=18.0).gpu({"cuda_alloc": 1.9})
    file.call("alloc", 150, count=400).call("free", 50, count=400)
    f = only(file)
    assert (f.id, f.variant) == ("TP508", "churn") and not f.params["early"]
    assert (f.params["allocs"], f.params["failed"]) == (400, 0)
    early = make().steps(100, {("forward", "cuda_alloc"): 2.0}, launch=18.0)
    early.gpu(lambda step: {"cuda_alloc": 15.0 if step < 10 else 0.0}).call("alloc", 150, count=40)
    assert loud(early) == [] and "allocator-churn" in infos(early)


def test_an_allocation_that_had_to_be_tried_again(make: Make) -> None:
    file = make().steps(100, launch=20.0).gpu({"cuda_alloc": 0.1})
    file.call("alloc", 5, count=40, failed=6, steps=6).call("free", 5, count=60)
    (f,) = [f for f in said(file).findings if f.id == "TP508"]
    assert f.severity == "info" and f.cost_ns == 0 and (f.variant, f.params["failed"]) == ("full", 6)
    healthy = make().steps(100, launch=20.0).gpu({"cuda_alloc": 0.1}).call("alloc", 5, count=40)
    assert "allocator-churn" not in infos(healthy)


def test_an_error_for_memory_that_the_program_caught_is_no_full_memory(make: Make) -> None:
    """A search for the batch size: it failed, and failed again when there was room."""
    caught = make().steps(100, launch=20.0).gpu({"cuda_alloc": 0.1})
    caught.call("alloc", 5, count=40, failed=2, steps=10).call("free", 5, count=60)
    assert "allocator-churn" not in infos(caught)
    early = make().steps(100, {("forward", "cuda_alloc"): 2.0}, launch=18.0)
    early.gpu(lambda step: {"cuda_alloc": 15.0 if step < 10 else 0.0})
    early.call("alloc", 150, count=40, failed=2, steps=10).call("free", 5, count=60)
    (f,) = [f for f in said(early).findings if f.id == "TP508"]
    assert f.severity == "info" and f.params["early"]


def test_empty_cache_is_named(make: Make) -> None:
    file = make().steps(100, {("other", "cuda_alloc"): 3.0}, launch=17.0).gpu({"cuda_alloc": 3.0})
    file.call("alloc", 100, count=500).call("free", 200, count=500)
    at = file.stack("/x/site-packages/torch/cuda/memory.py:220 empty_cache", f"{TRAIN}:70 train")
    file.detail("call", 200, phase="other", state="free", stack=at)
    f = only(file)
    assert (f.id, f.variant, f.where) == ("TP508", "emptied", "train.py:70")


def test_module_loading_in_steady_state_and_as_a_warm_up(make: Make) -> None:
    def loading(idle: object, *, jit: float = 180) -> DeviceFile:
        file = make().steps(100, {("forward", "module_load"): 2.0}, launch=18.0).gpu(idle)
        return file.call("module_load", 20, count=50).call("jit", jit, count=90)

    f = only(loading({"module_load": 2.0}))
    assert (f.id, f.variant) == ("TP509", "compiles")
    for jit, variant in ((180, "compiled"), (5, "loaded")):
        warm_up = loading(lambda step: {"module_load": 15.0 if step < 10 else 0.0}, jit=jit)
        assert loud(warm_up) == []
        (f,) = (f for f in said(warm_up).findings if f.id == "TP509")
        assert (f.variant, f.severity, f.fix_share) == (variant, "info", 0.0)


@pytest.mark.parametrize(
    "cause", ["blocked_io", "checkpoint", "cuda_alloc", "gc", "logging", "throttled", "validation", "module_load"]
)
def test_idleness_that_no_other_rule_tells(make: Make, cause: str) -> None:
    """Of another thread's, say: the training thread spends no time on it."""
    f = only(make().steps(100, launch=20.0).gpu({cause: 4.0}))
    assert (f.id, f.variant, f.cause, f.params["of_idle"]) == ("TP501", cause, cause, pytest.approx(1.0, abs=0.001))


TUNERS = {
    "Triton": "/x/site-packages/triton/runtime/autotuner.py:149 _bench",
    "Inductor": "/x/site-packages/torch/_inductor/runtime/triton_heuristics.py:1500 benchmark_all_configs",
    "cuDNN": "/x/site-packages/torch/nn/modules/conv.py:548 _conv_forward",
}


def tuning(file: DeviceFile, frame: str, *, sections: range = range(64), state: str = "event_sync") -> DeviceFile:
    """4 ms of 20 in each step are spent in a function that the model's own calls."""
    file.steps(64, {("forward", "gpu_wait"): 4.0}, launch=16.0).gpu({"gpu_wait": 0.2})
    stack = file.stack(frame, f"{TRAIN}:12 Net.forward", f"{TRAIN}:30 train")
    for section in sections:
        file.detail("call", 256 / len(sections), state=state, stack=stack, section=section)
    return file.call(state, 256, count=6400)


@pytest.mark.parametrize("by", TUNERS)
def test_kernels_are_tuned_again_and_again(make: Make, by: str) -> None:
    f = only(tuning(make(), TUNERS[by]))
    assert (f.id, f.slug, f.variant) == ("TP514", "autotuning", by)
    assert f.cost_ms_per_step == pytest.approx(4.0) and f.where.startswith("train.py:12")
    warm_up = tuning(make(), TUNERS[by], sections=range(8))
    assert "autotuning" in infos(warm_up) and loud(warm_up) == []


def test_what_is_no_tuning(make: Make) -> None:
    conv, triton = TUNERS["cuDNN"], "/x/site-packages/triton/runtime/autotuner.py:210 run"
    assert "autotuning" not in {f.slug for f in said(tuning(make(), triton)).findings}  # a launch of what was found
    assert "autotuning" not in {f.slug for f in said(tuning(make(), conv, state="launch_kernel")).findings}
    full = tuning(make(), conv).call("alloc", 5, count=10, failed=5)  # memory ran out: the allocator waits
    assert "autotuning" not in {f.slug for f in said(full).findings}
    assert unsure(make().steps(100, launch=20.0).gpu({}), "TP514") == "tuner_unseen"


def test_exposed_communication(make: Make) -> None:
    file = make().steps(50, launch=100.0).gpu({}, collective=40.0, exposed_collective=25.0)
    file.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 2000, kind="collective")
    f = only(file)
    assert (f.id, f.cause, f.severity) == ("TP510", "collective", "critical")
    assert f.cost_ms_per_step == pytest.approx(25.0) and f.idle_ns == 0
    assert f.variant == "gradients" and f.params["hidden"] == pytest.approx(0.375)
    hidden = make().steps(50, launch=100.0).gpu({}, collective=40.0, exposed_collective=2.0)
    assert loud(hidden) == []
    assert "gpu-bound" not in infos(file) and "gpu-bound" in infos(hidden)


# What it does


def test_matrix_products_without_tensor_cores(make: Make) -> None:
    def products(kind: str, **description: object) -> DeviceFile:
        file = make().steps(100, launch=20.0).gpu({}, info=description)
        return file.kernel("ampere_sgemm_128x64_nn", 900, kind=kind, eligible=True).kernel("relu", 300)

    f = only(products("no_tensor_core", compute="8.0"))
    assert (f.id, f.variant, f.cost_ns) == ("TP512", "tf32", 0)
    assert said(products("no_tensor_core")).verdict.text == (
        "GPU idle 0%: no-tensor-cores: matmuls without tensor cores are 45% of step time"
    )
    volta = only(products("no_tensor_core", computeMajor=7))
    assert volta.variant == "volta"
    assert loud(products("no_tensor_core", computeMajor=6)) == []
    assert loud(products("tensor_core")) == []
    assert unsure(products("unknown"), "TP512") == "names_unclear" and loud(products("unknown")) == []


def test_few_kernels_that_are_most_of_the_work_are_mentioned(make: Make) -> None:
    def work(*costs: float) -> DeviceFile:
        file = make().steps(100, launch=20.0).gpu({})
        for i, ms in enumerate(costs):
            file.kernel(f"kernel_{i}", ms)
        return file

    (f,) = [f for f in said(work(900, 300, 200, *[30] * 12)).findings if f.id == "TP511"]
    assert f.severity == "info" and (f.params["few"], f.params["all"], f.params["name"]) == (3, 15, "kernel_0")
    assert f.params["share"] == pytest.approx(1400 / 1760)
    assert "few-ops" not in infos(work(*[100] * 20)) and "few-ops" not in infos(work(900, 300, 200, 30))


def test_gpu_bound_is_healthy_and_says_what_helps(make: Make) -> None:
    file = make().steps(100, {("other", "gpu_wait"): 9.0}, launch=11.0).gpu({"launch": 0.4}, lead_us=4000)
    file.call("queue_full", 800, count=300).call("stream_sync", 100, count=100).kernel("gemm", 900, kind="tensor_core")
    found = said(file)
    (f,) = [f for f in found.findings if f.id == "TP513"]
    assert f.severity == "info" and f.cost_ns == 0 and (f.params["full"], f.params["waits"]) == (300, 9e6)
    assert loud(file) == []
    assert found.verdict.text == "GPU-bound: the GPU is busy 98% of the time; no trouble found above 10%"
    assert found.verdict.kind == "healthy"
    slowed = said(file.meta(anomaly_percent="100")).verdict
    assert slowed.kind == "partly" and slowed.text.startswith(f"{found.verdict.text}; anomaly detection was on"), slowed
