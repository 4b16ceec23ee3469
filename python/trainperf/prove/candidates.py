"""Which changes a finding's own advice can be tried as, without an edit of the script.

A finding writes its fix as code ("DataLoader(..., num_workers=2)"); what of it can be set from outside is read from
there. TRIES says which findings' fixes are, and which settings of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from trainperf.prove.changes import Change, setting

if TYPE_CHECKING:
    from trainperf.findings.model import Finding
    from trainperf.prove.measure import Plan

_LOADER: Final = (
    "num_workers", "persistent_workers", "prefetch_factor", "pin_memory", "multiprocessing_context",
)  # fmt: skip

TRIES: Mapping[str, tuple[str, ...]] = {
    "TP101": _LOADER,  # data-starved
    "TP102": _LOADER,  # workers-too-slow
    "TP104": _LOADER,  # worker-startup
    "TP201": _LOADER,  # gil-hog: by a thread that makes batches
    "TP303": ("gc",),  # gc-pauses
    "TP308": ("threads",),  # throttled
    "TP311": ("fused", "foreach"),  # optimizer-step
    "TP313": ("anomaly",),  # debug-mode
    "TP314": ("zero_grad",),  # costly-setting, of which the gradients that are filled with zeros
    "TP315": ("flush_denormal",),  # denormals
    "TP503": _LOADER,  # gpu-starved-by-data
    "TP505": ("pin_memory", "non_blocking"),  # pageable-copies
    "TP506": ("compile",),  # launch-bound
    "TP507": ("compile",),  # tiny-kernels
    "TP512": ("matmul_precision", "autocast"),  # no-tensor-cores
    "TP602": ("threads", *_LOADER),  # cpu-oversubscription
    "TP603": ("environment",),  # heap-churn
}

_START_S = 0.018  # to fork a worker; 0.016 to 0.035 s were measured
_CHANCE: Mapping[str, float] = {"high": 1.0, "medium": 0.7, "low": 0.4}  # that the advice helps, by its confidence
_CALL = re.compile(r"(?:DataLoader|TrainingArguments)\(([^()]*)\)")
_KEYWORD = re.compile(r"(?:dataloader_)?(\w+)=(\w+|\"\w+\")")
_VARIABLES = re.compile(r"(?m)^((?:[A-Z][A-Z0-9_]*=\S+ )+)")
_PATTERNS: Mapping[str, tuple[re.Pattern[str], str]] = {
    "threads": (re.compile(r"set_num_threads\((\d+)\)"), r"\1"),
    "gc": (re.compile(r"gc\.disable\(\)"), "off"),
    "fused": (re.compile(r"fused=True"), "True"),
    "foreach": (re.compile(r"foreach=True"), "True"),
    "anomaly": (re.compile(r"detect_anomaly(?:\(|=)False"), "off"),
    "zero_grad": (re.compile(r"zero_grad\(\)"), "set_to_none"),
    "flush_denormal": (re.compile(r"set_flush_denormal\(True\)"), "on"),
    "non_blocking": (re.compile(r"non_blocking=True"), "True"),
    "compile": (re.compile(r"torch\.compile\(model(?:, mode=\"([a-z-]+)\")?\)"), r"\1"),
    "matmul_precision": (re.compile(r"set_float32_matmul_precision\(\"(\w+)\"\)"), r"\1"),
    "autocast": (re.compile(r"autocast\(\"cuda\", dtype=torch\.(\w+)\)"), r"\1"),
}


def candidates(findings: Sequence[Finding], step_ms: float) -> list[Change]:
    """What to try, the most promising first: promised saving times chance. `step_ms`: of the mean step."""
    found: dict[tuple[tuple[str, Any], ...], tuple[float, Change]] = {}
    for finding in findings:
        settings = settings_of(finding.id, finding.fix)
        saved = finding.cost_ms_per_step * finding.fix_share
        if not settings or finding.by_others:
            continue
        promised = step_ms / (step_ms - saved) if 0 < saved < step_ms and not finding.finds_out else None
        key = tuple(settings.items())
        worth = saved * _CHANCE[finding.confidence]
        if key not in found or found[key][0] < worth:
            found[key] = (worth, Change(key, finding.id, promised))
    return [change for _, change in sorted(found.values(), key=lambda item: -item[0])]


def with_start_up(change: Change, step_ms: float, plan: Plan) -> Change:
    """What is promised, less the start of the workers, which the proof counts in each epoch: not of workers that are
    kept, where whole epochs are compared after a first one."""
    workers = change.of_loader.get("num_workers", 0)
    kept = plan.whole_epochs and change.of_loader.get("persistent_workers", False)
    if change.promised is None or not workers or not plan.epoch or kept:
        return change
    started_ms = 1e3 * _START_S * workers / plan.epoch
    return replace(change, promised=step_ms / (step_ms / change.promised + started_ms))


def settings_of(finding: str, fix: str) -> dict[str, Any]:
    """The settings in a finding's fix that can be tried; {} where there are none."""
    allowed = TRIES.get(finding, ())
    code = "\n".join(line for line in fix.splitlines() if not line.lstrip().startswith("#"))
    texts: dict[str, str] = {}
    for call in _CALL.findall(code):
        texts |= {name: value.strip('"') for name, value in _KEYWORD.findall(call) if name in allowed}
    for name, (pattern, value) in _PATTERNS.items():
        match = pattern.search(code)
        if match is not None and name in allowed:
            texts[name] = match.expand(value) or "default"
    if "environment" in allowed:
        for variables in _VARIABLES.findall(code):
            texts |= dict(word.split("=", 1) for word in variables.split())
    settings = {}
    for name, text in texts.items():
        try:
            settings[name] = setting(name).parse(text)
        except (ValueError, KeyError):  # not a value but a placeholder: num_workers=...
            return {}
    return settings


def explained(finding: str) -> str:
    """What `trainperf explain` says of it, one line."""
    if finding in TRIES:
        return "`trainperf try -- python train.py` proves this fix or refutes it, where it names a setting."
    return (
        "`trainperf try` cannot apply this fix by itself: it needs an edit. Compare two scripts with `try --against`."
    )
