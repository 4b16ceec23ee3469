"""How much of a GPU is traced where that costs too much, under a real watch(), on the scripted libcupti."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cuda_child import lost, play, tier

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="CUPTI is traced on Linux")


@pytest.mark.live
@pytest.mark.alone
def test_far_over_budget_it_gives_kernels_up_and_says_so(tmp_path: Path) -> None:
    facts = play(
        """
        with trainperf.watch(path, cuda="full"):
            end = time.monotonic() + 3.3
            while time.monotonic() < end:
                train(10, kernels=200, ms=0.001)  # some 100,000 launches a second
            tell(kernels=gpu.fake.fakecupti_kind_enabled(10), waits=gpu.fake.fakecupti_kind_enabled(38))
        tell(produced=gpu.count("produced"), delivered=gpu.count("delivered"))
        """,
        tmp_path,
    )
    assert tier(facts) == "cupti-sync: for two seconds it cost more than 15 % of the program's time"
    assert (facts["kernels"], facts["waits"]) == (0, 1)
    assert facts["produced"] == facts["delivered"]
    run = facts["run"]
    assert any("cupti-sync" in note for note in run.notes)
    (device,) = run.devices
    incomplete = device.steps.incomplete.astype(bool)
    assert 0 < incomplete.sum() < len(incomplete)
    assert (device.steps.kernels[~incomplete][1:] == 200).all()


@pytest.mark.alone
def test_what_is_traced_changes_only_at_the_end_of_a_backward_or_step(tmp_path: Path) -> None:
    facts = play(
        """
        with trainperf.watch(path, cuda="full"):
            train(3)
            end = time.monotonic() + 4
            while time.monotonic() < end:
                for _ in range(200):
                    gpu.launch("storm", ms=0.001)
                gpu.synchronize()
                time.sleep(0.002)  # a slow machine still reads all records
            tell(before=gpu.fake.fakecupti_kind_enabled(10))
            train(2)
            tell(after=gpu.fake.fakecupti_kind_enabled(10))
        """,
        tmp_path,
    )
    assert (facts["before"], facts["after"]) == (1, 0)
    assert lost(facts) == {}


def test_over_budget_kernels_are_kept(tmp_path: Path) -> None:
    facts = play(
        """
        with trainperf.watch(path, budget=1e-6, cuda="full"):
            end = time.monotonic() + 3.3
            while time.monotonic() < end:
                train(10)
        """,
        tmp_path,
    )
    assert tier(facts) == "cupti-full"
    assert lost(facts) == {}


@pytest.mark.alone
def test_a_device_with_many_launches_does_not_make_the_sampler_look_less_often(tmp_path: Path) -> None:
    facts = play(
        """
        with trainperf.watch(path, budget=0.02, cuda="full"):
            end = time.monotonic() + 2.6
            while time.monotonic() < end:
                train(10, kernels=150, ms=0.01, between=lambda: time.sleep(0.005))
        """,
        tmp_path,
    )
    run = facts["run"]
    assert run.overhead_ns["collector"] > 0.02 * run.wall_ns
    assert run.tiers["gil_holds"].why == "", run.tiers
    assert not any("less often" in note for note in run.notes)


@pytest.mark.alone
def test_where_kernels_cost_too_much_windows_of_steps_are_traced(tmp_path: Path) -> None:
    facts = play(
        """
        with trainperf.watch(path, cuda="auto"):
            end = time.monotonic() + 5
            while time.monotonic() < end:
                train(100, kernels=40, ms=0.02, between=lambda: time.sleep(0.001))
        kinds = [kind for kind in range(60) if gpu.fake.fakecupti_kind_enabled(kind)]
        tell(produced=gpu.count("produced"), delivered=gpu.count("delivered"), disordered=gpu.count("disordered"),
             kinds=kinds)
        """,
        tmp_path,
    )
    assert tier(facts).startswith("cupti-windows: kernels are traced in some of the steps, chosen by chance")
    assert facts["produced"] == facts["delivered"] and facts["disordered"] == 0 and facts["kinds"] == []
    assert lost(facts) == {}
    run = facts["run"]
    (device,) = run.devices
    steps, traced = device.steps, device.steps.untraced == 0
    assert device.traced is not None and device.traced.steps == traced.sum() > 20 and not traced.all()
    assert traced[:10].all() and not steps.incomplete.any()
    assert (steps.kernels[traced] == 40).all() and not steps.kernels[~traced].any()
    assert (steps.busy_ns + steps.idle_ns)[traced].sum() == run.steps.wall_ns[traced].sum()
    # A step keeps the device busy for 0.8 ms, which is known of each.
    assert device.totals.kernels == pytest.approx(40 * run.step_count, rel=0.01)
    assert device.totals.busy_ns == pytest.approx(0.8e6 * run.step_count, rel=0.25)
    assert device.totals.busy_ns + device.totals.idle_ns == run.wall_ns
    waits = [call for call in run.calls() if call.call == "stream_sync"]
    assert sum(call.count for call in waits) >= run.step_count  # these are told of every step
    assert "an estimate, from" in run.summary()


@pytest.mark.alone
def test_where_cupti_cuts_off_what_still_runs_at_a_windows_end_all_steps_are_traced(tmp_path: Path) -> None:
    facts = play(
        """
        gpu.fake.fakecupti_set_cut_off(1)
        with trainperf.watch(path, cuda="auto"):
            end = time.monotonic() + 8
            while time.monotonic() < end:
                train(100, kernels=40, ms=0.05)  # the device is behind
            tell(kernels=gpu.fake.fakecupti_kind_enabled(10))
        """,
        tmp_path,
    )
    assert facts["kernels"] == 1
    assert tier(facts) == "cupti-full"
    run = facts["run"]
    assert any("no record of kernels that run on when a window of traced steps ends" in note for note in run.notes)
    (device,) = run.devices
    assert (device.steps.untraced == 0)[-200:].all()


@pytest.mark.alone
def test_a_profiler_within_windows_loses_nothing_and_windows_go_on(tmp_path: Path) -> None:
    facts = play(
        """
        import torch.autograd.profiler as profiler
        from torch.profiler import ProfilerActivity
        config = profiler.profile(use_device=None).config(create_trace_id=True)
        activities = {ProfilerActivity.CPU, ProfilerActivity.CUDA}

        steps = 0

        def train_for(seconds):
            global steps
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                train(50, kernels=40, ms=0.01)
                steps += 50

        with trainperf.watch(path, cuda="auto"):
            train_for(1.5)
            tell(kernels=gpu.fake.fakecupti_kind_enabled(10))
            profiler._prepare_profiler(config, activities)
            assert not gpu.fake.fakecupti_subscribed()
            gpu.fake.fakecupti_steal_callbacks(1)
            gpu.fake.cuptiActivityEnable(10)
            profiler._enable_profiler(config, activities)
            train(50, kernels=40, ms=0.01)
            assert not gpu.fake.fakecupti_subscribed()   # no window opens meanwhile
            gpu.fake.cuptiActivityFlushAll(1)
            gpu.fake.fakecupti_steal_callbacks(0)
            profiler._disable_profiler()
            assert gpu.fake.fakecupti_subscribed()
            steps += 50
            tell(steps=steps)
            train_for(1)
        tell(produced=gpu.count("produced"), delivered=gpu.count("delivered"), thief=gpu.count("delivered_to_thief"),
             disordered=gpu.count("disordered"))
        """,
        tmp_path,
    )
    assert facts["kernels"] == 0  # between two windows
    assert facts["thief"] == 50 * 40
    assert facts["produced"] == facts["delivered"] + facts["thief"] and facts["disordered"] == 0
    (device,) = facts["run"].devices
    traced = (device.steps.untraced == 0) & (device.steps.incomplete == 0)
    assert (device.steps.kernels[traced] == 40).all()
    assert traced[: facts["steps"] - 50].any() and traced[facts["steps"] :].any() and not traced.all()
