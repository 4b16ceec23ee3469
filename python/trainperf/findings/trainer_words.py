"""Fixes in the words of Hugging Face's Trainer, which makes the DataLoader itself, from its TrainingArguments."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_LOADER = re.compile(r"DataLoader\(\.\.\., ([^()]*)\)")
_KNOWN = ("num_workers", "persistent_workers", "prefetch_factor", "pin_memory", "drop_last")


def arguments(meta: Mapping[str, str]) -> Mapping[str, Any]:
    """The Trainer's arguments as the callback noted them; empty when it was no training of its."""
    try:
        read = json.loads(meta.get("transformers", "{}"))
    except (ValueError, RecursionError):
        read = {}
    return read if isinstance(read, dict) else {}


def own_loader(meta: Mapping[str, str]) -> str:
    """The method, "Mine.get_train_dataloader", in which a Trainer of the user's makes it; "" where none does."""
    own = arguments(meta).get("own_loader")
    return own if isinstance(own, str) else ""


def in_its_words(meta: Mapping[str, str], fix: str) -> str:
    """DataLoader(..., num_workers=4) -> TrainingArguments(dataloader_num_workers=4)."""
    if "DataLoader(" not in fix or not arguments(meta):
        return fix

    def said(match: re.Match[str]) -> str:
        options = match[1].split(", ")
        if not all(option.partition("=")[0] in _KNOWN for option in options):
            return match[0]
        return f"TrainingArguments({', '.join(f'dataloader_{option}' for option in options)})"

    return _LOADER.sub(said, fix)
