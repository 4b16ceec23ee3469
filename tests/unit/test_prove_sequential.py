"""The test that may be asked after each pair: its false wins, its power and its interval, on simulated noise."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from trainperf.prove.sequential import ALPHA, MAX_PAIRS, MIN_PAIRS, Evidence, e_value, interval, judge

Noise = Callable[[random.Random], float]

# Of a pair's logarithm, where nothing changed; each is as often above zero as below.
NOISES: dict[str, Noise] = {
    "quiet": lambda r: r.gauss(0, 0.007),
    "noisy": lambda r: r.gauss(0, 0.07),
    "heavy tails": lambda r: 0.03 * r.gauss(0, 1) / math.sqrt(r.gammavariate(1.0, 1.0)),
    "stalls": lambda r: r.gauss(0, 0.02) + r.choice((-1, 1)) * (r.random() < 0.1) * r.uniform(0.2, 0.6),
    "two speeds": lambda r: r.choice((-0.1, 0.0, 0.0, 0.1)) + r.gauss(0, 0.01),
}


def run(noise: Noise, effect: float, random: random.Random) -> Evidence:
    logs: list[float] = []
    while True:
        logs.append(effect + noise(random))
        evidence = judge(logs)
        if evidence.decision != "open" or len(logs) == MAX_PAIRS:
            return evidence


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_nothing_wins_by_chance_however_often_it_is_asked(noise: Noise) -> None:
    r = random.Random(1)
    wins = sum(run(noise, 0.0, r).decision == "won" for _ in range(3000))
    assert wins <= 3000 * ALPHA


def test_evidence_is_fair_where_nothing_changed() -> None:
    r = random.Random(2)
    values = [e_value([r.gauss(0, 0.05) for _ in range(6)]) for _ in range(20_000)]
    assert sum(values) / len(values) <= 1.1  # an e-value's mean is at most 1


def test_a_gain_of_30_percent_is_found_in_few_pairs() -> None:
    r = random.Random(3)
    found = [run(NOISES["noisy"], math.log(1.3), r) for _ in range(300)]
    assert sum(e.decision == "won" for e in found) >= 290
    assert sorted(e.pairs for e in found)[150] <= 7


def test_a_quiet_gain_of_5_percent_is_found() -> None:
    r = random.Random(4)
    found = [run(NOISES["quiet"], math.log(1.05), r) for _ in range(300)]
    assert sum(e.decision == "won" for e in found) >= 295
    assert max(e.pairs for e in found if e.decision == "won") <= 9


def test_what_is_not_worth_having_is_given_up_early() -> None:
    r = random.Random(5)
    found = [run(NOISES["quiet"], math.log(1.002), r) for _ in range(300)]
    assert sum(e.decision == "won" for e in found) == 0
    assert sum(e.decision == "no_gain" for e in found) >= 250


def test_a_loss_is_called_slower() -> None:
    assert judge([-0.3, -0.28, -0.31, -0.29]).decision == "slower"


def test_the_interval_holds_the_truth_whenever_it_stops() -> None:
    r = random.Random(6)
    missed = 0
    for _ in range(1000):
        evidence = run(NOISES["noisy"], 0.2, r)
        low, high = evidence.interval
        missed += not low <= math.exp(0.2) <= high
    assert missed <= 50


def test_few_pairs_never_win() -> None:
    assert judge([0.5] * (MIN_PAIRS - 1)).decision == "open"
    assert judge([0.5, 0.51, 0.5, 0.5]).decision == "won"
    assert judge([]).gain == 1.0
    assert interval([0.3], 0.05) == (-math.inf, math.inf)


def test_equal_figures_are_no_error() -> None:
    assert e_value([0.0, 0.0, 0.0]) <= 1
    assert judge([0.0] * 5).decision == "no_gain"
