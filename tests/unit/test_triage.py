"""The class of the task, and what sets its pace: said of what was measured, and of nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from devices import DeviceFile
from runfiles import RunFile
from trainperf.findings.triage import Triage
from trainperf.report import console, html, model
from trainperf.report import json as as_json


def kind(file: RunFile) -> tuple[Any, Any, str]:
    found = judged(file)
    assert found is not None
    return found.model, found.data, found.pace


def judged(file: RunFile) -> Triage | None:
    with file.open() as run:
        return model.build(run).triage


def sampled(file: RunFile) -> RunFile:
    """With enough samples to tell Python from native code."""
    file.detail("sample", 100, state="native", count=100)
    return file.detail("sample", 100, state="python", count=100)


@pytest.fixture
def file(tmp_path: Path) -> RunFile:
    return RunFile(tmp_path / "a.tpr")


@pytest.mark.parametrize(
    ("causes", "expected"),
    [
        ({"compute": 20.0, "data_wait": 0.5}, ("large", "simple", "compute")),
        ({"compute": 6.0, "data_wait": 20.0}, ("small", "complex", "data_wait")),
        ({"compute": 20.0, "data_wait": 9.0}, ("large", "complex", "compute")),
        ({"compute": 6.0, "python": 9.0, "data_wait": 0.1}, ("small", "simple", "python")),
        ({"compute": 4.0, "data_wait": 0.1}, ("small", "simple", "compute")),  # all of the step, and no work in it
        ({"compute": 6.0, "python": 4.0, "data_wait": 5.0}, ("large", "complex", "")),
        ({"compute": 20.0}, ("large", None, "compute")),  # no fetch was seen
    ],
)
def test_on_the_cpu(file: RunFile, causes: dict[str, float], expected: tuple[Any, Any, str]) -> None:
    assert kind(sampled(file.steps(100, **causes))) == expected


def test_what_a_busy_machine_takes_makes_no_data_simple(file: RunFile) -> None:
    """90 ms of it are the machine's; of the rest data take half."""
    assert kind(sampled(file.steps(100, data_wait=5.0, compute=5.0, descheduled=90.0))) == (
        "large", "complex", "descheduled",
    )  # fmt: skip


def test_data_that_workers_make_meanwhile_is_complex(file: RunFile) -> None:
    sampled(file.steps(400, compute=20.0, data_wait=0.1)).loader(1, fetches=400, wait=40, num_workers=2)
    file.host(8, process_cpus=1.0, other_cpus=0.9)
    assert kind(file) == ("large", "simple", "compute")
    for pid in (11, 12):
        file.worker(1, pid, cpu_share=0.45, seconds=8, states={"R": 8})
    assert kind(file) == ("large", "complex", "compute")


def test_batches_that_are_dropped_once_and_starts_of_a_loader_are_no_complex_data(file: RunFile) -> None:
    file.step(data_wait=2000.0, compute=10.0, fetches=4000)
    sampled(file.steps(99, compute=10.0, data_wait=0.5))
    file.loader(1, fetches=4099, wait=2049, num_workers=0)
    assert kind(file) == ("large", "simple", "data_wait")


def test_what_the_loop_computes_beside_its_model_is_none_of_it(file: RunFile) -> None:
    file.steps(100, {("other", "native"): 30.0, ("forward", "native"): 1.0, ("backward", "native"): 2.0})
    at = file.stack("/home/user/train.py:41 augment", "/home/user/train.py:9 <module>")
    file.detail("sample", 3000, phase="other", state="native", stack=at, count=3000)
    with file.open() as run:
        built = model.build(run)
    assert [f.slug for f in built.findings] == ["host-compute"]
    assert built.triage is not None and built.triage.model == "small" and built.triage.pace == "compute"


@pytest.mark.parametrize(
    ("idle", "host", "expected"),
    [
        ({"gpu_wait": 0.5}, {"launch": 2.0, "gpu_wait": 18.0}, ("large", "simple", "gpu")),
        ({"data_wait": 14.0}, {"launch": 2.0, "data_wait": 18.0}, ("small", "complex", "data_wait")),
        ({"launch": 14.0}, {"launch": 18.0, "gpu_wait": 2.0}, ("small", "simple", "launch")),
        ({"gil_wait": 14.0}, {"launch": 2.0, "gil_wait": 18.0}, ("large", "simple", "gil_wait")),
    ],
)
def test_with_a_gpu_its_own_time_decides(
    tmp_path: Path, idle: dict[str, float], host: dict[str, float], expected: tuple[Any, Any, str]
) -> None:
    file = DeviceFile(tmp_path / "a.tpr").steps(100, {("fetch", "python"): 0.01}, **host).gpu(idle)
    assert kind(file) == expected


def test_a_gpu_that_was_not_seen_is_not_spoken_of(file: RunFile) -> None:
    sampled(file.steps(100, data_wait=10.0, launch=10.0)).meta(feeds_device="1").tier("cuda", "off", "no CUPTI")
    assert judged(file) is None


def test_too_few_steps_and_too_much_unknown_tell_nothing(tmp_path: Path) -> None:
    assert judged(RunFile(tmp_path / "a.tpr").steps(2, compute=20.0)) is None
    assert judged(RunFile(tmp_path / "b.tpr")) is None
    assert judged(sampled(RunFile(tmp_path / "c.tpr").steps(100, compute=20.0, unknown=5.0))) is None


def test_without_samples_python_and_computation_are_one_part(tmp_path: Path) -> None:
    """How large the model is shows only where both together are less than what else there is."""
    assert kind(RunFile(tmp_path / "a.tpr").steps(100, compute=20.0, python=5.0)) == (None, None, "python+compute")
    waits = RunFile(tmp_path / "b.tpr").steps(100, compute=5.0, python=5.0, data_wait=20.0)
    assert kind(waits) == ("small", "complex", "data_wait")


def test_each_view_has_the_line(file: RunFile) -> None:
    sampled(file.steps(100, compute=6.0, data_wait=20.0))
    with file.open() as run:
        built = model.build(run)
        text = "small model, complex data: data loading sets the pace (77% of the time, then computation 23%)"
        assert built.triage is not None and built.triage.text == text
        shown = console.to_plain(console.show_lines(built, width=120))
        assert f"Task  {text}" in shown
        assert f"<b>Task</b> {text.capitalize()}" in html.render(run)
        assert as_json.to_dict(built)["task"] == {
            "text": text, "model": "small", "data": "complex", "pace": "data_wait",
        }  # fmt: skip
