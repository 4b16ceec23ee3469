"""Every variant of a finding says what tests/unit/texts keeps of it: see tests/texts.py."""

from __future__ import annotations

import pytest
import texts
from trainperf.findings import messages
from trainperf.findings.messages import general
from trainperf.report.text import fit_clauses, in_one_line

KEPT = {file.stem: texts.load(file.stem) for file in sorted(texts.FOLDER.glob("*.json"))}


@pytest.mark.parametrize(("id", "variant"), [(id, variant) for id, of in KEPT.items() for variant in of])
def test_it_says_what_it_said(id: str, variant: str) -> None:
    kept = KEPT[id][variant]
    assert texts.words(id, variant, texts.decoded(kept["params"])) == kept["text"]


def test_each_variant_is_kept_so_some_test_has_a_run_of_it() -> None:
    """If this fails: a test with a run of that variant, then `pytest tests/unit --accept-texts`."""
    in_messages = {(id, variant) for id, of in messages.MESSAGES.items() for variant in of}
    kept = {(id, variant) for id, of in KEPT.items() for variant in of}
    assert {v for v in kept if not v[1].startswith("?")} == in_messages
    unsure = {variant[1:] for _, variant in kept if variant.startswith("?")}
    assert set(messages.UNSURE) - set(general.UNSURE) <= unsure


def test_a_fix_has_whole_sentences_in_its_lines() -> None:
    """The console shows the first line alone."""
    fixes = [message.fix for of in messages.MESSAGES.values() for message in of.values()]
    said = [row for fix in (*fixes, *messages.TEXTS.values()) if "# " in fix for row in fix.split("\n")[:-1]]
    assert len(said) > 50 and not [row for row in said if texts.breaks_off(row.rstrip("]"))]


@pytest.mark.parametrize("width", [60, 72, 80, 120])
def test_advice_that_is_cut_is_a_whole_sentence(width: int) -> None:
    fixes = {of["text"]["fix"] for kept in KEPT.values() for of in kept.values() if "fix" in of["text"]}
    shown = {fix: fit_clauses(in_one_line(fix), width, rows) for fix in fixes for rows in (1, 2)}
    assert not {fix: cut for fix, cut in shown.items() if cut != in_one_line(fix) and texts.breaks_off(cut)}


def test_no_key_of_a_text_is_taken_twice() -> None:
    families = [general, *messages.FAMILIES]
    for kind in ("TEXTS", "UNSURE", "MESSAGES"):
        keys = [key for family in families for key in getattr(family, kind, ())]
        assert len(keys) == len(set(keys))
