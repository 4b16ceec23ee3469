"""What is the same training and what is another, on records of trials."""

from __future__ import annotations

import random
from typing import Any

import pytest
from trainperf.prove.same_training import compare


def record(
    *,
    drawn: list[int] | None = None,
    codes: list[int] | None = None,
    losses: list[float] | None = None,
    parameters: int = 6,
    norm: float = 1.0,
    stream: bool = False,
    ended: bool = False,
    workers: int = 0,
    draws: bool | None = None,
    weights: list[Any] | None = None,
) -> dict[str, Any]:
    """Of one epoch of 40 batches."""
    drawn = list(range(40)) if drawn is None else drawn
    codes = [100 + i for i in drawn] if codes is None else codes
    losses = [2.0 - 0.01 * i for i in range(40)] if losses is None else losses
    epoch = {
        "begin": 0.0,
        "end": 9.0 if ended else None,
        "delivered": [0.1 * i for i in range(len(codes))],
        "codes": codes,
        "weights": [[(code, code), (1e9, 1e9)] for code in codes] if weights is None else weights,
        "drawn": [] if stream else drawn,
    }
    of_loader: dict[str, Any] = {"stream": stream, "options": {"num_workers": workers}}
    return {
        "trains": 0,
        "loaders": [of_loader if draws is None else {**of_loader, "draws": draws}],
        "epochs": [epoch],
        "losses": losses,
        "gradients": [(1, parameters, norm), (10, parameters, norm)],
    }


def noisy(seed: int, progress: float = 0.4) -> list[float]:
    r = random.Random(seed)
    return [2.0 - progress * i / 40 + r.gauss(0, 0.02) for i in range(40)]


def test_equal_to_the_bit_is_the_same() -> None:
    assert compare([record(), record()], record()).kind == "same"


def test_a_shorter_run_is_compared_as_far_as_it_goes() -> None:
    assert compare([record()], record(drawn=list(range(20)), losses=[2.0 - 0.01 * i for i in range(20)])).kind == "same"


def test_another_order_is_another_training() -> None:
    found = compare([record()], record(drawn=[0, 2, 1, *range(3, 40)]))
    assert (found.kind, found.reason) == ("other", "samples come in another order from batch 2 on")


def test_a_stream_that_each_worker_yields_whole_is_found() -> None:
    twice, four_times = ([100 + i // workers for i in range(40)] for workers in (2, 4))
    for baseline in (record(stream=True), record(stream=True, codes=twice, workers=2)):
        found = compare([baseline], record(stream=True, codes=four_times, workers=4))
        assert found.kind == "other" and "several times" in found.reason


def test_a_stream_that_is_divided_comes_in_another_order() -> None:
    """Though batches of a part are alike, as of a file with one class."""
    dealt = [100 + i for i in [*range(0, 40, 2), *range(1, 40, 2)]]
    found = compare([record(stream=True)], record(stream=True, codes=dealt, workers=2))
    assert found.kind == "other" and "another order" in found.reason
    parts, in_turns = [100 + i // 10 for i in range(40)], [100 + i % 2 for i in range(40)]
    found = compare([record(stream=True, codes=parts)], record(stream=True, codes=in_turns, workers=2))
    assert found.kind == "other" and "another order" in found.reason


@pytest.mark.parametrize(("workers", "kind"), [(1, "alike"), (2, "other")])
def test_a_stream_that_differs_from_run_to_run_is_not_said_to_be_divided(workers: int, kind: str) -> None:
    """Random augmentations: of two workers that yield the same samples no two batches are alike either."""

    def run(seed: int, workers: int = 0) -> dict[str, Any]:
        codes = [1000 * seed + i for i in range(40)]
        return record(stream=True, codes=codes, losses=noisy(seed), workers=workers)

    found = compare([run(1), run(2), run(3)], run(4, workers))
    assert found.kind == kind, found.reason


def test_epochs_of_another_length_are_another_training() -> None:
    longer = record(drawn=list(range(80)), ended=True)
    assert "80 batches, and 40 without" in compare([record(ended=True)], longer).reason


def test_fewer_parameters_with_gradients_are_another_training() -> None:
    found = compare([record()], record(parameters=2, losses=noisy(1)))
    assert found.reason == "2 parameters get gradients, and 6 do without the change"


def test_where_baselines_agree_to_the_bit_so_must_the_trial() -> None:
    other = record(losses=[2.0 - 0.0101 * i for i in range(40)])
    assert compare([record(), record()], other).kind == "other"
    assert compare([record()], other).kind == "more"  # one baseline does not tell


def test_a_change_that_rounds_otherwise_may_differ_in_last_digits() -> None:
    other = record(losses=[(2.0 - 0.01 * i) * (1 + 1e-6) for i in range(40)])
    assert compare([record(), record()], other, "rounding").kind == "rounding"
    far = record(losses=[(2.0 - 0.01 * i) * 1.05 for i in range(40)])
    assert compare([record(), record()], far, "rounding").kind == "other"


def test_random_augmentation_in_workers_is_judged_by_the_spread_of_other_seeds() -> None:
    redrawn = record(codes=list(range(500, 540)), losses=noisy(9))
    baselines = [record(losses=noisy(1)), record(losses=noisy(1))]
    shifted = [record(losses=noisy(s), drawn=list(range(40, 80))) for s in (2, 3)]
    assert compare(baselines, redrawn).kind == "more"
    found = compare(baselines, redrawn, shifted=shifted)
    assert found.kind == "alike" and "augmentations" in found.reason
    stuck = record(codes=list(range(500, 540)), losses=noisy(9, progress=0.0))
    assert compare(baselines, stuck, shifted=shifted).kind == "other"


def test_other_values_without_random_numbers_are_another_training() -> None:
    """A dataset that keeps something of earlier samples: each worker has its own."""
    other = {"codes": [100, *range(501, 540)], "losses": noisy(9)}
    mine = record(losses=noisy(1), draws=False)
    assert compare([mine], record(**other)).kind == "more"
    found = compare([mine, mine], record(**other))
    assert found.kind == "other" and found.reason.startswith("batch 2 of epoch 1 differs, though no random")
    # They differ by rounding; are not weighed; by themselves; random numbers are drawn, or that was not seen.
    weights = [[((100 + i) * (1 + 1e-6), 100 + i), (1e9, 1e9)] for i in range(40)]
    assert compare([mine, mine], record(**other, weights=weights)).kind == "more"
    assert compare([mine, mine], record(**other, weights=[])).kind == "more"
    again = record(codes=list(range(700, 740)), losses=noisy(1))
    assert compare([mine, again], record(**other)).kind == "more"
    for draws in (True, None):
        baseline = record(losses=noisy(1), draws=draws)
        assert compare([baseline, baseline], record(**other)).kind == "more"


def test_an_order_that_is_never_the_same_is_not_asked_of_the_change() -> None:
    baselines = [record(drawn=random.Random(s).sample(range(40), 40), losses=noisy(s)) for s in (1, 2, 3)]
    mine = record(drawn=random.Random(9).sample(range(40), 40), losses=noisy(9))
    assert compare(baselines, mine).kind == "alike"


@pytest.mark.parametrize("bad", [float("nan"), 5.0])
def test_a_loss_that_breaks_is_another_training(bad: float) -> None:
    losses = [2.0 - 0.01 * i for i in range(39)] + [bad]
    found = compare([record(), record()], record(losses=losses))
    assert found.kind == "other" and "step 40" in found.reason


def test_without_a_loss_nothing_is_said_of_it() -> None:
    found = compare([record(losses=[])], record(losses=[]))
    assert found.kind == "alike" and "no loss was seen" in found.reason
