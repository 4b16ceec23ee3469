"""TP306 on runs made by hand: how much validation is, and what of it is the user's own beside the model."""

from __future__ import annotations

import json

import pytest
from runfiles import RunFile
from trainperf.findings.model import Said
from verdicts import LINUX, TRAIN, Make, hook, lightning, only, said

LINEAR = "/x/site-packages/torch/nn/modules/linear.py:134 Linear.forward"
MODEL = "/x/site-packages/torch/nn/modules/module.py:1520 Module._call_impl"
EVALUATE = "/x/site-packages/transformers/trainer.py:4100 Trainer.evaluate"
FETCH = "/x/site-packages/torch/utils/data/_utils/fetch.py:52 _MapDatasetFetcher.fetch"


def test_a_validation_before_the_first_step_is_none_among_the_steps(make: Make) -> None:
    """Lightning's sanity check."""
    file = lightning(make).span("validation", 30).steps(40, compute=10.0, validation=12.0)
    for step in (9, 19, 29, 39):
        file.span("validation", 120, step=step)
    f = only(file)
    assert f.params["often"] == Said("about_every", {"every": 10})
    assert (f.variant, f.params["times"], f.params["each"]) == ("validation", 4, 120e6)


@pytest.mark.parametrize(("tier", "confidence"), [("exact", "high"), ("off", "medium")])
def test_a_validation_that_is_not_bracketed_is_told_with_less_confidence(
    make: Make, tier: str, confidence: str
) -> None:
    """Somebody has replaced `val_loop.run` on Lightning's trainer."""
    file = lightning(make).steps(100, compute=10.0, validation=12.0)
    file.tier("lightning_validation", tier, "somebody has replaced it")
    for step in range(9, 100, 10):
        file.span("validation", 120, step=step)
    f = only(file)
    assert f.confidence == confidence
    assert ("measured from eval() to train(), as the trainer's loop is not bracketed: " in f.confidence_why) == (
        tier == "off"
    )


def waits_for_a_cpu(
    make: Make, *, workers: int = 2, others: float = 0.2, readings: int = 1, torch_threads: int = 1
) -> RunFile:
    """20 validations of 15 ms of work, 6 for a CPU and 1 for the GIL."""
    cells = {("validation", "native"): 15.0, ("validation", "descheduled"): 6.0, ("validation", "gil_wait"): 1.0}
    file = make(cpus="2", torch_threads=str(torch_threads)).steps(80, compute=2.0).steps(20, cells)
    for step in range(80, 100):
        file.span("validation", 22, step=step)
    file.loader(2, dataset="Test", num_workers=workers, validation=(20, 100))
    for pid in range(71, 71 + workers):
        file.worker(2, pid, cpu_share=0.3, seconds=1, states={"R": 6})
    return file.host(readings, process_cpus=0.4, other_cpus=0.3 * workers + others)


def test_what_a_validation_waits_for_its_workers_is_its_own(make: Make) -> None:
    """Without it nothing would wait for a CPU that they use."""
    f = only(waits_for_a_cpu(make))
    assert f.cost_ns == 440e6 and f.causes == ("validation", "descheduled") and not f.waits_apart
    assert (f.params["times"], f.params["each"], f.params["elsewhere"]) == (20, 22e6, None)


@pytest.mark.parametrize(
    ("whose", "told_by"),
    [
        ({"others": 0.9}, "TP307"),
        ({"others": 0.9, "workers": 0}, "TP307"),
        ({"workers": 0}, "TP307"),
        ({"readings": 0}, "TP602"),
        ({"torch_threads": 4}, "TP602"),
    ],
)
def test_other_waits_for_a_cpu_are_told_as_such(make: Make, whose: dict[str, float], told_by: str) -> None:
    found = {f.id: f for f in said(waits_for_a_cpu(make, **whose)).findings}  # type: ignore[arg-type]
    assert found["TP306"].cost_ns == 320e6 and found[told_by].cost_ns == 120e6
    params = found["TP306"].params
    assert (params["times"], params["each"]) == (20, 22e6)
    assert (params["elsewhere"], params["causes"]) == (6e6, ("descheduled",))


def test_waits_for_a_cpu_that_nobody_tells_are_in_it(make: Make) -> None:
    """Of others that take one, where they are less than a tenth of the run."""
    cells = {("validation", "native"): 15.0, ("validation", "descheduled"): 1.5}
    file = make(cpus="2").steps(80, compute=2.0).steps(20, cells).host(1, process_cpus=0.8, other_cpus=1.2)
    f = only(file)
    assert f.cost_ns == 330e6 and f.causes == ("validation",)


def test_what_is_shown_as_two_fifths_or_more_is_a_warning(make: Make) -> None:
    """Of the time that the machine left to the run its work alone is 39 %."""
    cells = {("validation", "native"): 15.0, ("validation", "gil_wait"): 3.0}
    f = only(make().steps(80, compute=5.5).steps(20, cells))
    assert f.severity == "warning" and 0.4 < f.share < 0.5


@pytest.mark.parametrize(
    ("state", "of_machine", "advised"),
    [
        ("native", {"cpus": "4", "torch_threads": "2"}, True),
        ("native", {"cpus": "2", "torch_threads": "1"}, True),
        ("native", {"cpus": "2", "torch_threads": "2"}, False),  # torch's threads have them all
        ("blocked", {"cpus": "2", "torch_threads": "2"}, True),
    ],
)
@pytest.mark.parametrize("others", [0.0, 1.2])
def test_workers_are_advised_where_there_are_cpus_for_them(
    make: Make, state: str, of_machine: dict[str, str], advised: bool, others: float
) -> None:
    file = make(**of_machine).steps(80, compute=2.0).steps(20, {("validation", state): 20.0})
    file.host(1, process_cpus=0.8, other_cpus=others).loader(2, dataset="Test", validation=(20, 380))
    free = state == "blocked" or of_machine["cpus"] == "4" or not others
    assert (only(file).variant == "waits_for_data") == (advised and free)


@pytest.mark.parametrize(("fetches", "advised"), [(80, True), (400, False)])
def test_where_one_option_is_for_all_loaders_workers_must_save_more_than_training_loses(
    make: Make, fetches: int, advised: bool
) -> None:
    file = hugging_face(make, 0.75, "blocked")
    file.loader(2, dataset="Test", validation=(20, 390))
    file.loader(1, fetches=fetches, wait=1)
    assert (only(file).variant == "waits_for_data") == advised


def test_a_stop_is_not_the_validations(make: Make) -> None:
    file = waits_for_a_cpu(make).note("the process stood still", 1)
    file.meta(stopped_ns=str(120_000_000))
    assert only(file).cost_ns == 320e6


def test_who_holds_the_gil_in_a_validation_is_told_as_such(make: Make) -> None:
    cells = {("validation", "native"): 15.0, ("validation", "gil_wait"): 6.0}
    file = make().steps(80, compute=2.0).steps(20, cells)
    hog = file.thread("hog")
    file.detail("gil_wait", 120, phase="validation", thread=hog, stack=file.stack(f"{TRAIN}:30 spin"), count=60)
    found = {f.id: f for f in said(file).findings}
    assert found["TP306"].cost_ns == 300e6 and found["TP201"].cost_ns == 120e6


@pytest.mark.parametrize("every", [1, 4])
def test_what_no_loader_feeds_may_be_a_rollout(make: Make, every: int) -> None:
    """Or pseudo-labels: whether it is validation, only the user knows."""
    file = make()
    for step in range(40):
        file.step(compute=10.0, validation=12.0 if step % every == 0 else 0.0)
        if step % every == 0:
            file.span("validation", 12, step=step)
    for ms, frames in ((300, (f"{TRAIN}:61 Env.step", f"{TRAIN}:50 collect")), (180, (f"{TRAIN}:52 collect",))):
        at = file.stack(*frames, f"{TRAIN}:9 main")
        file.detail("sample", ms / every, phase="validation", state="native", stack=at)
    file.detail("sample", 400, phase="forward", state="native", stack=file.stack(f"{TRAIN}:12 main"))
    f = next(f for f in said(file).findings if f.id == "TP306")
    assert (f.variant, f.params["stretch"], f.params["each"]) == ("eval_mode", "collect", 12e6)
    assert f.params["often"] == (Said("in_each_step") if every == 1 else Said("about_every", {"every": 4}))
    assert f.params["every_step"] == (every == 1)


def test_a_rollout_whose_environment_takes_most_of_it(make: Make) -> None:
    """Its policy's layers were seen, so what the environment does is known to be the user's own."""
    file = make()
    for step in range(40):
        file.step(compute=10.0, validation=12.0)
        file.span("validation", 4, step=step).span("validation", 4, step=step).span("validation", 4, step=step)
    for ms, frames in ((320, (f"{TRAIN}:61 Env.step",)), (160, (LINEAR, MODEL))):
        at = file.stack(*frames, f"{TRAIN}:50 collect", f"{TRAIN}:9 main")
        file.detail("sample", ms, phase="validation", state="native", stack=at)
    file.detail("sample", 400, phase="forward", state="native", stack=file.stack(LINEAR, MODEL, f"{TRAIN}:12 main"))
    f = next(f for f in said(file).findings if f.id == "TP306")
    assert (f.variant, f.params["each"], f.params["every_step"]) == ("eval_mode", 4e6, True)
    assert f.params["often"] == Said("several_times", {"times_a_step": 3})
    assert f.params["own_share"] == pytest.approx(2 / 3) and f.params["own_function"] == "Env.step (train.py:61)"
    assert "it reads no DataLoader" in f.confidence_why


@pytest.mark.parametrize(("every", "severity", "saves"), [(1, "warning", 1.0), (2, "info", 0.5)])
def test_what_is_done_in_each_step_is_warned_of_and_nearly_all_of_it_saved(
    make: Make, every: int, severity: str, saves: float
) -> None:
    file = make()
    for step in range(40):
        file.step(compute=10.0, validation=4.0 * every if step % every == 0 else 0.0)
        if step % every == 0:
            file.span("validation", 4 * every, step=step)
    file.loader(2, validation=(40, 1.0))
    f = next(f for f in said(file).findings if f.id == "TP306")
    assert f.share == pytest.approx(4 / 14) and (f.severity, f.fix_share) == (severity, saves)
    assert f.params["every_step"] == (every == 1) and f.params["rarely"] == Said("validate_less_often")


def test_validation_is_mentioned_then_warned_of(make: Make) -> None:
    some = make().steps(40, compute=10.0, validation=3.0)
    assert [(f.slug, f.severity) for f in said(some).findings] == [("validation", "info")]
    much = make().steps(40, compute=10.0, validation=12.0)
    assert [(f.slug, f.severity) for f in said(much).findings] == [("validation", "warning")]


@pytest.mark.parametrize("qualified", [True, False])
def test_of_two_callbacks_in_a_file_the_one_that_validates_is_named(make: Make, qualified: bool) -> None:
    """CPython 3.10 tells no class of a frame."""
    file = (
        lightning(make)
        .meta(python="3.11.7" if qualified else "3.10.4")
        .steps(80, compute=2.0)
        .steps(20, compute=2.0, validation=20.0)
    )
    for i, (name, line) in enumerate((("Plot", 41), ("Val", 56))):
        hooks = {"on_train_batch_end": hook(90 - i, at=f"{TRAIN}:{line}", other=0)}
        file.object(1 + i, "callback", **{"class": name, "module": "app", "at": f"{TRAIN}:{line}", "hooks": hooks})
    at = file.stack(MODEL, f"{TRAIN}:61 {'Val.' if qualified else ''}on_train_batch_end")
    file.detail("sample", 390, phase="validation", state="native", stack=at, count=40)
    f = next(f for f in said(file).findings if f.id == "TP306")
    assert f.params["rarely"] == Said("validate_in_callback", {"callback": "Val.on_train_batch_end"})


def hugging_face(make: Make, own: float, mechanism: str = "native") -> RunFile:
    """20 validations of 20 ms; `own`: the share of them that one function takes, by that mechanism."""
    cells = {
        ("forward", "native"): 2.0,
        ("validation", "native"): 20.0 * (1 - own),
        ("validation", mechanism): 20.0 * own,
    }
    if mechanism == "native":
        cells["validation", "native"] = 20.0
    file = make(transformers=json.dumps({"eval_steps": 5}), python="3.11.7")
    file.steps(80, compute=2.0).steps(20, cells)
    for _ in range(20):
        file.span("validation", 20)
    net = file.stack(LINEAR, MODEL, EVALUATE, f"{TRAIN}:90 <module>")
    return file.detail("sample", 400 * (1 - own), phase="validation", state="native", stack=net, count=20)


@pytest.mark.parametrize("state", ["python", "native"])
@pytest.mark.parametrize("function", ["compute_metrics", "Report.on_evaluate"])
def test_the_users_function_that_takes_most_of_it_is_named(make: Make, function: str, state: str) -> None:
    file = hugging_face(make, 0.75, state)
    hooks = {"on_evaluate": hook(300, count=20, at=f"{TRAIN}:30", other=0)}
    file.object(1, "callback", **{"class": "Report", "module": "app", "at": f"{TRAIN}:30", "hooks": hooks})
    own = file.stack(f"{TRAIN}:31 {function}", EVALUATE, f"{TRAIN}:90 <module>")
    file.detail("sample", 300, phase="validation", state=state, stack=own, count=60)
    f = only(file)
    assert f.id == "TP306" and f.where == "train.py:31"
    assert f.params["own"] == f.params["own_function"] == f"{function} (train.py:31)"
    assert f.params["rarely"] == Said("validate_by_hugging_face", {"interval": 10})
    assert f.fix_share == f.params["own_share"] == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize(
    ("validation", "wait", "batches", "workers", "severity"),
    [
        (3.0, 2.0, 20, 0, "warning"),  # a fifth of the run waits
        (1.5, 1.4, 20, 0, "warning"),  # 13 %: validation alone is not even mentioned
        (1.5, 0.8, 20, 0, None),  # 7 %
        (1.5, 1.05, 40, 0, None),  # less than a tenth would not be spent on getting ready batches
        (3.0, 2.0, 150, 0, "info"),  # batches hardly dearer than from a worker
        (3.0, 1.4, 20, 0, "info"),  # less than half of it waits
        (3.0, 2.0, 20, 2, "info"),  # it has workers already
    ],
)
def test_validation_that_waits_for_data_is_trouble_of_the_usual_size(
    make: Make, *, validation: float, wait: float, batches: int, workers: int, severity: str | None
) -> None:
    cells = {("validation", "blocked"): wait, ("validation", "native"): validation - wait}
    file = make(cpus="2", torch_threads="1").steps(100, cells, compute=10.0 - validation)
    for _ in range(20):
        file.span("validation", 5 * validation)
    file.loader(2, dataset="Test", num_workers=workers, validation=(batches, 100 * wait))
    found = [f for f in said(file).findings if f.id == "TP306"]
    assert [f.severity for f in found] == ([severity] if severity else [])
    if severity == "warning":
        assert found[0].variant == "waits_for_data"


@pytest.mark.parametrize(("at", "severity"), [((f"{TRAIN}:31 plot",), "warning"), ((MODEL,), "info")])
def test_what_is_no_validating_was_not_asked_for(make: Make, at: tuple[str, ...], severity: str) -> None:
    """Of a third of the run; a validation alone is a warning from 40 % on."""
    file = make().steps(100, {("forward", "native"): 7.0, ("validation", "native"): 3.0})
    file.detail("sample", 700, phase="forward", state="native", stack=file.stack(LINEAR, MODEL), count=60)
    stack = file.stack(*at, f"{TRAIN}:90 <module>")
    file.detail("sample", 300, phase="validation", state="native", stack=stack, count=60)
    (f,) = said(file).findings
    assert (f.id, f.severity) == ("TP306", severity)


@pytest.mark.parametrize(
    ("frames", "own", "count"),
    [
        ((f"{TRAIN}:31 compute_metrics",), 0.4, 60),  # less than half
        ((f"{TRAIN}:31 compute_metrics",), 0.75, 3),  # of too few samples
        ((f"{TRAIN}:12 Net.forward", MODEL), 0.75, 60),
        ((MODEL, f"{TRAIN}:31 validation_step"), 0.75, 60),
        ((f"{TRAIN}:90 <module>",), 0.75, 60),  # it was seen to call the model
        (("/x/site-packages/torch/nn/functional.py:9 cross_entropy", f"{TRAIN}:31 validation_step"), 0.75, 60),
        (("/x/site-packages/transformers/trainer_pt_utils.py:9 nested_concat",), 0.75, 60),
    ],
)
def test_what_is_the_models_or_less_than_half_is_not(
    make: Make, frames: tuple[str, ...], own: float, count: int
) -> None:
    file = hugging_face(make, own)
    stack = file.stack(*frames, EVALUATE, f"{TRAIN}:90 <module>")
    file.detail("sample", 400 * own, phase="validation", state="native", stack=stack, count=count)
    f = only(file)
    assert (f.params["each"], f.params["own"], f.fix_share) == (20e6, None, 0.5)
    assert f.params["rarely"] == Said("validate_by_hugging_face", {"interval": 10})


def test_a_data_set_that_validation_waits_for_is_named(make: Make) -> None:
    file = hugging_face(make, 0.75, "blocked")
    file.loader(2, dataset="Test", validation=(20, 300))
    stack = file.stack(f"{TRAIN}:8 Test.__getitem__", FETCH, EVALUATE, f"{TRAIN}:90 <module>")
    f = only(file.detail("sample", 300, phase="validation", state="blocked", stack=stack, count=60))
    assert (f.variant, f.params["made_in"]) == ("waits_for_data", "Test.__getitem__ (train.py:8)")
    assert f.params["waiting"] == 0.75
    assert f.fix.startswith("TrainingArguments(dataloader_num_workers=2, dataloader_persistent_workers=True)  # for")


def test_workers_that_a_validation_has_already_are_not_asked_for(make: Make) -> None:
    file = hugging_face(make, 0.75, "blocked")
    file.loader(2, dataset="Test", num_workers=2, validation=(20, 300))
    assert only(file).variant == "validation"


@pytest.mark.parametrize("state", ["native", "blocked", "python"])
@pytest.mark.parametrize("unseen", ["the model", "the device"])
def test_what_may_be_the_model_or_a_wait_for_the_device_is_not_named(make: Make, state: str, unseen: str) -> None:
    cells = {("forward", "native"): 4.0, ("validation", state): 6.0}
    file = make(feeds_device="1" if unseen == "the device" else "").steps(100, cells)
    if unseen == "the device":
        file.detail("sample", 400, phase="forward", state="native", stack=file.stack(LINEAR, MODEL), count=40)
    at = file.stack(f"{TRAIN}:31 attention", f"{TRAIN}:90 <module>")
    file.detail("sample", 600, phase="validation", state=state, stack=at, count=60)
    f = next(f for f in said(file).findings if f.id == "TP306")
    assert ("attention" in str(f.params["own"])) == (state == "python" and unseen == "the device")


def test_a_metric_that_is_a_module_is_no_model(make: Make) -> None:
    metric = "/x/site-packages/torchmetrics/metric.py:250 Metric.forward"
    file = hugging_face(make, 0.75, "python")
    stack = file.stack(metric, MODEL, f"{TRAIN}:31 compute_metrics", EVALUATE, f"{TRAIN}:90 <module>")
    f = only(file.detail("sample", 300, phase="validation", state="python", stack=stack, count=60))
    assert "compute_metrics" in str(f.params["own"])


@pytest.mark.parametrize(
    ("wait", "count", "frames"),
    [
        (2300, 60, (f"{TRAIN}:8 Test.__getitem__", FETCH)),  # more than all of it: of a check before the first step
        (300, 4, (f"{TRAIN}:8 Test.__getitem__", FETCH)),
        (
            300,
            60,
            ("/x/site-packages/torch/utils/data/dataloader.py:9 _try_get_data", f"{TRAIN}:31 validate"),
        ),  # workers
    ],
)
def test_who_makes_validations_data_is_named_where_it_is_known(
    make: Make, wait: float, count: int, frames: tuple[str, ...]
) -> None:
    file = hugging_face(make, 0.75, "blocked")
    file.loader(2, dataset="Test", validation=(20, wait))
    stack = file.stack(*frames, EVALUATE, f"{TRAIN}:90 <module>")
    f = only(file.detail("sample", 300, phase="validation", state="blocked", stack=stack, count=count))
    assert f.params["made_in"] is None


@pytest.mark.parametrize("wait", ["sleep", "lock", "its own data"])
def test_a_wait_for_a_thread_or_for_data_of_ones_own_is_no_work(make: Make, wait: str) -> None:
    """The thread may make the data."""
    call = {"sleep": 230, "lock": 202, "its own data": 230}[wait]
    file = make(platform=LINUX).steps(100, {("forward", "native"): 4.0, ("validation", "blocked"): 6.0})
    file.detail("sample", 400, phase="forward", state="native", stack=file.stack(LINEAR, MODEL), count=40)
    at = f"{TRAIN}:31 " + ("Prefetcher.__next__" if wait == "its own data" else "upload")
    stack = file.stack(at, f"{TRAIN}:90 <module>")
    file.detail("sample", 600, phase="validation", state="blocked", stack=stack, code=call, count=60)
    f = next(f for f in said(file).findings if f.id == "TP306")
    assert ("train.py:31" in str(f.params["own"])) == (wait == "sleep")
    assert ("60 samples" in f.confidence_why) == (wait == "sleep")
