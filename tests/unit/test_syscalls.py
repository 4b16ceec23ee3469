"""Which system call most of the waits went in."""

from __future__ import annotations

import pytest
from trainperf.findings.waits import call_of
from trainperf.runfile import Detail

FUTEX, FSYNC = 202, 74


def sample(state: str, code: int, ms: int) -> Detail:
    return Detail("sample", 0, "other", state, None, 0, code, ms * 10**6, 1, 1)


@pytest.mark.parametrize(
    ("samples", "called"),
    [
        ([sample("blocked", FUTEX, 20), sample("blocked", FSYNC, 30)], "fsync"),
        ([sample("native", 0, 90), sample("blocked", FUTEX, 20)], "futex"),
        ([sample("blocked", 9_999, 20)], "system call 9999"),
        ([sample("blocked", -1, 50), sample("blocked", FUTEX, 20)], ""),  # most of it in none: a page is read
        ([sample("native", 0, 90)], ""),
        ([], ""),
    ],
)
def test_the_call_of_most_waits_is_named(samples: list[Detail], called: str) -> None:
    assert call_of(samples, "x86_64") == called
