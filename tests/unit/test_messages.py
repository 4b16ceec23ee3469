"""How messages are filled in, and that rules leave all words to them."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest
from trainperf.findings import messages
from trainperf.findings.model import Diagnosis, Params, Said, Unsure
from trainperf.findings.rules import ALL
from trainperf.findings.text import Bytes, Count, Names, Ns, Number, Share, fill, lines

RULES = Path(__file__).resolve().parents[2] / "python" / "trainperf" / "findings" / "rules"


@pytest.mark.parametrize(
    ("template", "params", "text"),
    [
        ("{cost} of {share}", {"cost": Ns(8.1e6), "share": Share(0.374)}, "8.1 ms of 37%"),
        (
            "{n:thread}, {one:launch|launches}, {n}",
            {"n": Count(1240), "one": Count(1)},
            "1,240 threads, 1 launch, 1,240",
        ),
        ("{n:launch|launches}", {"n": Count(0)}, "0 launches"),
        ("{rate} a step, {us:.0f} us", {"rate": Number(2.0), "us": Number(3.6)}, "2 a step, 4 us"),
        ("{size}/s", {"size": Bytes(3e9)}, "3.0 GB/s"),
        ("{who}; {who:,}", {"who": Names("abc")}, "a, b and c; a, b, c"),
        ("{who}", {"who": Names("a")}, "a"),
        ("why[[; called by {place}]]", {"place": "f (x.py:3)"}, "why; called by f (x.py:3)"),
        ("why[[; called by {place}]]", {"place": None}, "why"),
        ("why[[; called by {place}]]", {}, "why"),
        ("{x}[[early? at the start]][[!early? always]]", {"x": "slow", "early": True}, "slow at the start"),
        ("{x}[[early? at the start]][[!early? always]]", {"x": "slow"}, "slow always"),
        ("held {at}", {"at": Said("in", {"place": "f"})}, "held in f"),
        ("key=[...] {{x}}", {}, "key=[...] {x}"),
    ],
)
def test_a_template_is_filled(template: str, params: Params, text: str) -> None:
    assert fill(template, params, {"in": "in {place}"}) == text


def test_a_param_that_is_not_known_is_no_word() -> None:
    for params in ({}, {"place": None}):
        with pytest.raises(KeyError, match="place"):
            fill("in {place}", params, {})


def test_what_is_said_may_name_the_params_around_it() -> None:
    params: Params = {"fix": Said("run", {"name": "f"}), "threads": Count(2)}
    assert fill("{fix}", params, {"run": "{name} in {threads:process|processes}"}) == "f in 2 processes"


def test_lines_of_evidence_are_there_when_their_params_are() -> None:
    rows: Params = {
        "spots": ({"at": "f", "share": Share(0.6)}, {"at": "g", "share": None}),
        "n": Count(3),
        "early": False,
    }
    templates = (
        "{n:step}[[ of {all}]]",
        "{lost} lost",
        "{spots.at}[[: {spots.share}]]",
        "early? at first",
        "!early? later",
    )
    assert lines(templates, rows, {}) == ("3 steps", "f: 60%", "g", "later")
    assert lines(("{spots.at}",), {"spots": ()}, {}) == ()


def test_each_message_is_of_a_rule() -> None:
    assert set(messages.MESSAGES) <= {rule.id for rule in ALL}


def converted() -> list[str]:
    """Rules' modules that return diagnoses."""
    found = []
    for file in sorted(RULES.glob("[a-z]*.py")):
        named = vars(import_module(f"trainperf.findings.rules.{file.stem}")).values()
        if Diagnosis in named or Unsure in named:
            found.append(file.stem)
    return found


@pytest.mark.parametrize("module", converted())
def test_no_rule_has_a_sentence(module: str) -> None:
    tree = ast.parse((RULES / f"{module}.py").read_text())
    docstrings = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and isinstance(node.body[0], ast.Expr)
    }
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings
    ]
    assert texts and [text for text in texts if len(text.split()) > 2] == []
