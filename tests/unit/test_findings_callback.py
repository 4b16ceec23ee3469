"""TP701 of callbacks, on runs made by hand: how often one does it, and how to do it less often."""

from __future__ import annotations

import json

import pytest
from trainperf.findings import framework
from trainperf.findings.facts import Facts
from trainperf.findings.model import Said
from trainperf.runfile.records import Frame
from verdicts import TRAIN, Make, hook, lightning, only, said


@pytest.mark.parametrize(
    ("name", "calls", "hugging_face", "counter"),
    [
        ("on_train_batch_end", 100, False, "batch_idx"),
        ("on_step_end", 100, True, "state.global_step"),
        ("on_train_epoch_end", 5, False, "trainer.current_epoch"),
        ("on_epoch_end", 5, True, "round(state.epoch)"),
        ("on_save", 5, True, ""),
        ("on_after_backward", 100, False, ""),
    ],
)
def test_how_to_do_it_less_often_depends_on_when_it_is_called(
    make: Make, name: str, calls: int, hugging_face: bool, counter: str
) -> None:
    file = make().meta(transformers=json.dumps({"logging_steps": 5})) if hugging_face else lightning(make)
    file.steps(100 - calls, compute=2.0).steps(calls, {("forward", "native"): 2.0, ("other", "blocked"): 300 / calls})
    called = hook(300, count=calls)
    file.object(1, "callback", **{"class": "Plot", "module": "app", "at": f"{TRAIN}:40", "hooks": {name: called}})
    f = only(file)
    assert f.id == "TP701" and f.steps_affected == calls and f.params["hook"] == name
    assert f.params.get("counter", "") == counter and (f.variant == "every_n") == bool(counter)


@pytest.mark.parametrize(("longest", "every"), [(10, True), (30, False)])
def test_a_hook_with_a_call_much_longer_than_most_is_not_said_to_take_it_at_every_call(
    make: Make, longest: float, every: bool
) -> None:
    """Nor is it said that few of them do: one long call, such as the first, looks the same."""
    file = lightning(make).steps(100, {("forward", "native"): 8.0, ("other", "native"): 3.0})
    called = {**hook(300), "max_ns": int(longest * 1e6)}
    described = {"class": "train.<locals>.Plot", "module": "app", "at": f"{TRAIN}:40"}
    f = only(file.object(1, "callback", **described, hooks={"on_train_batch_end": called}))
    assert f.who == ("Plot.on_train_batch_end",)
    assert (f.params["alike"], f.params["few"]) == (every, False)


WOKE = 2
PUT = "/usr/lib/python3.11/queue.py:140 Queue.put", "/usr/lib/python3.11/threading.py:327 Condition.wait"


@pytest.mark.parametrize(
    ("at", "code", "says"),
    [
        (PUT[::-1], 202, "full_queue"),
        ((), 202, "lock"),
        (("/usr/lib/python3.11/queue.py:171 Queue.get",), 202, "queue"),
        ((), 230, ""),  # it sleeps: no other thread has to do with it
    ],
)
@pytest.mark.parametrize("sign", [WOKE, 1])
def test_a_callback_that_waits_for_a_thread_is_not_to_run_in_one(
    make: Make, at: tuple[str, ...], code: int, *, says: str, sign: int
) -> None:
    file = lightning(make).steps(100, {("forward", "native"): 4.0, ("other", "blocked"): 6.0})
    file.object(1, "callback", **{"class": "Send", "module": "app", "hooks": {"on_train_batch_end": hook(600)}})
    stack = file.stack(*at, f"{TRAIN}:42 Send.on_train_batch_end")
    file.detail("sample", 590, phase="other", state="blocked", code=code, stack=stack, count=60)
    uploads = file.stack(f"{TRAIN}:77 send", f"{TRAIN}:70 upload")
    file.detail("beside", 590, phase="other", thread=file.thread("uploader"), stack=uploads, code=sign)
    if not says or (sign != WOKE and says == "lock"):  # it sleeps; or a library's threads may compute
        says = ""
    f = only(file)
    assert f.id == "TP701" and f.where == "train.py:41"
    if not says:
        assert not f.params["waits"] and f.variant == "every_n"
        return
    assert (f.variant, f.params["does"]) == ("waits", Said(f"does_{says}"))
    assert (f.params["awaited"] is not None) == ("uploader" in f.who) == (sign == WOKE)


@pytest.mark.parametrize(
    ("top", "loops", "says", "named"),
    [
        ({"put": 60, "python": 0}, 0, True, True),
        ({"put": 40, "python": 20}, 0, True, True),
        ({"put": 25, "python": 35}, 0, False, False),
        ({"put": 25, "sleep": 35}, 0, False, False),
        ({"put": 60}, 90, True, False),  # who is beside may be so while the loop sleeps
    ],
)
def test_a_callback_waits_for_others_where_most_of_its_costliest_hook_does(
    make: Make, top: dict[str, int], loops: int, *, says: bool, named: bool
) -> None:
    python, asleep = top.get("python", 0) / 10, (60 - top.get("python", 0) + loops) / 10
    cells = {("forward", "native"): 4.0, ("other", "python"): python, ("other", "blocked"): asleep}
    file = lightning(make).steps(100, cells)
    file.object(1, "callback", **{"class": "Send", "module": "app", "hooks": {"on_train_batch_end": hook(600)}})
    hooks = {"on_train_batch_start": hook(100)}
    file.object(2, "callback", **{"class": "Other", "module": "app", "hooks": hooks})
    at = f"{TRAIN}:42 Send.on_train_batch_end"
    stacks = {"put": file.stack(*PUT[::-1], at), "sleep": file.stack(at), "python": file.stack(at)}
    for what, ms in top.items():
        state, code = ("python", 0) if what == "python" else ("blocked", 202 if what == "put" else 230)
        file.detail("sample", ms * 10, phase="other", state=state, code=code, stack=stacks[what], count=ms)
    if loops:
        file.detail("sample", loops * 10, phase="other", state="blocked", code=202, stack=file.stack(f"{TRAIN}:9 ask"))
    uploads = file.stack(f"{TRAIN}:77 send", f"{TRAIN}:70 upload")
    file.detail("beside", 590, phase="other", thread=file.thread("uploader"), stack=uploads, code=WOKE)
    f = next(f for f in said(file).findings if f.id == "TP701")
    assert (f.params["does"] == Said("does_full_queue")) == says and ("uploader" in f.who) == named
    if says:
        assert f.fix_share <= top["put"] / sum(top.values()) + 0.01


def test_two_classes_of_one_name_are_told_apart_by_their_lines(make: Make) -> None:
    """Each in a function of its own."""
    file = lightning(make).steps(100, compute=8.0)
    for number, (of, line, ms) in enumerate([("a", 40, 100), ("b", 80, 300)], 1):
        hooks = {"on_train_batch_end": hook(ms, at=f"{TRAIN}:{line + 1}")}
        described = {"class": f"{of}.<locals>.Plot", "module": "app", "at": f"{TRAIN}:{line}"}
        file.object(number, "callback", **described, hooks=hooks)
    with file.open() as run:
        hooks_of = framework.Hooks(Facts(run))
    for of, line, number in [("a", 44, 1), ("b", 85, 2)]:
        part = hooks_of.owner(Frame(TRAIN, f"{of}.<locals>.Plot.on_train_batch_end", line))
        assert part is not None and part.number == number


@pytest.mark.parametrize("theirs", [True, False])
def test_who_inherits_from_a_framework_is_not_said_to_be_its_own(make: Make, theirs: bool) -> None:
    file = lightning(make).steps(100, {("forward", "native"): 8.0, ("other", "native"): 3.0})
    at = "/x/site-packages/lightning/pytorch/callbacks/early_stopping.py:190"
    name, module = ("EarlyStopping", "lightning.pytorch.callbacks.early_stopping") if theirs else ("MyStop", "app")
    file.object(1, "callback", **{"class": name, "module": module, "hooks": {"on_train_batch_end": hook(300, at=at)}})
    assert only(file).variant == ("frameworks" if theirs else "inherited")


@pytest.mark.parametrize("own_ms", [250, 20])
def test_a_method_of_the_users_that_an_inherited_hook_calls_is_told(make: Make, own_ms: float) -> None:
    """A ModelCheckpoint whose _save_checkpoint also hashes the file: to leave it out is no mend."""
    library = "/x/site-packages/lightning/pytorch/callbacks/model_checkpoint.py"
    file = lightning(make).steps(100, {("forward", "native"): 8.0, ("other", "native"): 3.0})
    hooks = {"on_train_batch_end": hook(300, at=f"{library}:300")}
    file.object(1, "callback", **{"class": "Best", "module": "app", "at": f"{TRAIN}:4", "hooks": hooks})
    called = (f"{library}:339 ModelCheckpoint.on_train_batch_end", f"{TRAIN}:90 <module>")
    mine = file.stack(f"{TRAIN}:60 digest", f"{TRAIN}:6 Best._save_checkpoint", *called)
    file.detail("sample", own_ms, phase="other", state="native", stack=mine)
    file.detail("sample", 300 - own_ms, phase="other", state="native", stack=file.stack(*called))
    f = next(f for f in said(file).findings if f.id == "TP701")
    if own_ms > 150:
        assert (f.where, f.variant, f.params["method"]) == ("train.py:60", "method", "digest (train.py:60)")
    else:
        assert (f.variant, f.params["method"]) == ("inherited", None)


def test_a_progress_bar_is_to_be_drawn_less_often(make: Make) -> None:
    file = lightning(make).steps(100, {("forward", "native"): 8.0, ("other", "python"): 2.0})
    module = "lightning.pytorch.callbacks.progress"
    file.object(
        1, "callback", **{"class": "TQDMProgressBar", "module": module, "hooks": {"on_train_batch_end": hook(200)}}
    )
    f = only(file)
    assert (f.id, f.variant, f.params["part"]) == ("TP701", "progress_bar", "TQDMProgressBar")
