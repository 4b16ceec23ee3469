"""What fits into a line: rounding, shortening and wrapping of the verdict's text."""

from __future__ import annotations

import pytest
from trainperf.report.text import apportion, clean, fit_clauses, fit_places, middle, wrap


def test_rounding_adds_up() -> None:
    assert sum(apportion([33.333, 33.333, 33.334], 100.0, 0)) == 100
    assert apportion([0.4, 0.4, 0.2], 1.0, 0) in ([1, 0, 0], [0, 1, 0])
    assert sum(apportion([1.26, 2.26, 3.48], 7.0, 1)) == pytest.approx(7.0)
    assert sum(apportion([0.2] * 5, 1.0, 0)) == 1 and apportion([99.6, 0.2, 0.2], 100, 0) == [100, 0, 0]
    # What a finding says too is rounded as there; the others make it add up.
    assert apportion([50.5, 25.5, 24.0], 100, 0) == [50, 26, 24] and apportion([49.4, 26.4, 24.2], 100, 0) == [
        50,
        26,
        24,
    ]
    assert apportion([49.4, 26.3, 24.3], 100, 0, {0}) == [49, 27, 24]


def test_a_place_stays_with_what_is_said_of_it() -> None:
    """What was left out between two callers gave the second one the first one's share."""
    why = "validation runs about every 40 steps and takes 280 ms, 68% of it in sleep (common.py:12) called for 57% by "
    why += "Measures.on_evaluate (h.py:48) and for 43% by Measures.on_prediction_step (h.py:50)"
    text = fit_places(why, 74, 2)
    assert text == why.partition(" and for 43%")[0] and len(wrap(text, 74, 3)) == 2
    assert fit_places(why, 40, 2).startswith("validation runs") and "%" not in fit_places(why, 40, 2)


@pytest.mark.parametrize("width", [40, 74, 114])
def test_a_place_never_falls_off(width: int) -> None:
    why = (
        "fetcher is in download (src/data/t02_sleeping_prefetch.py:3) while MainThread waits for a queue (futex) in "
        "multiprocessing.queues.Queue.get called by batches (src/data/t02_sleeping_prefetch.py:11)"
    )
    rows = wrap(fit_places(why, width, 2), width, 2)
    last = "(t02_sleeping_prefetch.py:3)" if width == 40 else "t02_sleeping_prefetch.py:11)"
    assert len(rows) == 2 and rows[-1].endswith(last) and "..." not in " ".join(rows)
    assert fit_places("runs f (a.py:1)", width, 2) == "runs f (a.py:1)"


@pytest.mark.parametrize("width", [50, 74])
def test_who_is_at_a_place_does_not_fall_off_before_other_clauses(width: int) -> None:
    why = (
        "search-index uses 0.3 CPUs; 2 native threads use 0.5 CPUs, other processes 0.8; most of their Python is "
        "search-index in json.dumps called by write_index (/home/me/examples/lightning_gil.py:52): it holds the GIL "
        "16% of the time"
    )
    text = fit_places(why, width, 2)
    assert text.endswith("most of their Python is search-index in write_index (lightning_gil.py:52)")
    assert len(wrap(text, width, 3)) <= 2 and "..." not in text


def test_advice_ends_where_a_clause_does() -> None:
    advice = "saves up to 93.8 ms/step: run longer to see whether they compute; then, if they wait, start more of them"
    assert fit_clauses(advice, 200, 1) == advice
    assert fit_clauses(advice, 70, 1) == "saves up to 93.8 ms/step: run longer to see whether they compute"
    assert fit_clauses("one long clause that has no end", 10, 1) == "one long clause that has no end"


def test_advice_keeps_its_lists_and_its_conditions_whole() -> None:
    over = "no Python loop over samples, classes or pairs, or take all at once"
    assert fit_clauses(over, 50, 1) == "no Python loop over samples, classes or pairs"
    assert fit_clauses(over, 30, 1) == over
    condition = "num_workers=6, once __iter__ reads only its worker's shard, in turns"
    assert fit_clauses(condition, 60, 1) == "num_workers=6, once __iter__ reads only its worker's shard"
    assert fit_clauses(condition, 30, 1) == condition


def test_code_is_not_cut_between_its_brackets() -> None:
    code = "TrainingArguments(dataloader_num_workers=2, dataloader_persistent_workers=True)"
    assert (
        fit_clauses(f"saves up to 861 ms: {code}; or less of it", 50, 1) == f"saves up to 861 ms: {code}; or less of it"
    )
    assert fit_clauses(f"saves up to 861 ms: {code}; or less of it", 110, 1) == f"saves up to 861 ms: {code}"


def test_wrapping_and_shortening() -> None:
    assert middle("/a/long/path/to/the/file.py", 20) == "/a/lon...the/file.py"
    assert wrap("one two three four", 9, 2) == ["one two", "three ..."]
    assert all(len(row) <= 10 for row in wrap("x" * 100 + " y", 10, 5))
    assert clean("a\tb\x9b") == "a?b?"
