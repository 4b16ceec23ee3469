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
        with trainperf.watch(path):
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
        with trainperf.watch(path):
            train(3)
            end = time.monotonic() + 4
            while time.monotonic() < end:
                for _ in range(200):
                    gpu.launch("storm", ms=0.001)
                gpu.synchronize()
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
        with trainperf.watch(path, budget=1e-6):
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
        with trainperf.watch(path, budget=0.02):
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
