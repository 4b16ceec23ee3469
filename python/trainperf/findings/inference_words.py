"""Words for a run that trains nothing: what findings say of a training loop, said of a loop of inference or evaluation.

Words alone: what a rule finds, and what it advises, it decides itself.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainperf.findings.model import Finding

# In this order. Not within names, paths and places: `training (eval.py:12)` is a function of the user's.
_WORDS = tuple(
    (re.compile(rf"(?<![\w./_`]){pattern}(?![\w`(=]|\.\w| \()"), words)
    for pattern, words in (
        (r"the training thread", "the loop's thread"),
        (r"the training process", "the process of the loop"),
        (r"the training loop", "the loop"),
        (r"the training rest", "the loop rest"),
        (r"(ahead of|before|after) (?:the )?training", r"\1 the run"),
        (r"beside (?:the )?training(?: itself)?", "alongside"),
        (r"(?:the |a )?training data", "the data"),
        (r"(?:the |a )?training", "the loop"),
        (r"epoch's", "pass's"),
        (r"an epoch", "a pass over the data"),
        (r"epoch", "pass over the data"),
        (r"epochs", "passes over the data"),
        (r"modules, the optimizer and what drives them", "modules and what drives them"),
        (r"the model, the optimizer or logging", "the model or logging"),
        (r"or a larger batch, and a fused optimizer", "or a larger batch"),
        (r"outside of forward, backward and optimizer", "outside of forward"),
        (r"the model or its loss", "the model"),
        (r"a kept loss keeps its whole graph", "a kept output keeps its memory"),
    )
)


def _said(text: str) -> str:
    for pattern, words in _WORDS:
        text = pattern.sub(words, text)
    return text.replace("print(loss.item())", "print(x.item())").replace(
        "losses.append(loss.item())  # where it is losses", "outputs.append(output.cpu())  # where it is outputs"
    )


def of_inference(finding: Finding) -> Finding:
    return dataclasses.replace(
        finding,
        title=_said(finding.title),
        why=_said(finding.why),
        fix=_said(finding.fix),
        will_not_help=_said(finding.will_not_help),
        evidence=tuple(map(_said, finding.evidence)),
        confidence_why=_said(finding.confidence_why),
    )
