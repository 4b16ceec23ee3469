"""How changes are written and found in findings, how trials are planned and paired, what is refused: no trial runs."""

from __future__ import annotations

import functools
import io
import json
import math
import random
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from trainperf.cli.main import main
from trainperf.cli.trial_options import write_patch
from trainperf.cli.try_ import exit_code
from trainperf.errors import TrainperfError
from trainperf.findings.rules import ALL
from trainperf.prove import chance, measure, prover
from trainperf.prove.attempt import Result, attempt
from trainperf.prove.candidates import TRIES, candidates, explained, settings_of, with_start_up
from trainperf.prove.changes import Change
from trainperf.prove.child import one_line
from trainperf.prove.fingerprint import fingerprint, indices, weights
from trainperf.prove.prover import Outcome
from trainperf.prove.recorder import construction_chain
from trainperf.prove.schedule import Measured, prove
from trainperf.prove.sequential import MAX_PAIRS, judge
from trainperf.prove.trial import Command, Trial, Trials
from trainperf.report import console, try_console, try_json

# Changes


def test_a_change_is_read_and_written() -> None:
    change = Change.parse("num_workers=2, persistent_workers=True")
    assert change.of_loader == {"num_workers": 2, "persistent_workers": True}
    assert str(change) == "num_workers=2, persistent_workers=True"
    assert change.numbers == "same"
    none, kept = ({"shuffles": True, "options": {"persistent_workers": kept}} for kept in (False, True))
    assert "each sample still comes once" in change.notes(none)[0] == Change.parse("num_workers=0").notes(kept)[0]
    assert change.notes({**none, "shuffles": False}) == () == Change.parse("num_workers=2").notes(none)
    assert change.notes(kept) == () == change.notes(None)
    assert Change.parse("OMP_NUM_THREADS=1").environment == {"OMP_NUM_THREADS": "1"}
    assert Change.parse("autocast=bfloat16,threads=1").numbers == "precision"
    assert dict(Change.parse("threads=1").on(Change.parse("num_workers=2")).settings) == {
        "num_workers": 2,
        "threads": 1,
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("num_workers", "is no change: write NAME=VALUE"),
        ("workers=2", "is no change"),
        ("num_workers=two", "num_workers wants a number"),
        ("num_workers=-1", "num_workers wants a number"),
        ("autocast=int8", "autocast wants bfloat16 or float16"),
    ],
)
def test_what_is_no_change_says_what_is(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Change.parse(text)


# Findings and their changes


def finding(id: str, fix: str, **more: Any) -> Any:
    values = {
        "cost_ms_per_step": 5.0,
        "fix_share": 1.0,
        "confidence": "high",
        "by_others": False,
        "finds_out": False,
    } | more
    return SimpleNamespace(id=id, fix=fix, **values)


@pytest.mark.parametrize(
    ("id", "fix", "settings"),
    [
        ("TP101", "DataLoader(..., num_workers=2, persistent_workers=True)", "num_workers=2, persistent_workers=True"),
        ("TP101", "# why\nDataLoader(..., num_workers=3)  # its waits then overlap", "num_workers=3"),
        ("TP101", 'DataLoader(..., multiprocessing_context="spawn")', "multiprocessing_context=spawn"),
        ("TP101", "TrainingArguments(dataloader_num_workers=2)", "num_workers=2"),
        ("TP101", "# make one sample of Images cheaper", ""),
        ("TP102", "DataLoader(..., num_workers=...)  # more than it has now", ""),
        ("TP308", "torch.set_num_threads(2)  # or raise the limit", "threads=2"),
        ("TP303", "import gc\ngc.collect(); gc.freeze(); gc.disable()  # once, after setup", "gc=off"),
        ("TP311", "torch.optim.Adam(..., fused=True)", "fused=True"),
        ("TP314", "optimizer.zero_grad()  # set_to_none=True", "zero_grad=set_to_none"),
        ("TP506", 'model = torch.compile(model, mode="reduce-overhead")  # x', "compile=reduce-overhead"),
        ("TP506", "model = torch.compile(model)  # fewer kernels", "compile=default"),
        ("TP603", "MALLOC_TOP_PAD_=2 MALLOC_X_=1 python train.py", "MALLOC_TOP_PAD_=2, MALLOC_X_=1"),
        ("TP306", "DataLoader(..., num_workers=2)", ""),  # of the validation data
    ],
)  # fmt: skip
def test_settings_are_read_from_a_findings_own_fix(id: str, fix: str, settings: str) -> None:
    assert ", ".join(f"{n}={v}" for n, v in settings_of(id, fix).items()) == settings


def test_the_most_promising_comes_first_and_none_twice() -> None:
    found = candidates(
        [
            finding("TP303", "gc.disable()", cost_ms_per_step=2.0),
            finding("TP101", "DataLoader(..., num_workers=2)", cost_ms_per_step=6.0, fix_share=0.5),
            finding("TP102", "DataLoader(..., num_workers=2)", cost_ms_per_step=1.0),
            finding("TP602", "torch.set_num_threads(1)", by_others=True),
        ],
        step_ms=10.0,
    )
    assert [str(c) for c in found] == ["num_workers=2", "gc=off"]
    assert found[0].promised == pytest.approx(10 / 7) and found[0].finding == "TP101"


def test_the_start_of_workers_is_taken_from_what_is_promised() -> None:
    change = replace(Change.parse("num_workers=5"), promised=4.0)
    steps = {epoch: measure.Plan(50, 5, False, epoch, 0.01) for epoch in (None, 10_000, 90)}
    promised = [with_start_up(change, 10.0, plan).promised for plan in steps.values()]
    assert promised == [4.0, pytest.approx(4.0, rel=0.01), pytest.approx(10 / 3.5)]  # 5 times 18 ms over 90 steps of 10
    threads = replace(Change.parse("threads=1"), promised=4.0)
    assert with_start_up(threads, 10.0, steps[90]) == threads
    kept = replace(Change.parse("num_workers=5,persistent_workers=True"), promised=4.0)
    assert with_start_up(kept, 10.0, steps[90]).promised == pytest.approx(10 / 3.5)
    assert with_start_up(kept, 10.0, measure.Plan(180, 90, True, 90, 0.01)) == kept  # started in the first epoch only


def test_a_fix_that_only_tells_more_promises_nothing() -> None:
    (found,) = candidates(
        [finding("TP102", "DataLoader(..., num_workers=5)", cost_ms_per_step=6.0, finds_out=True)], step_ms=10.0
    )
    assert found.promised is None and str(found) == "num_workers=5"


def test_each_rule_that_may_be_tried_exists_and_explain_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(TRIES) <= {rule.id for rule in ALL}
    assert main(["explain", "TP101"]) == 0
    assert explained("TP101") in capsys.readouterr().out
    assert "needs an edit" in explained("TP301")


# Plans and pairs


def loop(step_s: float, *, epochs: int = 1, length: int = 1000, steps: int = 100, start_up: float = 0.0) -> Any:
    made = []
    at = 0.0
    for _ in range(epochs):
        begin, at = at, at + start_up
        count = min(steps, length)
        requested = [begin if i == 0 else at + i * step_s for i in range(count)]
        delivered = [at + i * step_s + step_s / 2 for i in range(count)]
        at += count * step_s
        ended = count == length
        if not ended:
            requested.append(at)
        made.append({"begin": begin, "end": at if ended else None, "requested": requested, "delivered": delivered,
                     "samples": [4] * count, "codes": [], "drawn": []})  # fmt: skip
    return {"trains": 0, "loaders": [{"length": length}], "epochs": made, "backwards": []}


def test_a_long_epoch_is_measured_by_a_stretch_of_it() -> None:
    record = loop(0.02)
    plan = measure.plan(record, ended_itself=False)
    assert not plan.whole_epochs and plan.epoch == 1000 and plan.batches - plan.warm_up >= 100
    assert measure.rate(record, plan) == pytest.approx(4 / 0.02)


def test_the_start_of_workers_is_spread_over_the_epoch() -> None:
    record = loop(0.02, start_up=2.0)
    plan = measure.plan(record, ended_itself=False)
    assert measure.start_up(record) == pytest.approx(2.0, rel=0.02)
    assert measure.rate(record, plan) == pytest.approx(4 / (0.02 + 2.0 / 1000), rel=0.02)


def test_short_epochs_are_measured_whole() -> None:
    record = loop(0.02, epochs=4, length=20, start_up=0.1)
    plan = measure.plan(record, ended_itself=False)
    assert plan.whole_epochs and plan.batches % 20 == 0
    assert measure.rate(record, plan) == pytest.approx(80 / 0.5)


def test_what_lies_between_short_epochs_is_a_part_of_each_step() -> None:
    record = loop(0.02, epochs=4, length=20)
    plan = measure.plan(record, ended_itself=False)
    assert plan.whole_epochs
    for number, epoch in enumerate(record["epochs"]):  # half a second after each one
        epoch["begin"] += 0.5 * number
        epoch["end"] += 0.5 * number
    said = measure.of_epochs(record, plan, persistent=True)
    assert said == {"epoch": 20, "whole": True, "persistent": True, "between_ms": pytest.approx(25.0)}
    assert measure.of_epochs(record, replace(plan, whole_epochs=False), persistent=False)["between_ms"] == 0.0


def test_what_the_first_steps_take_more_is_the_warm_up() -> None:
    long = loop(0.02)
    for late in (long["epochs"][0]["requested"], long["epochs"][0]["delivered"]):
        late[2:] = [t + 3.0 for t in late[2:]]  # compiling
    assert measure.warm_up_s(long, measure.plan(loop(0.02), ended_itself=False)) == pytest.approx(3.0)
    short = loop(0.02, epochs=4, length=20)
    plan = measure.plan(short, ended_itself=False)
    short["epochs"][0]["begin"] -= 3.0
    assert plan.whole_epochs and measure.warm_up_s(short, plan) == pytest.approx(3.0)


def test_a_training_without_a_loader_is_counted_by_its_steps() -> None:
    record = {"trains": None, "loaders": [], "epochs": [], "backwards": [0.01 * i for i in range(300)]}
    plan = measure.plan(record, ended_itself=False)
    assert measure.rate(record, plan) == pytest.approx(100)


@pytest.mark.parametrize(("steps", "said"), [(0, "no training step was seen"), (5, "only 5 training steps")])
def test_too_few_steps_are_refused(steps: int, said: str) -> None:
    with pytest.raises(TrainperfError, match=said):
        measure.plan(loop(0.01, steps=steps, epochs=1 if steps else 0), ended_itself=True)


def pairs(gain: float, *, others: tuple[float, float] = (0.0, 0.0), noise: float = 0.02, budget: float = 1e9) -> Any:
    r, ran, clock = random.Random(7), [], [0.0]

    def side(name: str, rate: float, used: float) -> Measured:
        ran.append(name)
        clock[0] += 5
        return Measured(rate * math.exp(r.gauss(0, noise)), used)

    proof = prove(
        lambda: side("A", 100.0, others[0]),
        lambda: side("B", 100.0 * gain, others[1]),
        deadline=budget,
        pair_s=10,
        clock=lambda: clock[0],
    )
    return proof, "".join(ran)


def test_pairs_are_a_b_b_a() -> None:
    proof, ran = pairs(1.3)
    assert proof.evidence.decision == "won" and proof.evidence.gain == pytest.approx(1.3, rel=0.05)
    assert ran.startswith("ABBAABBA")


def test_no_pair_begins_that_would_end_too_late() -> None:
    proof, ran = pairs(1.3, budget=25)
    assert (proof.stopped, ran) == ("time", "ABBA")


def test_noise_alone_ends_undecided_or_without_a_gain() -> None:
    proof, ran = pairs(1.0, noise=0.3)
    assert proof.evidence.decision in ("open", "no_gain") and len(ran) <= 2 * MAX_PAIRS


def test_a_disturbed_pair_is_run_again_whichever_side_was_faster() -> None:
    for others in ((0.0, 1.5), (1.5, 0.0)):
        proof, _ = pairs(1.3, others=others)
        assert proof.repeated == 3


# What is not even tried


@pytest.mark.parametrize(
    ("change", "epoch", "whole", "can"),
    [
        ("num_workers=2", 1000, False, True),
        ("num_workers=2,persistent_workers=True", 1000, False, True),
        ("num_workers=2", 10, True, True),
        ("num_workers=2", None, False, False),
        ("num_workers=2,threads=1", 1000, False, False),
        ("pin_memory=True", 1000, False, False),
    ],
)
def test_numbers_of_workers_are_compared_in_one_process(change: str, epoch: int | None, whole: bool, can: bool) -> None:
    first: Any = SimpleNamespace(plan=measure.Plan(200, 16, whole, epoch, 0.01))
    assert prover._by_turns(Change.parse(change), first) is can


@pytest.mark.parametrize(
    ("ended", "turns", "verdict", "reason"),
    [
        ("hung", {}, "failed", "no end after 9 s"),
        ("error", {}, "undecided", "by trials"),  # which then say how it fails
        ("steps", {}, "undecided", "by trials"),
        ("steps", {"pairs": []}, "undecided", "by trials"),
        ("steps", {"pairs": [(10.0, 5.0)] * 4}, "proven", "by turns"),
    ],
)
def test_where_turns_cannot_be_taken_there_are_trials(
    monkeypatch: pytest.MonkeyPatch, ended: str, turns: Any, verdict: str, reason: str
) -> None:
    def run(asked: Any) -> Trial:
        assert asked.turns["policy"]["paired"]["other"] == 2 and asked.batches >= 12
        return Trial(ended, "no end after 9 s", {"turns": turns})

    def confirmed(_: Any, change: Change, first: Any, baseline: Trial, evidence: Any) -> Outcome:
        assert evidence.decision == "won" and baseline.record["turns"] == turns
        return Outcome(change, "proven", "by turns")

    monkeypatch.setattr(prover.Prover, "refused", lambda *_: "")
    monkeypatch.setattr(prover.Prover, "confirm", confirmed)
    by_trials = lambda _, change, *__, **___: Outcome(change, "undecided", "by trials")  # noqa: E731
    monkeypatch.setattr(prover.Prover, "prove_by_trials", by_trials)
    record = loop(0.02)
    trial = SimpleNamespace(record=record, loader={"options": {"num_workers": 0}})
    first: Any = SimpleNamespace(trial=trial, plan=measure.plan(record, ended_itself=False), trial_s=1.0)
    fake: Any = SimpleNamespace(run=run)
    change = Change.parse("num_workers=2")
    found = prover.Prover(fake, budget_s=60).prove(change, first, until=math.inf, alpha=0.01)
    assert (found.verdict, found.reason) == (verdict, reason)


@pytest.mark.parametrize(("gain", "verdict"), [(1.5, "proven"), (1.0, "no_gain")])
def test_pairs_are_not_watched_and_one_trial_after_them_is(
    monkeypatch: pytest.MonkeyPatch, gain: float, verdict: str
) -> None:
    r, watched = random.Random(3), []

    def run(asked: Any) -> Trial:
        watched.append(asked.watched)
        record = loop(0.02 * math.exp(r.gauss(0, 0.002)) / (gain if asked.change == change else 1.0))
        record |= {"losses": [], "gradients": [], "others_cpus": 0.0, "unproven": []}
        return Trial("steps", record=record, run_file="with")

    change = Change.parse("switch_interval=0.001")
    trial = Trial("steps", record={**loop(0.02), "batch_bytes": 0, "cpus": 1}, run_file="without")
    first: Any = SimpleNamespace(trial=trial, plan=measure.plan(trial.record, ended_itself=False), trial_s=1.0)
    monkeypatch.setattr(Trial, "loader", property(lambda _: None))
    causes = {"data_wait": (9.0, 6.0)}
    monkeypatch.setattr(
        prover, "causes_of", lambda a, b: causes if (a.run_file, b.run_file) == ("without", "with") else {}
    )
    fake: Any = SimpleNamespace(run=run)
    found = prover.Prover(fake, budget_s=60).prove_by_trials(change, first, until=math.inf, alpha=0.01)
    assert (found.verdict, found.causes) == (verdict, causes)
    assert watched[-1] is True and len(watched) >= 7 and not any(watched[:-1])


def test_a_script_that_ends_after_fewer_steps_than_before_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial("steps", record={**loop(0.02), "batch_bytes": 0, "cpus": 1})
    first: Any = SimpleNamespace(trial=trial, plan=measure.plan(trial.record, ended_itself=False), trial_s=1.0)
    monkeypatch.setattr(Trial, "loader", property(lambda _: None))
    fake: Any = SimpleNamespace(run=lambda _: Trial("script", record=loop(0.02, steps=5)))
    with pytest.raises(TrainperfError, match="the script ends after fewer steps than before: give it a fixed number"):
        prover.Prover(fake, budget_s=60).prove_by_trials(Change.parse("gc=off"), first, until=math.inf, alpha=0.01)


GIB = 1 << 30


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Why a change is not tried where a process has 1 GiB, a batch 16 MiB, and so much is free."""

    def ask(
        change: str, *, memory: int = 64 * GIB, shm: int = 64 * GIB, loader: bool = True, script: str = "no.py"
    ) -> str:
        monkeypatch.setattr(prover, "free_bytes", lambda: {"memory": memory, "/dev/shm": shm})
        made = {"chain": [[script, 3]], "dataset": 1, "trained": 9, "length": 1000, "options": {"num_workers": 0}}
        record = loop(0.02) | {"batch_bytes": 16 << 20, "peak_bytes": {"rss": GIB}, "loaders": [made]}
        plan = measure.plan(record, ended_itself=False)
        trial = Trial("steps", record=record | {"trains": 0 if loader else None})
        first = prover.First(trial=trial, plan=plan, step_ms=20, verdict="", advised=(), untried=(), trial_s=1)
        return prover.Prover(Trials(Command("train.py")), budget_s=1).refused(Change.parse(change), first)

    return ask


def test_workers_that_do_not_fit_are_not_tried(refused: Callable[..., str]) -> None:
    assert refused("num_workers=2") == ""
    assert refused("num_workers=8", memory=8 * GIB) == "8 workers may take 8.2 GiB, over half of the free memory"
    assert "of the free /dev/shm" in refused("num_workers=8", shm=GIB // 8)
    assert "of the free /dev/shm" in refused("num_workers=2,prefetch_factor=64", shm=GIB)


def test_spawned_workers_need_a_guarded_script(refused: Callable[..., str], tmp_path: Path) -> None:
    """Of which the trial's own, unchanged in the workers, would not show the error."""
    open_, guarded = tmp_path / "open.py", tmp_path / "guarded.py"
    open_.write_text("import torch\n\nloader = DataLoader(data)\n")
    guarded.write_text('import torch\nif __name__ == "__main__":\n    loader = DataLoader(data)\n')
    spawned = "num_workers=2,multiprocessing_context=spawn"
    assert "below `if __name__" in refused(spawned, script=str(open_))
    assert refused(spawned, script=str(guarded)) == ""
    assert refused("num_workers=2,multiprocessing_context=fork", script=str(open_)) == ""


def test_a_training_without_a_loader_has_no_loader_to_change(refused: Callable[..., str]) -> None:
    assert refused("num_workers=2", loader=False) == "this training has no DataLoader"
    assert refused("threads=1", loader=False) == ""


# Fingerprints


def test_weights_tell_rounding_from_other_values() -> None:
    import numpy as np
    import torch

    def far(a: Any, b: Any) -> bool:
        return any(abs(x - y) > 1e-4 * scale for (x, scale), (y, _) in zip(weights(a), weights(b), strict=True))

    x, y = torch.randn(4, 3000), torch.arange(4)
    assert not far([x * (1 + 1e-6), y], [x, y])
    for other in ([x.flip(0), y], [x, y.flip(0)], [x + 0.01, y]):
        assert far(other, [x, y])
    assert weights(["text", np.array([1.0, -2.0]), None, 7, torch.ones(2, device="meta")]) == [(-3.0, 5.0), (7.0, 7.0)]


def test_batches_of_other_than_real_numbers_have_no_weight() -> None:
    import numpy as np
    import torch

    words, days = np.array(["a", "b"]), np.array(["2026-01-01"], dtype="datetime64[D]")
    odd = [torch.ones(2, dtype=torch.complex64), words, days, 10**400]
    assert weights([*odd, torch.tensor([True, True]), torch.ones(2, dtype=torch.bfloat16)]) == [(3.0, 3.0)] * 2


def test_random_numbers_that_are_drawn_and_generators_of_a_dataset_are_seen() -> None:
    import numpy as np
    import torch

    for draw in (random.random, np.random.rand, lambda: torch.rand(1)):
        before = chance.state()
        assert chance.state() == before
        draw()
        assert chance.state() != before
    own = SimpleNamespace(steps=[{"crop": SimpleNamespace(rng=np.random.default_rng(0))}])
    ring = SimpleNamespace(rows=list(range(10**6)))
    ring.itself = ring
    assert chance.generators(ring) == []
    for kept, draw in (
        (np.random.default_rng(0), lambda g: g.random()),
        (np.random.RandomState(0), lambda g: g.rand()),
        (random.Random(0), lambda g: g.random()),
        (torch.Generator(), lambda g: torch.rand(1, generator=g)),
    ):
        own = SimpleNamespace(steps=[{"crop": SimpleNamespace(rng=kept)}])
        found = chance.generators(SimpleNamespace(transform=own))
        assert found == [kept]
        before = chance.state_of(found)
        assert chance.state_of(found) == before
        draw(kept)
        assert chance.state_of(found) != before


def test_what_a_dataset_keeps_is_counted() -> None:
    class Kept:
        def __init__(self) -> None:
            self.rows: list[Any] = [None] * 1000
            self.by_index: dict[int, Any] = {}

        @functools.lru_cache  # noqa: B019
        def read(self, index: int) -> int:
            return index

    dataset = Kept()
    before = chance.kept(dataset)
    dataset.rows[3] = dataset.by_index[4] = object()
    dataset.read(5)
    assert chance.kept(dataset) == before + 3


def test_a_fingerprint_tells_batches_and_counts_samples() -> None:
    import torch

    x, y = torch.arange(4000.0).reshape(4, 1000), torch.tensor([0, 1, 0, 1])
    code, samples = fingerprint([x, y])
    assert samples == 4
    assert fingerprint((x.clone(), y.clone())) == (code, samples)
    other = x.clone()
    other[3] += 1
    assert fingerprint([other, y])[0] != code
    assert fingerprint({"a": x, "b": ["text", y]})[0] != fingerprint({"a": x, "b": ["other", y]})[0]
    assert fingerprint([torch.tensor([True, False]), torch.zeros(2, dtype=torch.bfloat16)])[1] == 2
    assert indices([1, 2, 3]) != indices([1, 3, 2])
    assert indices("key") != indices("other")


# Errors


def test_the_error_of_a_worker_is_its_own() -> None:
    from torch._utils import ExceptionWrapper

    def fails() -> None:
        raise ValueError("no such\nimage")

    line = fails.__code__.co_firstlineno + 1
    try:
        fails()
    except ValueError as error:
        assert one_line(error) == f"ValueError: no such image (test_prove_trying.py:{line})"
        wrapped = ExceptionWrapper(where="in DataLoader worker process 0")
    with pytest.raises(ValueError, match="Caught ValueError in DataLoader") as raised:
        wrapped.reraise()
    assert one_line(raised.value) == f"ValueError: no such image (test_prove_trying.py:{line})"
    assert one_line(KeyboardInterrupt()) == "KeyboardInterrupt"


# The command


@pytest.mark.parametrize(
    ("words", "target", "arguments", "module"),
    [
        (["train.py", "--lr", "1"], "train.py", ("--lr", "1"), False),
        ([sys.executable, "-u", "train.py"], "train.py", (), False),
        (["-m", "package.train", "x"], "package.train", ("x",), True),
    ],
)
def test_commands_as_people_type_them(words: list[str], target: str, arguments: tuple[str, ...], module: bool) -> None:
    command = Command.parse(words)
    assert (command.target, command.arguments, command.module) == (target, arguments, module)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").touch()
    (tmp_path / "there.patch").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--", "no.py"], 1, "there is no script no.py"),
        (["--", "torchrun", "train.py"], 1, "torchrun starts several processes"),
        (["--", "python", "-m", "torch.distributed.run", "train.py"], 1, "run starts several processes"),
        (["--", "python", "-c", "1"], 1, "give a script"),
        (["--change", "x", "--", "a.py"], 1, "is no change"),
        (["--budget", "soon", "--", "a.py"], 2, "is no time: write 90s"),
        ([], 2, "say which script to try"),
        (["-o", "there.patch", "--", "a.py"], 1, "there.patch exists already: give another name, or -f"),
    ],
)
def test_what_cannot_be_tried_is_one_line(
    words: list[str], code: int, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["try", *words]) == code
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error


def result(*verdicts: Any) -> Result:
    evidence = judge([0.27, 0.26, 0.28, 0.27, 0.27])
    made = [
        Outcome(Change.parse("num_workers=2"), v, "why it is", evidence if v == "proven" else None) for v in verdicts
    ]
    return Result(made)


def test_what_is_proven_stays_where_a_later_trial_cannot_be_run() -> None:
    def judged(change: Change, *_: Any, **__: Any) -> Outcome:
        if change == changes[1]:
            raise TrainperfError("the disk is full")
        return Outcome(change, "proven")

    first = SimpleNamespace(advised=(), untried=(), trial=SimpleNamespace(loader=None))
    fake: Any = SimpleNamespace(watch=lambda: first, plan_said=lambda *_: None, prove=judged, began=0.0, left_s=1.0)
    changes = [Change.parse(text) for text in ("num_workers=2", "gc=freeze", "threads=1")]
    found = attempt(fake, changes)
    assert [(o.verdict, o.reason) for o in found.outcomes] == [("proven", ""), ("undecided", "the disk is full")]
    assert found.accepted == changes[0]
    with pytest.raises(TrainperfError, match="the disk is full"):
        attempt(fake, changes[1:])


def test_exit_codes() -> None:
    assert exit_code(result("no_gain", "proven")) == 0
    assert exit_code(result("no_gain", "undecided")) == 4
    assert exit_code(result("changes_results", "failed", "not_applied")) == 5
    assert exit_code(result()) == 5


def test_both_views_say_the_same() -> None:
    found = result("proven", "failed")
    out = io.StringIO()
    console.emit(try_console.lines(found, patch="fix.patch: git apply fix.patch"), out)
    text = out.getvalue()
    assert "num_workers=2: proven 1.31x [" in text and "git apply fix.patch" in text and "failed" in text
    said = try_json.to_dict(found, patch="fix.patch", note="fix.patch: git apply fix.patch")
    assert said["patch"] == "fix.patch" and said["patch_note"] == "fix.patch: git apply fix.patch"
    first, second = said["changes"]
    assert first["verdict"] == "proven" and first["gain"] == pytest.approx(1.31, abs=0.01) and first["pairs"] == 5
    assert first["interval"][0] < first["gain"] < first["interval"][1]
    assert (second["verdict"], second["gain"], second["reason"]) == ("failed", None, "why it is")


def test_the_page_shows_each_change_and_the_script_without_it(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    from trainperf.report import try_html

    found = result("proven", "failed")
    causes = {"data_wait": (9.0, 3.0), "compute": (4.0, 4.5), "gc": (0.01, 0.0)}
    found.outcomes[0] = replace(found.outcomes[0], causes=causes, notes=("<b>other</b> orders",))
    page = try_html.render(found, script="train.py", patch="fix.patch", note="fix.patch: git apply fix.patch")
    for text in (
        "Num_workers=2: proven 1.31x",
        "why it is",
        "Without: a mean step of 13.0 ms",
        "With: a mean step of 7.5",
    ):
        assert text.lower() in page.lower(), text
    assert page.count('<svg class="chart bar') == 2 and "<b>other</b>" not in page and "-6.00" in page
    assert ">gc</th>" not in page  # too small to show
    (data,) = re.findall(r'<script type="application/json" id="trainperf-try">(.*?)</script>', page, re.S)
    assert json.loads(data) == try_json.to_dict(found, patch="fix.patch", note="fix.patch: git apply fix.patch")
    nothing = try_html.render(result(), script="train.py", patch="", note="")
    assert "No finding of this run has a fix" in nothing


def test_a_trainers_loader_is_set_by_its_arguments() -> None:
    chain = [["/v/site-packages/transformers/trainer.py", 1051], ["/home/me/train.py", 9]]
    patch = write_patch({"num_workers": 2, "threads": 1}, {"chain": chain, "class": "DataLoader"}, "fix.patch")
    assert patch.file == "" and "TrainingArguments(..., dataloader_num_workers=2)" in patch.note
    assert write_patch({"threads": 1}, None, "fix.patch").note == "none: call torch.set_num_threads(1)"
    both = write_patch({"flush_denormal": "on", "OMP_NUM_THREADS": "2"}, None, "fix.patch").note
    assert both == "none: call torch.set_flush_denormal(True); start the script with OMP_NUM_THREADS=2"
    assert write_patch({}, None, "fix.patch").note == ""


def test_a_librarys_wrapper_of_a_loaders_init_does_not_make_it() -> None:
    """As Lightning's, while it calls train_dataloader(); Transformers' Trainer makes one."""
    of_library: dict[str, Any] = {}
    code = "def wraps(made, ask):\n    return ask(made)\ndef makes(ask):\n    return ask(object())\n"
    exec(compile(code, "/env/lib/site-packages/trainer/data.py", "exec"), of_library)
    assert construction_chain(object())[0][0] == __file__
    assert of_library["wraps"](object(), construction_chain)[0][0] == __file__
    assert of_library["makes"](construction_chain)[0] == ("/env/lib/site-packages/trainer/data.py", 4)
