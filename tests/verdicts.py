"""What tests of findings share: runs made by hand, and the findings that are said of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from runfiles import RunFile
from trainperf.findings.engine import Findings, find
from trainperf.findings.model import Finding, Said

Make = Callable[..., RunFile]
TRAIN = "/home/me/job/train.py"
LINUX = "Linux-6.1.0-x86_64-with-glibc2.36"
_LIGHTNING = {"version": "2.6.6", "log_every_n_steps": 10, "progress_bar_metrics": ["training_step.loss"]}


def said(file: RunFile) -> Findings:
    with file.open() as run:
        return find(run)


def only(file: RunFile) -> Finding:
    """The one warning or critical."""
    found = [f for f in said(file).findings if f.severity != "info"]
    assert [f.slug for f in found] == [found[0].slug] if found else found, found
    assert found, said(file).verdict
    return found[0]


def infos(file: RunFile) -> list[str]:
    return [f.slug for f in said(file).findings if f.severity == "info"]


def loud(file: RunFile) -> list[str]:
    return [f.slug for f in said(file).findings if f.severity != "info"]


def advice(finding: Finding) -> str:
    """Which of the catalogue's texts its fix is; "" where it is its variant's."""
    fix = finding.params.get("fix")
    return fix.key if isinstance(fix, Said) else ""


def load_of(finding: Finding) -> dict[str, float]:
    """Who used the CPUs, in CPUs, as TP307 and TP602 say it; 0.0: nobody, or too little to be said."""
    load = finding.params["load"]
    assert isinstance(load, Said)
    who = ("own", "own_threads", "workers", "ranks", "children", "others")
    return {name: round(float(load.params[name] or 0), 1) for name in who}  # type: ignore[arg-type]


def abstained(file: RunFile, id: str) -> str:
    """Why the rule abstained; "" when it did not."""
    return next((a.why for a in said(file).abstained if a.id == id), "")


def unsure(file: RunFile, id: str) -> str:
    """The variant by which the rule abstained; "" when it did not."""
    return next((a.variant for a in said(file).abstained if a.id == id), "")


def lightning(make: Make, **settings: Any) -> RunFile:
    """A run of Lightning's."""
    file = make().meta(framework="lightning.pytorch 2.6.6", lightning=json.dumps(_LIGHTNING | settings))
    for probe in ("profiler", "progress_bar_metrics", "sigterm_broadcast", "validation"):
        file.tier(f"lightning_{probe}", "exact")
    return file


def hook(ms: float, count: int = 100, at: str = f"{TRAIN}:41", other: float | None = None) -> dict[str, Any]:
    """What one hook of a callback took in all."""
    ns = int(ms * 1e6)
    other_ns = ns if other is None else int(other * 1e6)
    return {"count": count, "ns": ns, "own_ns": ns, "other_ns": other_ns, "max_ns": ns // count, "at": at}
