"""What each variant of a finding says, kept in tests/unit/texts: the params of one run, and the words made of them.

After a change of words or of params: `pytest tests/unit --accept-texts` (not with -n), and look at the difference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainperf.findings import messages
from trainperf.findings.messages import general
from trainperf.findings.model import Params, Said
from trainperf.findings.text import Bytes, Count, Doubt, Names, Ns, Number, Seconds, Share, Times, fill, lines

FOLDER = Path(__file__).parent / "unit" / "texts"
_TYPES = {kind.__name__: kind for kind in (Ns, Seconds, Share, Count, Number, Bytes, Names, Times)}
_GIVEN: Params = {name: words[0] for name, words in general.TERMS.items()} | {
    "gpu": "the GPU", "inference": False, "thread_name": "MainThread", "steps": Count(100), "step": Ns(10e6),
}  # fmt: skip


# A sentence goes on after these.
_GOES_ON = re.compile(
    r"(?:,|\b(?:a|an|the|its|other|and|or|than|of|in|by|with|for|to|from|at|into|if|where|which))$", re.IGNORECASE
)


def breaks_off(text: str) -> bool:
    """Whether it ends in mid-sentence."""
    return _GOES_ON.search(text) is not None


def advice(summary: str) -> str:
    """What a verdict in the console says after "Next", in one line; "" where it says nothing."""
    found = re.search(r"^Next  (.*(?:\n {6}(?!will not help: | ).*)*)", summary, re.MULTILINE)
    return " ".join(found[1].split()) if found is not None else ""


def words(id: str, variant: str, params: Params) -> dict[str, Any]:
    """What is said of it; of an abstention, a variant that begins with a question mark, its reason."""
    given = {**_GIVEN, **params}
    if variant.startswith("?"):
        told = messages.UNSURE[variant[1:]]
        parts = (
            {"why": told.why, "whose": told.whose, "unknown": told.unknown}
            if isinstance(told, Doubt)
            else {"why": told}
        )
        return {name: fill(text, given, messages.TEXTS) for name, text in parts.items() if text}
    message = messages.MESSAGES[id][variant]
    fields = {name: getattr(message, name) for name in ("title", "brief", "why", "fix", "will_not_help")}
    said: dict[str, Any] = {name: fill(text, given, messages.TEXTS) for name, text in fields.items() if text}
    return said | {"evidence": list(lines(message.evidence, given, messages.TEXTS))}


def load(id: str) -> dict[str, Any]:
    file = FOLDER / f"{id}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def encoded(value: Any) -> Any:
    """As JSON has it: a number of one of text.py's types is {"Ns": 8100000}."""
    kind = type(value).__name__
    if isinstance(value, Said):
        return {"Said": value.key, "params": encoded(dict(value.params))}
    if kind in ("Names", "Times"):
        return {kind: list(value)}
    if kind in _TYPES:
        return {kind: int(value) if kind == "Count" else float(f"{float(value):.6g}")}
    if isinstance(value, Mapping):
        return {key: encoded(of) for key, of in value.items()}
    if isinstance(value, (list, tuple)):
        return [encoded(of) for of in value]
    return value if value is None or isinstance(value, (str, bool)) else float(value) if value % 1 else int(value)


def decoded(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(decoded(of) for of in value)
    if not isinstance(value, dict):
        return value
    if "Said" in value:
        return Said(value["Said"], decoded(value["params"]))
    kind = next(iter(value), "")
    return _TYPES[kind](value[kind]) if kind in _TYPES else {key: decoded(of) for key, of in value.items()}


class Seen:
    """Of each variant the params of the run that knows most of them."""

    def __init__(self) -> None:
        self._params: dict[tuple[str, str], Params] = {}

    def add(self, id: str, variant: str, params: Params) -> None:
        if variant[1:] in general.UNSURE:
            return  # of any rule
        before = self._params.get((id, variant))
        if before is None or _known(params) > _known(before):
            self._params[id, variant] = params

    def accept(self) -> None:
        """Writes all texts anew: of the params that are kept already, unless more are known now."""
        FOLDER.mkdir(exist_ok=True)
        for id in sorted({*messages.MESSAGES, *(id for id, _ in self._params), *(f.stem for f in FOLDER.iterdir())}):
            kept = {variant: of["params"] for variant, of in load(id).items() if _is_variant(id, variant)}
            for (of, variant), params in self._params.items():
                if of == id and (variant not in kept or _known(params) > _known(kept[variant])):
                    kept[variant] = encoded(dict(params))
            texts = {v: {"params": p, "text": words(id, v, decoded(p))} for v, p in sorted(kept.items())}
            if texts:
                (FOLDER / f"{id}.json").write_text(json.dumps(texts, indent=1) + "\n", encoding="utf-8")
            else:
                (FOLDER / f"{id}.json").unlink(missing_ok=True)


def _known(params: Mapping[str, Any]) -> int:
    return sum(value not in (None, False, (), []) for value in params.values())


def _is_variant(id: str, variant: str) -> bool:
    return variant[1:] in messages.UNSURE if variant.startswith("?") else variant in messages.MESSAGES.get(id, {})
