"""What hooks of the backward do is the loop's own, what autograd needs is the model's: TP302 and TP310."""

from __future__ import annotations

import pytest
from runfiles import RunFile
from verdicts import TRAIN, Make, advice, only, said

TORCH = "/x/site-packages/torch"
ENGINE = f"{TORCH}/autograd/graph.py:979 _engine_run_backward"
BACKWARD = (ENGINE, f"{TORCH}/autograd/__init__.py:395 backward", f"{TORCH}/_tensor.py:623 Tensor.backward")
APPLY = f"{TORCH}/autograd/function.py:325 BackwardCFunction.apply"
CHECKPOINT = f"{TORCH}/utils/checkpoint.py:1183 _checkpoint_hook.__init__.<locals>.unpack_hook"
CALL = f"{TORCH}/nn/modules/module.py:1832 Module._call_impl"
HOOK = f"{TRAIN}:4 watch.<locals>.hook"


def backwards(make: Make, *frames: str, native: float = 4.0, python: float = 0.0, adam: float = 1.0) -> RunFile:
    """Milliseconds of each step that autograd's engine was in these frames; the engine itself has 5 more."""
    cells = {("forward", "native"): 3.0, ("backward", "native"): 5.0 + native, ("backward", "python"): python}
    file = make().steps(100, cells | {("optimizer", "native"): adam})
    at, alone = (file.stack(*inner, *BACKWARD, f"{TRAIN}:20 train") for inner in (frames, ()))
    file.detail("sample", 100 * native, phase="backward", state="native", stack=at)
    file.detail("sample", 100 * python, phase="backward", state="python", stack=at)
    return file.detail("sample", 500, phase="backward", state="native", stack=alone)


@pytest.mark.parametrize(
    "frames",
    [
        (HOOK,),
        (f"{TORCH}/functional.py:9 histc", HOOK),
        (f"{TRAIN}:9 histogram", HOOK),
        (HOOK, f"{TORCH}/utils/_contextlib.py:120 context_decorator.<locals>.decorate_context"),
        (HOOK, f"{TORCH}/utils/hooks.py:137 BackwardHook._set_user_hook.<locals>.hook"),
        (HOOK, f"{TORCH}/autograd/graph.py:673 register_multi_grad_hook.<locals>.get_inner_hook.<locals>.inner_hook"),
        (HOOK, *BACKWARD, f"{TORCH}/utils/checkpoint.py:331 CheckpointFunction.backward", APPLY),
    ],
)
def test_hooks_of_the_backward_are_told(make: Make, frames: tuple[str, ...]) -> None:
    f = only(backwards(make, *frames))
    assert (f.id, f.confidence) == ("TP310", "medium") and f.where in ("train.py:4", "train.py:9")
    assert f.variant == "backward_hooks" and f.cost_ms_per_step == pytest.approx(4.0, abs=0.01)


@pytest.mark.parametrize(
    "frames",
    [
        (),
        (f"{TRAIN}:4 Net.forward", CALL, CHECKPOINT),
        (f"{TRAIN}:4 block", f"{TORCH}/utils/checkpoint.py:1688 recompute_fn", CHECKPOINT),
        (f"{TRAIN}:4 Net.forward", CALL, HOOK),  # a penalty by the model
        (f"{TRAIN}:4 unpack_hook",),
        (f"{TRAIN}:4 Quantized.__torch_dispatch__",),
        (f"{TORCH}/nn/utils/clip_grad.py:9 clip_grad_norm_", HOOK),
        (f"{TORCH}/distributed/algorithms/ddp_comm_hooks/default_hooks.py:9 fp16_compress_hook",),
    ],
)
def test_what_the_model_needs_of_the_backward_is_not(make: Make, frames: tuple[str, ...]) -> None:
    assert said(backwards(make, *frames)).findings == ()


def test_a_hook_that_is_mostly_python_is_told_with_its_native_code(make: Make) -> None:
    f = only(backwards(make, HOOK, native=2.0, python=3.0))
    assert (f.id, f.where, advice(f)) == ("TP302", "train.py:4", "in_hook")
    assert f.cost_ms_per_step == pytest.approx(5.0, abs=0.01)
    operation = only(backwards(make, f"{TRAIN}:4 Clamp.backward", APPLY, native=2.0, python=3.0))
    assert advice(operation) == "in_backward"
    assert operation.cost_ms_per_step == pytest.approx(5.0, abs=0.01)


def test_hooks_that_may_update_the_weights_are_mentioned_not_blamed(make: Make) -> None:
    """No optimizer of PyTorch's was seen."""
    (f,) = said(backwards(make, HOOK, adam=0.0)).findings
    assert (f.id, f.severity) == ("TP310", "info")
