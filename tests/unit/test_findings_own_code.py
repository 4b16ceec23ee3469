"""What of forward is the model's, and what is the loop's own: TP302 and TP310, on runs made by hand."""

from __future__ import annotations

import itertools

import pytest
from runfiles import RunFile
from trainperf.report import console
from verdicts import LINUX, TRAIN, Make, advice, only, said

CALL = "/x/site-packages/torch/nn/modules/module.py:{} Module._call_impl"
LINEAR = "/x/site-packages/torch/nn/modules/linear.py:134 Linear.forward"


def forwards(
    make: Make,
    ms: float,
    *frames: str,
    model: bool = True,
    python: float = 0.0,
    seen: int | None = None,
    backward: float = 6.0,
) -> RunFile:
    """`ms` of native code of each step in these frames, and `python` of them in Python, `seen` so often; the rest is
    the model's, whose forward line 1832 calls."""
    cells = {("forward", "native"): 10.0, ("backward", "native"): backward, ("optimizer", "native"): 1.0}
    file = make().steps(100, cells, python=python)
    at = file.stack(*frames, f"{TRAIN}:9 train")
    file.detail("sample", 100 * ms, phase="forward", state="native", stack=at)
    if python:
        file.detail("sample", 100 * python, phase="forward", state="python", stack=at, count=seen)
    if model:
        inside = file.stack(LINEAR, CALL.format(1832), f"{TRAIN}:9 train")
        file.detail("sample", 100 * (10 - ms), phase="forward", state="native", stack=inside)
    return file


@pytest.mark.parametrize(
    ("called", "line", "told"),
    [
        ("hook", 1845, True),
        ("Probe.watch.<locals>.hook", 1845, True),
        ("Net.forward", 1845, False),
        ("traced.<locals>.wrapper", 1832, False),  # around forward: called where forward is
    ],
)
def test_forward_hooks_are_told_from_the_model(make: Make, called: str, line: int, told: bool) -> None:
    histc = "/x/site-packages/torch/functional.py:9 histc"
    for leaf in ((), (histc,)):
        file = forwards(make, 7.0, *leaf, f"{TRAIN}:4 {called}", CALL.format(line))
        if told:
            f = only(file)
            assert (f.id, f.variant, f.where, f.confidence) == ("TP310", "hooks", "train.py:4", "medium")
            assert f.cost_ms_per_step == pytest.approx(7.0, abs=0.01)
        else:
            assert said(file).findings == ()


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("", False),
        ("not JSON", False),
        ("[3]", False),
        ('{"FILE": {"FUNCTION": [1832]}}', True),  # as the run found it: forward itself is over too fast to be seen
        ('{"FILE": {"FUNCTION": [1832, 1845]}}', False),
    ],
)
def test_a_hook_beside_a_forward_that_was_not_seen(make: Make, lines: str, told: bool) -> None:
    file = forwards(make, 7.0, f"{TRAIN}:4 hook", CALL.format(1845), model=False)
    if lines:
        place, function = CALL.format(1832).rsplit(":1832 ", 1)
        file.meta(forward_lines=lines.replace("FILE", place).replace("FUNCTION", function))
    assert [f.id for f in said(file).findings] == (["TP310"] if told else [])


def test_a_model_that_a_hook_calls_is_a_model(make: Make) -> None:
    inner = (f"{TRAIN}:7 Net.forward", CALL.format(1832), f"{TRAIN}:4 hook", CALL.format(1845))
    assert said(forwards(make, 7.0, *inner)).findings == ()


SAVEZ = (
    "/usr/lib/python3.11/zipfile.py:1167 _ZipWriteFile.write",
    "/x/site-packages/numpy/lib/_npyio_impl.py:786 _savez",
    "/x/site-packages/numpy/lib/_npyio_impl.py:753 savez_compressed",
    f"{TRAIN}:4 save",
)


@pytest.mark.parametrize(("count", "few"), [(23, True), (4, False)])
def test_saving_is_told_as_that_and_in_how_many_steps(make: Make, count: int, few: bool) -> None:
    """It is no loss, though it counts as forward; by one sample in a step others may well have it too."""
    file = make().steps(100, {("forward", "native"): 10.0, ("backward", "native"): 4.0, ("optimizer", "native"): 1.0})
    at = file.stack(*SAVEZ, f"{TRAIN}:9 train")
    file.detail("sample", 470, phase="forward", state="native", stack=at, count=count, steps=3)
    file.detail(
        "sample", 30, phase="forward", state="native", stack=file.stack(*SAVEZ[1:], f"{TRAIN}:9 train"), count=9
    )
    inside = file.stack(LINEAR, CALL.format(1832), f"{TRAIN}:9 train")
    file.detail("sample", 500, phase="forward", state="native", stack=inside)
    f = only(file)
    assert (f.id, f.severity, f.variant, f.where) == ("TP310", "critical", "saves", "train.py:4")
    assert "savez_compressed called by save" in f.params["place"]
    assert (f.steps_affected, f.affected_share) == ((3, pytest.approx(0.94)) if few else (100, 1.0))
    assert f.params["few"] == (3 if few else None) and f.params["each"] == pytest.approx(5e6, rel=0.01)


@pytest.mark.parametrize(("function", "variant"), [("save", "saves"), ("log_metrics", "saves_log")])
def test_a_log_that_is_saved_is_no_checkpoint(make: Make, function: str, variant: str) -> None:
    assert only(forwards(make, 7.0, *SAVEZ[:3], f"{TRAIN}:4 {function}")).variant == variant


@pytest.mark.parametrize(
    ("code", "count", "kernel", "told"),
    [
        (74, 40, (0.4, 0), "fsync"),
        (1, 40, (0.4, 0), "write"),
        (202, 40, (0.4, 0), ""),  # a lock
        (74, 3, (0.4, 0), ""),
        (74, 40, (0.1, 0), ""),  # most of its native code is not the kernel's
        (74, 40, (0.4, 200_000), ""),  # 0.3 s of page faults
    ],
)
def test_what_the_kernel_does_for_a_function_on_files_is_no_computing(
    make: Make, code: int, count: int, kernel: tuple[float, int], told: str
) -> None:
    """It counts as forward, as a loss would, but no loss works on files. `kernel`: its share of the time, with so many
    page faults a second."""
    share, faults = kernel
    file = forwards(make, 7.0, f"{TRAIN}:4 dump").meta(platform=LINUX, page_fault_ns="1500")
    at = file.stack(f"{TRAIN}:5 dump", f"{TRAIN}:9 train")
    file.detail("sample", 50, phase="forward", state="blocked", stack=at, code=code, count=count)
    file.host(10, process_cpus=1, system=1000 * share, faults=lambda second: faults * second)
    f = said(file).findings[0]
    assert (f.id, f.where) == ("TP310", "train.py:4") and f.cost_ms_per_step == pytest.approx(7.0)
    assert (f.variant == "files") == (f.severity == "critical") == bool(told)
    assert not told or (f.params["call"], f.confidence) == (told, "medium")


@pytest.mark.parametrize(("inner", "ms"), [((), 6.0), (("/x/site-packages/numpy/linalg/_linalg.py:9 svd",), 3.0)])
def test_kernel_time_that_may_be_other_code_s_is_not_a_functions(make: Make, inner: tuple[str, ...], ms: float) -> None:
    """Of another function beside it; of a fetch; of what a library computes below it."""
    file = make(platform=LINUX, page_fault_ns="1500")
    cells = {
        ("forward", "native"): 4.0,
        ("backward", "native"): 4.0,
        ("other", "native"): 6.0,
        ("fetch", "native"): 4.0,
    }
    file.steps(100, cells | {("other", "blocked"): 0.5})
    at = file.stack(*inner, f"{TRAIN}:5 dump", f"{TRAIN}:9 train")
    file.detail("sample", 100 * ms, phase="other", state="native", stack=at, count=60)
    if not inner:
        file.detail("sample", 50, phase="other", state="blocked", stack=at, code=74, count=40)
    file.host(10, process_cpus=1, system=350, faults=lambda second: 0)
    f = next(f for f in said(file).findings if f.id == "TP310")
    assert f.variant == "between_phases"


@pytest.mark.parametrize(("checkpoint", "price"), [(5.0, "1500"), (0.0, ""), (0.0, "1500")])
def test_the_kernels_work_for_a_save_or_of_page_faults_is_not_a_functions(
    make: Make, checkpoint: float, price: str
) -> None:
    """`price`: of a page fault; where it is not known, how much of the kernel's work they are is not either."""
    file = make(platform=LINUX, **({"page_fault_ns": price} if price else {}))
    cells = {("forward", "native"): 4.0, ("backward", "native"): 4.0, ("other", "native"): 6.0}
    file.steps(100, cells | {("other", "blocked"): 0.5, ("checkpoint", "native"): checkpoint})
    at = file.stack(f"{TRAIN}:5 dump", f"{TRAIN}:9 train")
    file.detail("sample", 600, phase="other", state="native", stack=at, count=60)
    file.detail("sample", 50, phase="other", state="blocked", stack=at, code=74, count=40)
    file.host(10, process_cpus=1, system=400, faults=lambda second: 0)
    f = next(f for f in said(file).findings if f.id == "TP310")
    assert (f.variant == "files") == (not checkpoint and bool(price))


@pytest.mark.parametrize("python", [0.0, 1.0])
def test_a_function_beside_the_model_is_mentioned_not_blamed(make: Make, python: float) -> None:
    """A metric, or a loss: which of them is not known."""
    found = said(forwards(make, 3.0, f"{TRAIN}:4 f1", python=python))
    (f,) = found.findings
    assert (f.id, f.variant, f.severity, f.where) == ("TP310", "may_be_a_loss", "info", "train.py:4")
    assert f.cost_ms_per_step == pytest.approx(3.0 + python, abs=0.01)
    assert found.verdict.kind == "healthy" and found.verdict.finding == ""


@pytest.mark.parametrize(
    ("ms", "backward", "severity"),
    [(8.0, 38.0, "warning"), (8.0, 25.0, "info"), (4.0, 29.0, "info")],  # the last: most of forward is the model's
)
def test_a_loss_in_pieces_is_a_warning_for_what_it_costs_in_backward(
    make: Make, ms: float, backward: float, severity: str
) -> None:
    """A loop over samples or classes: each turn is a row of operations that backward goes through as well."""
    with forwards(make, ms, f"{TRAIN}:4 dice", backward=backward).open() as run:
        (f,) = run.findings
        text = " ".join(console.summary(run).split())
    assert (f.id, f.severity, f.where, f.saves_more) == ("TP310", severity, "train.py:4", severity == "warning")
    assert ("saves 8.0 ms/step or more: compute it on the whole batch at once" in text) == f.saves_more, text
    assert (f.variant == "loss_in_pieces") == f.saves_more
    assert not f.saves_more or f.params["ratio"] == pytest.approx(3.8)


@pytest.mark.parametrize(
    "frames",
    [
        ("/x/site-packages/torch/nn/functional.py:9 cross_entropy", f"{TRAIN}:4 loss"),
        (f"{TRAIN}:9 train",),  # the loop's own lines
        (f"{TRAIN}:4 Net.features", f"{TRAIN}:5 Net.forward", CALL.format(1832)),
    ],
)
def test_training_itself_is_not_mentioned(make: Make, frames: tuple[str, ...]) -> None:
    assert said(forwards(make, 6.0, *frames)).findings == ()


def test_a_model_that_is_a_function_is_not_mentioned(make: Make) -> None:
    assert said(forwards(make, 9.0, f"{TRAIN}:4 net", model=False)).findings == ()


@pytest.mark.parametrize(
    ("layer", "loss_ns", "in_pieces"),
    [
        ((), 200, True),
        ((), 10, False),
        (("/x/site-packages/torch/nn/modules/linear.py:9 Linear.forward", CALL.format(1832)), 200, False),
    ],
    ids=["loss", "something else", "a whole step"],
)
def test_a_loss_by_sample_is_to_be_computed_at_once(
    make: Make, layer: tuple[str, ...], loss_ns: float, in_pieces: bool
) -> None:
    """`every N steps` is no advice for what training needs."""
    file = make().steps(100, compute=6.0, python=4.0)
    file.detail("sample", 350, state="python", stack=file.stack(f"{TRAIN}:60 losses", f"{TRAIN}:12 train"))
    criterion = ("/x/site-packages/torch/nn/modules/loss.py:9 CrossEntropyLoss.forward", CALL.format(1832))
    at = file.stack("/x/site-packages/torch/nn/functional.py:3494 cross_entropy", *criterion, f"{TRAIN}:61 losses")
    file.detail("sample", loss_ns, state="native", stack=at)
    if layer:
        file.detail("sample", 200, state="native", stack=file.stack(*layer, f"{TRAIN}:61 losses"))
    f = only(file)
    assert f.id == "TP302" and f.where == "train.py:60"
    assert f.params["fix"].params["loss"] == in_pieces


@pytest.mark.parametrize(("backward", "in_pieces"), [(9.0, True), (2.5, False)])
@pytest.mark.parametrize(("after", "mechanism"), [(True, "native"), (False, "native"), (True, "blocked")])
def test_python_of_a_loss_costs_in_backward_too(
    make: Make, backward: float, in_pieces: bool, *, after: bool, mechanism: str
) -> None:
    """Measured: 3.4 ms of 15.5 were told, `up to`, of a loss over pairs that took 13. To wait there is no work."""
    file = make().steps(
        100, {("forward", "python"): 3.4, ("forward", "native"): 1.0, ("backward", mechanism): backward}
    )
    in_pieces = in_pieces and mechanism == "native"
    layer = "/x/site-packages/torch/nn/modules/linear.py:9 Linear.forward", CALL.format(1832)
    file.detail("sample", 10, state="native", stack=file.stack(*layer, f"{TRAIN}:10 loss_of"))
    at = file.stack(f"{TRAIN}:60 pairs", f"{TRAIN}:{11 if after else 9} loss_of")
    file.detail("sample", 340, state="python", stack=at)
    f = next(f for f in said(file).findings if f.id == "TP302")
    assert f.saves_more == (f.variant == "loss_in_pieces") == (in_pieces and after)


def test_an_average_of_the_weights_reads_modules_and_is_not_in_one(make: Make) -> None:
    state = "/x/site-packages/torch/nn/modules/module.py:2260 Module.state_dict"
    file = make().steps(100, compute=6.0, python=4.0)
    file.detail("sample", 350, state="python", stack=file.stack(f"{TRAIN}:60 Copy.__iter__", state, f"{TRAIN}:8 ema"))
    call = file.stack(f"{TRAIN}:70 Net.forward", CALL.format(1832))
    file.detail("sample", 20, state="python", stack=call)
    f = only(file)
    assert f.id == "TP302" and advice(f) != "in_model"


INTERPOLATE = "/x/site-packages/torch/nn/functional.py:5286 interpolate"


def test_a_batch_that_functional_shapes_is_no_loss(make: Make) -> None:
    (f,) = said(forwards(make, 6.0, INTERPOLATE, f"{TRAIN}:4 augment")).findings
    assert (f.id, f.variant, f.severity, f.where) == ("TP310", "may_be_a_loss", "info", "train.py:4")
    assert said(forwards(make, 6.0, INTERPOLATE, f"{TRAIN}:4 Net.forward", CALL.format(1832))).findings == ()


TEXT = (
    "/x/site-packages/torch/_tensor_str.py:321 _tensor_str_with_formatter",
    "/x/site-packages/torch/_tensor.py:564 Tensor.__repr__",
)
PARAMETER = "/x/site-packages/torch/nn/parameter.py:86 Parameter.__repr__"
FORMAT = "/x/site-packages/torch/_tensor.py:1142 Tensor.__format__"
SMALL = "/x/site-packages/torch/utils/_python_dispatch.py:417 _disable_current_modes"


@pytest.mark.parametrize(
    "frames",
    [
        (*TEXT, f"{TRAIN}:4 train"),
        (SMALL, *TEXT, f"{TRAIN}:4 train"),
        (FORMAT, f"{TRAIN}:4 train"),
        (*TEXT, PARAMETER, f"{TRAIN}:4 show"),
        (*TEXT, "/usr/lib/python3.11/logging/__init__.py:9 LogRecord.getMessage", f"{TRAIN}:4 train"),
        (*TEXT, f"{TRAIN}:4 Net.forward", CALL.format(1832)),
    ],
)
@pytest.mark.parametrize("python", [2.0, 1.0])
def test_the_text_of_a_tensor_is_whose_prints_it_in_the_model_too(
    make: Make, frames: tuple[str, ...], python: float
) -> None:
    """Its native code too, of which it may have more than Python."""
    f = only(forwards(make, 1.5, *frames, python=python))
    assert (f.id, f.where) == ("TP302", "train.py:4") and f.severity != "info"
    assert f.cost_ms_per_step == pytest.approx(1.5 + python, abs=0.01)
    assert (f.variant, f.params["rare"]) == ("text", False)


def test_the_text_of_a_tensor_that_a_framework_logs_is_the_frameworks(make: Make) -> None:
    log = "/x/site-packages/lightning/pytorch/loggers/csv.py:9 log"
    file = forwards(make, 1.5, *TEXT, log, f"{TRAIN}:4 train", python=30.0)
    assert [f.id for f in said(file).findings] == ["TP309"]


@pytest.mark.parametrize(
    ("python", "native", "seen", "told"),
    [
        (3.0, 4.0, None, {"TP302": 7.0}),
        (3.0, 7.0, None, {"TP302": 3.0, "TP310": 7.0}),  # much more, as of a loss
        (1.0, 1.9, None, {"TP310": 2.9}),  # the Python by itself is not told
        (3.0, 4.0, 9, {"TP310": 7.0}),
    ],
)
def test_small_operations_between_python_are_told_with_it(
    make: Make, python: float, native: float, seen: int | None, told: dict[str, float]
) -> None:
    findings = said(forwards(make, native, f"{TRAIN}:4 accuracy", python=python, seen=seen)).findings
    assert {f.id: f.cost_ms_per_step for f in findings} == pytest.approx(told, abs=0.01)
    assert all((f.severity == "info") == (f.id == "TP310") for f in findings)


def test_small_operations_of_the_loops_own_lines_may_be_its_loss(make: Make) -> None:
    for native, said_beside in ((4.0, True), (0.5, False)):
        (f,) = said(forwards(make, native, f"{TRAIN}:12 train", python=3.0)).findings
        assert f.id == "TP302" and f.cost_ms_per_step == pytest.approx(3.0, abs=0.01)
        assert f.params["untold"] == (pytest.approx(4e6) if said_beside else None)
    file = forwards(make, 4.0, f"{TRAIN}:9 train", python=3.0)  # the line that calls the model
    assert only(file).params["untold"] is None


FFT = "/x/site-packages/numpy/fft/_pocketfft.py:101 _raw_fft"


@pytest.mark.parametrize(
    ("leaf", "told"),
    [
        (FFT, True),
        ("/x/site-packages/einops/_backends.py:9 reshape", False),  # PyTorch's operations
        ("/x/site-packages/torch/functional.py:9 stft", False),
    ],
)
def test_numpy_within_the_model_is_mentioned(make: Make, leaf: str, told: bool) -> None:
    """Not blamed: a part of the model may need it."""
    within = (leaf, f"{TRAIN}:4 Net.features", f"{TRAIN}:6 Net.forward", CALL.format(1832))
    found = said(forwards(make, 3.0, *within, python=1.0))
    assert [(f.id, f.severity, f.where) for f in found.findings] == ([("TP310", "info", "train.py:4")] if told else [])
    if told:
        assert found.findings[0].cost_ms_per_step == pytest.approx(4.0, abs=0.01)
        assert "_raw_fft called by Net.features" in found.findings[0].params["place"]
        assert found.verdict.look == "TP310" and "host-compute takes 22%" in found.verdict.text


ENGINE = (
    "/x/site-packages/torch/autograd/graph.py:869 _engine_run_backward",
    "/x/site-packages/torch/_tensor.py:630 Tensor.backward",
)
APPLY = "/x/site-packages/torch/autograd/function.py:{} {}"
OF_BACKWARD = (APPLY.format(311, "BackwardCFunction.apply"), *ENGINE)


@pytest.mark.parametrize(
    ("frames", "told"),
    [
        ((f"{TRAIN}:40 Clip.backward", *OF_BACKWARD), True),
        ((FFT, f"{TRAIN}:38 helper", f"{TRAIN}:40 Clip.backward", *OF_BACKWARD), True),
        ((f"{TRAIN}:40 Clip.backward", APPLY.format(600, "once_differentiable.<locals>.wrapper"), *OF_BACKWARD), True),
        # A model that is run again in backward is a model.
        ((LINEAR, CALL.format(1832), f"{TRAIN}:40 Clip.backward", *OF_BACKWARD), False),
        (("/x/site-packages/torch/utils/checkpoint.py:300 CheckpointFunction.backward", *OF_BACKWARD), False),
        (ENGINE, False),
    ],
)
def test_what_a_function_of_the_users_computes_in_backward_is_named(
    make: Make, frames: tuple[str, ...], told: bool
) -> None:
    file = forwards(make, 0.0, *ENGINE, python=0.4, backward=6.0)
    at = file.stack(*frames, f"{TRAIN}:12 train")
    file.detail("sample", 400, phase="backward", state="native", stack=at)
    file.detail("sample", 200, phase="backward", state="native", stack=file.stack(*ENGINE, f"{TRAIN}:12 train"))
    found = [f for f in said(file).findings if f.id == "TP310"]
    assert bool(found) is told
    if told:
        (f,) = found
        at_line = "train.py:38" if frames[0] == FFT else "train.py:40"
        assert (f.variant, f.severity, f.where) == ("own_operation", "info", at_line)
        assert f.claims[("backward", "native")] == pytest.approx(4e8, rel=0.01)


def test_python_of_an_operation_that_is_mostly_native_is_told_with_it(make: Make) -> None:
    def both(python: float, native: float) -> dict[str, float]:
        cells = {("forward", "native"): 6.0, ("backward", "native"): 8.0, ("backward", "python"): python}
        file = make().steps(100, cells | {("optimizer", "native"): 1.0})
        own = file.stack(f"{TRAIN}:40 Clip.backward", *OF_BACKWARD, f"{TRAIN}:12 train")
        engine = file.stack(*ENGINE, f"{TRAIN}:12 train")
        layer = file.stack(LINEAR, CALL.format(1832), f"{TRAIN}:9 train")
        for phase, state, ms, stack in (
            ("backward", "python", python, own),
            ("backward", "native", native, own),
            ("backward", "native", 8 - native, engine),
            ("forward", "native", 6.0, layer),
        ):
            file.detail("sample", 100 * ms, phase=phase, state=state, stack=stack)
        return {f.id: f.cost_ms_per_step for f in said(file).findings}

    assert both(2.0, 6.0) == pytest.approx({"TP310": 8.0}, abs=0.01)
    assert both(3.0, 3.0) == pytest.approx({"TP302": 6.0}, abs=0.01)  # small operations, with what is between


def test_of_the_steps_that_hold_a_part_of_a_cause_all_that_are_alike_count(make: Make) -> None:
    """40 of 200 steps have 10 ms of Python, half of it a library's: 20 steps would hold as much as is told."""
    file = make()
    for i in range(200):
        file.step({("other", "python"): 10.0 if i % 5 == 0 else 0.1, ("forward", "native"): 4.0})
    mine, library = (
        file.stack(f"{TRAIN}:4 rollout"),
        file.stack("/x/site-packages/gym/core.py:9 step", f"{TRAIN}:5 rollout"),
    )
    file.detail("sample", 200, phase="other", state="python", stack=mine, count=60)
    file.detail("sample", 216, phase="forward", state="python", stack=library, count=60)
    f = next(f for f in said(file).findings if f.id == "TP302")
    assert f.steps_affected == f.params["few"] == 40


MODULE = "/x/site-packages/torch/nn/modules/module.py:1778 Module._wrapped_call_impl"
METRIC = (
    "/x/site-packages/torchmetrics/functional/classification/roc.py:54 _binary_roc_compute",
    "/x/site-packages/torchmetrics/metric.py:315 Metric.forward",
    CALL.format(1789),
    MODULE,
    "/x/site-packages/torchmetrics/collections.py:235 MetricCollection.forward",
    CALL.format(1789),
    MODULE,
)
AVERAGE = ("/x/site-packages/torch/optim/swa_utils.py:264 AveragedModel.update_parameters",)
LOGS = ("/x/site-packages/lightning/pytorch/core/module.py:548 LightningModule.log",)


@pytest.mark.parametrize(("phase", "mechanism"), [*itertools.product(["other", "forward"], ["python", "native"])])
@pytest.mark.parametrize(
    ("frames", "variant", "call"),
    [
        (METRIC, "metrics", "torchmetrics.collections.MetricCollection.forward called by train "),
        (AVERAGE, "average", "torch.optim.swa_utils.AveragedModel"),
        ((*METRIC, *LOGS), "", ""),  # the framework's doing, told by its own rules
    ],
)
def test_what_is_asked_of_a_library_in_each_step_is_told(
    make: Make, frames: tuple[str, ...], variant: str, call: str, *, phase: str, mechanism: str
) -> None:
    file = make().steps(100, {(phase, mechanism): 6.0, ("forward", "native"): 4.0, ("backward", "native"): 5.0})
    file.detail("sample", 600, phase=phase, state=mechanism, stack=file.stack(*frames, f"{TRAIN}:20 train"))
    inside = file.stack(LINEAR, CALL.format(1832), f"{TRAIN}:9 train")
    file.detail("sample", 400, phase="forward", state="native", stack=inside)
    found = [f for f in said(file).findings if f.id in ("TP302", "TP310", "TP312")]
    if not variant:
        assert found == []
        return
    (f,) = found
    assert (f.id, f.where) == ("TP302" if mechanism == "python" else "TP310", "train.py:20")
    assert f.variant == variant and f.params["place"].startswith(call)


@pytest.mark.parametrize("state", ["python", "native"])
@pytest.mark.parametrize(
    "inner",
    [
        "/x/site-packages/torch/distributions/normal.py:9 Normal.log_prob",
        "/x/site-packages/torch/nn/modules/module.py:9 Module.state_dict",
        "/x/site-packages/torch/nn/modules/module.py:9 Module.load_state_dict.<locals>.load",
    ],
)
def test_what_the_loop_asks_of_distributions_and_of_what_modules_keep_is_its_own(
    make: Make, inner: str, state: str
) -> None:
    """An average of the weights by state_dict(), statistics of a distribution; not the call of a module."""
    file = make().steps(100, {("other", state): 6.0, ("optimizer", "native"): 1.0}, compute=5.0)
    f = only(file.detail("sample", 600, phase="other", state=state, stack=file.stack(inner, f"{TRAIN}:6 update")))
    assert (f.id, f.where) == ("TP302" if state == "python" else "TP310", "train.py:6")
    weights = f.params["fix"].params["weights"] if state == "python" else f.params["weights"]
    assert weights == ("module" in inner)
    assert f.cost_ms_per_step == pytest.approx(6.0, abs=0.01)


@pytest.mark.parametrize(
    ("second", "told"),
    [
        ((), 0.7),  # ((a - b) ** 2) of arrays: on the function's own line
        (("/x/site-packages/torch/nn/functional.py:9 mse_loss",), 0.4),  # it may be the loss
    ],
)
def test_arrays_without_a_frame_are_told_with_those_that_have_one(
    make: Make, second: tuple[str, ...], told: float
) -> None:
    file = make().steps(100, {("forward", "native"): 10.0, ("optimizer", "native"): 1.0})
    numpy = "/x/site-packages/numpy/core/fromnumeric.py:9 clip"
    for ns, inner in ((400, (numpy,)), (300, second)):
        at = file.stack(*inner, f"{TRAIN}:6 stats", f"{TRAIN}:9 train")
        file.detail("sample", ns, phase="forward", state="native", stack=at)
    layer = file.stack(LINEAR, CALL.format(1832), f"{TRAIN}:8 train")
    f = only(file.detail("sample", 300, phase="forward", state="native", stack=layer))
    assert (f.id, f.where) == ("TP310", "train.py:6") and f.cost_ms_per_step == pytest.approx(10 * told, rel=0.01)
    assert f.confidence == ("high" if second else "medium")  # they may be tensors


def test_one_look_at_the_parameters_is_no_average_of_the_weights(make: Make) -> None:
    """`next(model.parameters()).device`, and then the work."""
    file = make().steps(100, {("other", "python"): 6.0, ("optimizer", "native"): 1.0}, compute=5.0)
    asks = "/x/site-packages/torch/nn/modules/module.py:9 Module.parameters"
    file.detail("sample", 10, phase="other", state="python", stack=file.stack(asks, f"{TRAIN}:6 update"))
    f = only(file.detail("sample", 590, phase="other", state="python", stack=file.stack(f"{TRAIN}:7 update")))
    assert not f.params["fix"].params["weights"]


@pytest.mark.parametrize(("state", "rule"), [("python", "TP302"), ("native", "TP310")])
@pytest.mark.parametrize("ms", [(6.0, 3.6), (9.0, 0.6)])
def test_of_two_functions_each_is_named_and_the_fix_of_one_saves_its_own(
    make: Make, state: str, rule: str, ms: tuple[float, float]
) -> None:
    file = make().steps(100, {("other", state): 9.6, ("optimizer", "native"): 0.5}, compute=9.0)
    for function, each in zip(("make_features", "update"), ms, strict=True):
        at = file.stack(f"{TRAIN}:5 {function}", f"{TRAIN}:20 train")
        file.detail("sample", 100 * each, phase="other", state=state, stack=at)
    f = only(file)
    assert f.id == rule and f.cost_ms_per_step == pytest.approx(9.6, abs=0.05)
    if ms[1] > 1:
        assert (f.params["first_share"], f.params["second_share"]) == pytest.approx((0.625, 0.375))
        assert f.params["second"] == "update (train.py:5)"
        assert f.fix_share == pytest.approx(0.625)
    else:
        assert f.params["second"] is None and f.fix_share == 1.0
