"""Whether a change is faster, asked again after each pair of trials without spending the error rate on the asking.

Of each pair the figure is d = log(rate with the change / rate without). Under "the change does nothing" d is as often
above zero as below. Evidence is an e-value, E: whatever the number of looks, the chance that it ever reaches 1/alpha
is at most alpha where nothing changed (Ville's inequality; Ramdas et al., "Game-theoretic statistics and safe
anytime-valid inference", 2023). Half of it is a t statistic whose effect, in standard deviations of a pair, has the
prior N(0, 10); the other half is a sign test, which no outlier spoils.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

ALPHA = 0.01  # of false wins
MIN_PAIRS = 4  # before a win is believed
MAX_PAIRS = 12  # of trials
MAX_TURNS = 40  # pairs of turns in one process, which take a second or two
LEAST_GAIN = 0.02  # that is worth having
_PRIOR = 10.0  # variance of the effect, in variances of a pair's logarithm
_FUTILE = 0.1  # error rate of stopping without a win: it can cost a gain, and never claims one
_INTERVAL = 0.05  # the interval holds the truth in 95 % of runs, whenever they stop
_MIN_FUTILE = 3

Decision = Literal["won", "no_gain", "slower", "open"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What pairs say of a change: gains are ratios of rates, 1.0 is no change."""

    pairs: int
    gain: float
    interval: tuple[float, float]
    e_value: float
    decision: Decision


def judge(logs: Sequence[float], *, alpha: float = ALPHA, least_gain: float = LEAST_GAIN) -> Evidence:
    """`logs`: of each pair log(rate with / rate without), in the order they were run."""
    n = len(logs)
    mean = math.fsum(logs) / n if n else 0.0
    low, high = interval(logs, _INTERVAL)
    e = e_value(logs)
    decision: Decision = "open"
    if n >= MIN_PAIRS and mean > 0 and e >= 1 / alpha:
        decision = "won" if math.exp(mean) - 1 >= least_gain else "no_gain"
    elif n >= _MIN_FUTILE and interval(logs, _FUTILE)[1] < math.log1p(least_gain):
        decision = "slower" if high < 0 else "no_gain"
    return Evidence(n, math.exp(mean), (_exp(low), _exp(high)), e, decision)


def e_value(logs: Sequence[float]) -> float:
    """The evidence against "the change does nothing"; 1.0 is none."""
    if not logs:
        return 1.0
    return 0.5 * _t_mixture(logs) + 0.5 * _sign_test(sum(d > 0 for d in logs), sum(d < 0 for d in logs))


def interval(logs: Sequence[float], level: float) -> tuple[float, float]:
    """The effects, as logarithms, that the t half does not refuse at `level`, however often it was asked."""
    n = len(logs)
    if n < 2:
        return -math.inf, math.inf
    mean, deviation = _moments(logs)
    widened = 1 + n * _PRIOR
    c = (math.sqrt(widened) / level) ** (2 / n)
    if c >= widened:
        return -math.inf, math.inf
    t = math.sqrt((n - 1) * (c - 1) / (1 - c / widened))
    half = t * deviation / math.sqrt(n)
    return mean - half, mean + half


def _t_mixture(logs: Sequence[float]) -> float:
    """The Bayes factor of an unknown mean against zero, the deviation unknown in both (Rouder et al., 2009)."""
    n = len(logs)
    if n < 2:
        return 1.0
    mean, deviation = _moments(logs)
    widened = 1 + n * _PRIOR
    if deviation == 0:
        return 1.0 if mean == 0 else widened ** ((n - 1) / 2)
    t2 = n * (mean / deviation) ** 2
    nu = n - 1
    log_ratio = math.log1p(t2 / nu) - math.log1p(t2 / (nu * widened))
    return math.exp(min(700.0, -0.5 * math.log(widened) + n / 2 * log_ratio))


def _sign_test(above: int, below: int) -> float:
    """The chance of these signs if each is above zero with a probability even over (1/2, 1), against a fair coin."""
    n = above + below
    # The integral of p^above (1-p)^below over (1/2, 1) is a beta function times the chance that a fair coin, tossed
    # n + 1 times, shows at most `above` heads.
    tail = math.fsum(math.comb(n + 1, k) for k in range(above + 1)) / 2 ** (n + 1)
    return float(2.0 ** (n + 1) * tail / ((n + 1) * math.comb(n, above)))


def _moments(logs: Sequence[float]) -> tuple[float, float]:
    mean = math.fsum(logs) / len(logs)
    return mean, math.sqrt(math.fsum((d - mean) ** 2 for d in logs) / (len(logs) - 1))


def _exp(value: float) -> float:
    return math.inf if value > 700 else math.exp(value)
