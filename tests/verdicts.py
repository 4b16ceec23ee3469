"""What tests of findings share: runs made by hand, and the findings that are said of them."""

from __future__ import annotations

from collections.abc import Callable

from runfiles import RunFile
from trainperf.findings.engine import Findings, find
from trainperf.findings.model import Finding

Make = Callable[..., RunFile]
TRAIN = "/home/me/job/train.py"
LINUX = "Linux-6.1.0-x86_64-with-glibc2.36"


def said(file: RunFile) -> Findings:
    with file.open() as run:
        return find(run)


def only(file: RunFile) -> Finding:
    """The one warning or critical."""
    found = [f for f in said(file).findings if f.severity != "info"]
    assert [f.slug for f in found] == [found[0].slug] if found else found, found
    assert found, said(file).verdict
    return found[0]


def loud(file: RunFile) -> list[str]:
    return [f.slug for f in said(file).findings if f.severity != "info"]


def abstained(file: RunFile, id: str) -> str:
    """Why the rule abstained; "" when it did not."""
    return next((a.why for a in said(file).abstained if a.id == id), "")
