"""The live tracing of a GPU under a real watch(), on the scripted libcupti: each test a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest
import trainperf
from cuda_child import lost, play, tier
from fakes import fake_libraries

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="CUPTI is traced on Linux")


def test_everything_arrives_and_the_library_is_left_clean(tmp_path: Path) -> None:
    facts = play(
        """
        with trainperf.watch(path):
            train()
        kinds = [kind for kind in range(60) if gpu.fake.fakecupti_kind_enabled(kind)]
        tell(produced=gpu.count("produced"), delivered=gpu.count("delivered"), held=gpu.count("held"), kinds=kinds,
             subscribed=gpu.fake.fakecupti_subscribed(), inits=gpu.cuda.fakecuda_inits(),
             disordered=gpu.count("disordered"))
        """,
        tmp_path,
    )
    assert tier(facts) == "cupti-full"
    assert lost(facts) == {}
    assert facts["produced"] == facts["delivered"] > 40 * 21
    assert facts["held"] == 0
    assert facts["kinds"] == [] and facts["subscribed"] == 0
    assert facts["inits"] == 0  # CUDA is the program's to initialise
    assert facts["disordered"] == 0
    assert facts["run"].feeds_device
    assert "130001" in facts["run"].meta["cupti"]
    assert facts["run"].overhead_ns["cupti"] > 0


def test_what_nvml_tells_is_in_the_run_once_the_program_uses_the_gpu(tmp_path: Path) -> None:
    facts = play(
        """
        gpu.nvml(busy=97, sm=1410, sm_max=1980, power=500_000, reasons=4)
        with trainperf.watch(path):
            time.sleep(1.2)  # a reading before
            begun = gpu.library("nvml").fakenvml_begun()
            train()
        tell(before=begun, after=gpu.library("nvml").fakenvml_begun(), inits=gpu.cuda.fakecuda_inits())
        """,
        tmp_path,
    )
    run = facts["run"]
    assert (facts["before"], facts["after"], facts["inits"]) == (0, 0, 0)
    assert run.tiers["nvml"].tier == "nvml" and run.tiers["nvml"].why == ""
    last = {name: int(values[-1]) for name, values in run.machine.items() if name.startswith("gpu_")}
    assert last["gpu_sm_mhz:0"] == 1410 and last["gpu_busy_percent:0"] == 97 and last["gpu_throttle_reasons:1"] == 4


def test_off_is_off(tmp_path: Path) -> None:
    facts = play(
        """
        with trainperf.watch(path, cuda="off"):
            train(5)
        tell(calls=gpu.calls("cuptiSubscribe_v2"))
        """,
        tmp_path,
    )
    assert tier(facts) == "off: not asked for"
    assert facts["calls"] == 0


def test_without_a_driver_the_tier_says_so(tmp_path: Path) -> None:
    import ctypes

    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    else:
        pytest.skip("this machine has a driver")
    with trainperf.watch(tmp_path / "a.tpr", verbose=False) as run:
        import torch

        torch.ones(1, requires_grad=True).sum().backward()
    found = run.run.tiers["cuda"]
    assert (found.tier, found.why) == ("off", "no driver (libcuda.so.1)")
    assert "cuda" not in run.summary()  # a machine without a GPU lacks nothing


OFF = {
    "gpu.fake.fakecupti_set_other_subscriber(b'CUPTI for ncu')": "another tool has CUPTI: CUPTI for ncu",
    "gpu.fake.fakecupti_set_version(26); gpu.fake.fakecupti_set_other_subscriber(b'')": "another tool has CUPTI: nsys",
    "gpu.fails('*', 999)": "CUPTI_ERROR_UNKNOWN (999)",
    "gpu.fails('cuptiActivityEnable', 15)": "cuptiActivityEnable: CUPTI_ERROR_SCRIPTED (15)",
    "gpu.fake.fakecupti_set_version(20)": "older than CUDA 12.4",
    "gpu.fake.fakecupti_set_version(130000)": "13.0 without its Update 1",
}


def test_what_keeps_it_off_is_said_and_training_goes_on(tmp_path: Path) -> None:
    facts = play(
        f"""
        for number, script in enumerate({list(OFF)}):
            gpu.fake.fakecupti_reset()
            exec(script)
            with trainperf.watch(path + str(number)):
                train(3)
            # Asked once, and let be.
            assert gpu.calls("cuptiActivityEnable") <= 1 and gpu.calls("cuptiActivityFlushAll") == 0, script
        """,
        tmp_path,
    )
    assert facts["run"] is None
    for number, why in enumerate(OFF.values()):
        run = trainperf.open(tmp_path / f"a.tpr{number}")
        found = tier({"run": run})
        assert found.startswith("off: ") and why in found
        assert run.steps.count.sum() == 3


def test_a_failure_in_the_middle_ends_tracing_and_nothing_else(tmp_path: Path) -> None:
    facts = play(
        """
        with trainperf.watch(path):
            train(20)
            gpu.fails("cuptiActivityFlushAll", 999)
            train(40)
            time.sleep(0.25)
            before = gpu.calls("cuptiActivityFlushAll")
            time.sleep(0.25)
            tell(more=gpu.calls("cuptiActivityFlushAll") - before)
        """,
        tmp_path,
    )
    assert tier(facts) == "off: cuptiActivityFlushAll: CUPTI_ERROR_UNKNOWN (999)"
    assert facts["more"] == 0


def test_attached_late_is_said(tmp_path: Path) -> None:
    facts = play(
        """
        gpu.start()  # the program has used CUDA before the watch
        with trainperf.watch(path):
            train(5)
        """,
        tmp_path,
    )
    assert tier(facts).startswith("cupti-full: attached late")


def test_beside_the_subscription_that_a_profile_before_the_watch_left(tmp_path: Path) -> None:
    facts = play(
        """
        gpu.fake.fakecupti_set_other_subscriber(b"CUPTI for <not provided>")  # Kineto's, as CUPTI 13.0 says it
        with trainperf.watch(path):
            train(20)
        tell(produced=gpu.count("produced"), delivered=gpu.count("delivered"))
        """,
        tmp_path,
    )
    assert tier(facts).startswith("cupti-full: beside a user of CUPTI's that gave no name")
    assert facts["produced"] == facts["delivered"] > 0
    assert lost(facts) == {}


def test_each_version_of_cupti(tmp_path: Path) -> None:
    versions = [22, 24, 26, 28, 130001, 130101, 130301, 130500]
    play(
        f"""
        for version in {versions}:
            gpu.fake.fakecupti_reset()
            gpu.fake.fakecupti_set_version(version)
            gpu.fake.fakecupti_set_worker(version % 2)
            with trainperf.watch(path + str(version)):
                train(5)
            assert gpu.count("produced") == gpu.count("delivered") > 5 * 20, version
            assert gpu.count("crashes") == 0, version
        """,
        tmp_path,
    )
    for version in versions:
        run = trainperf.open(tmp_path / f"a.tpr{version}")
        assert tier({"run": run}).startswith("cupti-full")
        assert lost({"run": run}) == {}


def test_lost_records_are_counted_in_the_run(tmp_path: Path) -> None:
    facts = play(
        """
        with trainperf.watch(path):
            train(10)
            while not gpu.count("dropped"):  # once the buffer is full, or was flushed, that is in use
                gpu.fake.fakecupti_hoard(40)   # nothing is left to hand out, nor what was being read just now
                train(10)
            gpu.fake.fakecupti_hoard(0)
            train(10)
        tell(produced=gpu.count("produced"), delivered=gpu.count("delivered"), dropped=gpu.count("dropped"))
        """,
        tmp_path,
    )
    dropped = lost(facts)
    assert dropped["cupti_dropped"] == facts["dropped"] > 0
    assert facts["produced"] == facts["delivered"] + facts["dropped"]


def test_the_clock_may_be_set_and_may_be_a_counter(tmp_path: Path) -> None:
    facts = play(
        """
        gpu.fake.fakecupti_set_clock(2.9, 12345)
        with trainperf.watch(path):
            train(20)
            gpu.fake.fakecupti_step_clock(-3600 * 10**9)
            train(20)
        tell(produced=gpu.count("produced"), delivered=gpu.count("delivered"))
        """,
        tmp_path,
    )
    assert facts["produced"] == facts["delivered"]
    assert lost(facts).get("cupti_clock_jumps") == 1


def test_a_program_that_ends_before_its_device_does(tmp_path: Path) -> None:
    """Its last work is waited for a moment; what takes longer is cut off, and only the steps it ran in are marked."""
    facts = play(
        """
        def run(name, ms):
            gpu.start()
            with trainperf.watch(f"{path}.{name}", verbose=False):
                for n, batch in enumerate(DataLoader([torch.ones(1)] * 30, batch_size=None)):
                    for i in range(10):
                        gpu.launch("gemm", ms=0.2)
                    (weight * batch).sum().backward()
                    optimizer.step()
                    if n < 27:
                        gpu.synchronize()
                    elif n == 27:
                        gpu.launch("last", ms=ms)
            gpu.synchronize()
        run("soon", 60)
        run("late", 1500)
        """,
        tmp_path,
    )
    assert facts["stderr"] == ""
    for name in ("soon", "late"):
        run = trainperf.open(tmp_path / f"a.tpr.{name}")
        (device,) = run.devices
        steps = len(device.steps.incomplete)
        assert steps >= 29
        assert not device.steps.incomplete[:26].any(), device.steps.incomplete
        assert (device.steps.busy_ns + device.steps.idle_ns == run.steps.wall_ns[:steps]).all()
        if name == "soon":
            assert not device.steps.incomplete.any()
            assert run.dropped["cupti_zero_time"] == 0
        else:
            assert run.dropped["cupti_zero_time"] > 0
            assert device.steps.incomplete[-1]


def test_what_is_lost_before_a_device_is_known_makes_no_device(tmp_path: Path) -> None:
    facts = play(
        """
        from ctypes import c_int64, c_uint64
        gpu.fake.fakecupti_ticks_at.restype = c_uint64

        def on_the_fourth_gpu():
            at = [c_uint64(gpu.fake.fakecupti_ticks_at(c_int64(time.monotonic_ns() + ns))) for ns in (-200_000, 0)]
            gpu.fake.fakecupti_put_kernel(3, 7, 0, b"kernel", *at, c_uint64(0), 0)

        with trainperf.watch(path):
            train(5, kernels=0)
            gpu.fake.fakecupti_step_clock(-3600 * 10**9)
            time.sleep(0.5)
            train(20, kernels=0, between=on_the_fourth_gpu)
        """,
        tmp_path,
    )
    assert lost(facts).get("cupti_clock_jumps") == 1
    (device,) = facts["run"].devices
    assert device.id == 3
    assert device.steps.incomplete.any()


def test_launches_of_two_threads_whose_ids_are_far_apart_are_both_known(tmp_path: Path) -> None:
    """Most calls of CUDA's are not traced, and take an id all the same: 65,536 of them can go by between two looks."""
    facts = play(
        """
        from concurrent.futures import ThreadPoolExecutor
        from itertools import count
        ids = count(1_000_000, 2 * 65_536 + 10)

        def launch(correlation):
            gpu.fake.fakecupti_set_next_correlation(correlation)
            gpu.launch("apart", ms=0.01)

        with ThreadPoolExecutor(1) as pool:
            def two_threads():
                first = next(ids)
                pool.submit(launch, first).result()
                launch(first + 65_536)

            with trainperf.watch(path):
                train(60, kernels=0, between=two_threads)
                time.sleep(0.5)  # what has no launch is looked for again
                train(60, kernels=0, between=two_threads)
        """,
        tmp_path,
    )
    assert lost(facts) == {}
    (device,) = facts["run"].devices
    assert device.totals.kernels == 240
    assert not device.steps.incomplete.any()


def test_more_devices_than_a_run_tells_of_are_said(tmp_path: Path) -> None:
    facts = play(
        """
        from ctypes import c_int64, c_uint64
        gpu.fake.fakecupti_ticks_at.restype = c_uint64

        def on_18_gpus():
            at = [c_uint64(gpu.fake.fakecupti_ticks_at(c_int64(time.monotonic_ns() + ns))) for ns in (-200_000, 0)]
            for device in range(18):
                gpu.fake.fakecupti_put_kernel(device, 7, 0, b"kernel", *at, c_uint64(0), 0)

        with trainperf.watch(path):
            train(20, kernels=0, between=on_18_gpus)
        """,
        tmp_path,
    )
    run = facts["run"]
    assert len(run.devices) == 16
    assert run.dropped["device_ops"] == 2 * 20
    assert [note for note in run.notes if "devices" in note] == [
        "more than 16 devices were used: the run tells of the first 16 of them only"
    ]


def test_fork_exit_exception_and_kill(tmp_path: Path) -> None:
    forked = play(
        """
        with trainperf.watch(path):
            train(10)
            child = os.fork()
            if child == 0:
                train(20)          # its own use of the GPU meets buffers that nobody reads
                gpu.fake.fakecupti_steal_callbacks(0)
                os._exit(0)
            status = os.waitpid(child, 0)[1]
            train(10)
        tell(status=status)
        """,
        tmp_path,
    )
    assert forked["status"] == 0
    assert tier(forked) == "cupti-full" and lost(forked) == {}

    for number, (end, code) in enumerate((("raise ValueError", 1), ("os._exit(4)", 4))):
        folder = tmp_path / str(number)
        folder.mkdir()
        left = play(f"trainperf.start(path)\ntrain(30)\ntime.sleep(1.2)\n{end}", folder, code=code)
        assert tier(left) == "cupti-full"
    assert left["run"].meta.get("ended") is None  # os._exit: killed


NEIGHBOUR = """
import torch.autograd.profiler as profiler
from torch.profiler import ProfilerActivity

def kineto_begins():
    assert not gpu.fake.fakecupti_subscribed() and not gpu.fake.fakecupti_kind_enabled(10)
    gpu.fake.fakecupti_steal_callbacks(1)
    gpu.fake.cuptiActivityEnable(10)
    gpu.fake.fakecupti_set_clock(2.9, 0)         # and leaves its clock behind

def kineto_ends():
    gpu.fake.cuptiActivityFlushAll(1)
    gpu.fake.fakecupti_steal_callbacks(0)
"""


def test_torch_profiler_inside_the_watch_gets_cupti_and_gives_it_back(tmp_path: Path) -> None:
    facts = play(
        NEIGHBOUR
        + """
with trainperf.watch(path):
    train(20)
    config = profiler.profile(use_device=None).config(create_trace_id=True)
    activities = {ProfilerActivity.CPU, ProfilerActivity.CUDA}
    profiler._prepare_profiler(config, {ProfilerActivity.CPU})   # of the CPU alone: nothing to do with us
    assert gpu.fake.fakecupti_subscribed()
    profiler._enable_profiler(config, {ProfilerActivity.CPU})
    profiler._disable_profiler()
    assert gpu.fake.fakecupti_subscribed()

    profiler._prepare_profiler(config, activities)
    kineto_begins()
    train(20)
    profiler._enable_profiler(config, activities)
    train(20)
    kineto_ends()
    profiler._disable_profiler()
    assert gpu.fake.fakecupti_subscribed()
    delivered = gpu.count("delivered")
    train(20)
    time.sleep(0.2)
    tell(after=gpu.count("delivered") - delivered, thief=gpu.count("delivered_to_thief"))
tell(produced=gpu.count("produced"), delivered=gpu.count("delivered"), disordered=gpu.count("disordered"))
""",
        tmp_path,
    )
    assert tier(facts) == "cupti-full"
    assert facts["thief"] == 40 * 10  # the profiler's own kernels, all of them
    assert facts["after"] > 20 * 20
    assert facts["produced"] == facts["delivered"] + facts["thief"]
    assert facts["disordered"] == 0


def test_a_profiler_that_was_there_first_and_one_that_outlasts_the_watch(tmp_path: Path) -> None:
    facts = play(
        """
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CPU]):
            with trainperf.watch(path):
                train(5)
                tell(during=gpu.fake.fakecupti_subscribed())
        with profile(activities=[ProfilerActivity.CPU]):
            watch = trainperf.start(path + "2")
            train(5)
        tell(between=gpu.fake.fakecupti_subscribed())
        train(5)
        watch.stop()
        tell(produced=gpu.count("produced"), delivered=gpu.count("delivered"), held=gpu.count("held"))
        """,
        tmp_path,
    )
    assert facts["during"] == 0  # Kineto may have it, so it is not touched
    assert facts["between"] == 1  # now it has ended
    assert facts["produced"] == facts["delivered"] > 0
    assert tier({"run": trainperf.open(tmp_path / "a.tpr2")}).startswith("cupti-full")


def test_torch_profiler_before_the_watch_across_its_end_and_after_it(tmp_path: Path) -> None:
    facts = play(
        NEIGHBOUR
        + """
config = profiler.profile(use_device=None).config(create_trace_id=True)
activities = {ProfilerActivity.CPU, ProfilerActivity.CUDA}

def begins():
    profiler._prepare_profiler(config, activities)
    kineto_begins()
    profiler._enable_profiler(config, activities)
    profiler._run_on_profiler_start()

def ends():
    kineto_ends()
    profiler._disable_profiler()
    profiler._run_on_profiler_stop()

begins()
train(10)
with trainperf.watch(path, cuda="full"):
    train(10)
    ends()
    assert gpu.fake.fakecupti_subscribed()
    tell(before=gpu.count("delivered_to_thief"))
    train(10)
    begins()
    train(10)
train(10)
ends()
tell(across=gpu.count("delivered_to_thief"))
begins()
train(10)
ends()
tell(after=gpu.count("delivered_to_thief"), produced=gpu.count("produced"), delivered=gpu.count("delivered"))
""",
        tmp_path,
    )
    assert [facts[when] for when in ("before", "across", "after")] == [200, 400, 500]
    assert facts["produced"] == facts["delivered"] + facts["after"]
    (device,) = facts["run"].devices
    assert device.steps.kernels.sum() == 100  # ours, between


# The module that torch's monitor takes CUPTI's constants from: NVIDIA's cupti-python, in as much of it as is used here.
CUPTI_PYTHON = """
import types

class Numbers:
    CONCURRENT_KERNEL, MEMCPY, MEMSET, DRIVER, RUNTIME = 10, 1, 2, 4, 5
    def __getattr__(self, name):
        return 99

cupti = types.ModuleType("cupti.cupti")
for name in ("ActivityKind", "ExternalCorrelationKind", "Runtime_api_trace_cbid", "Driver_api_trace_cbid"):
    setattr(cupti, name, Numbers())
cupti.__getattr__ = lambda name: None  # the types of records: none is decoded here
sys.modules["cupti"] = types.ModuleType("cupti")
sys.modules["cupti"].cupti = sys.modules["cupti.cupti"] = cupti
os.environ["TORCH_CUPTI_MONITOR_LIBCUPTI_PATH"] = sys.argv[2]
from torch.profiler import _cupti_monitor as monitor

def starts():
    monitor.start_collection(path + ".monitor")
    assert not gpu.fake.fakecupti_subscribed()

def kernels_of(stats):
    return round(stats["valid_total_mb"] * 2**20 / 216)
"""


@pytest.mark.skipif(find_spec("torch.profiler._cupti_monitor") is None, reason="torch has it since 2.13")
def test_torchs_own_monitor_before_inside_across_the_end_and_after(tmp_path: Path) -> None:
    facts = play(
        CUPTI_PYTHON
        + """
starts()
train(10)
with trainperf.watch(path, cuda="full"):
    train(10)
    assert not gpu.fake.fakecupti_subscribed()   # it was there first
    tell(before=kernels_of(monitor.stop_collection()))
    assert gpu.fake.fakecupti_subscribed()
    train(10)
    starts()
    train(10)
    tell(inside=kernels_of(monitor.stop_collection()))
    assert gpu.fake.fakecupti_subscribed()
    train(10)
    starts()
    train(10)
train(10)
tell(across=kernels_of(monitor.stop_collection()))
starts()
train(10)
tell(after=kernels_of(monitor.stop_collection()))
tell(produced=gpu.count("produced"), delivered=gpu.count("delivered"), dropped=gpu.count("dropped"))
""",
        tmp_path,
    )
    assert [facts[when] for when in ("before", "inside", "across", "after")] == [200, 100, 200, 100]
    assert facts["produced"] == facts["delivered"] and facts["dropped"] == 0
    (device,) = facts["run"].devices
    assert device.steps.kernels.sum() == 200  # ours, between
    assert lost(facts) == {}


def test_a_second_watch_of_a_process_traces_again(tmp_path: Path) -> None:
    facts = play(
        """
        for n in range(3):
            with trainperf.watch(path, overwrite=True):
                train(10)
        tell(produced=gpu.count("produced"), delivered=gpu.count("delivered"))
        """,
        tmp_path,
    )
    assert facts["produced"] == facts["delivered"]
    assert tier(facts).startswith("cupti-full")
    assert lost(facts) == {}


def test_torch_that_is_imported_after_the_watch_began(tmp_path: Path) -> None:
    cupti, cuda = fake_libraries()
    body = """
        import ctypes, sys, trainperf
        driver = ctypes.CDLL(sys.argv[3], mode=ctypes.RTLD_GLOBAL)
        with trainperf.watch(sys.argv[1], verbose=False) as run:
            assert "torch" not in sys.modules
            import torch
            assert ctypes.CDLL(sys.argv[2]).fakecupti_subscribed()
        """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(body), str(tmp_path / "a.tpr"), cupti, cuda],
        check=True, timeout=100, env={**os.environ, "TRAINPERF_CUPTI_PATH": cupti},
    )  # fmt: skip
    assert trainperf.open(tmp_path / "a.tpr").tiers["cuda"].tier == "cupti-full"
