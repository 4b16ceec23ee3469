"""Prints docs/thresholds.md: `.venv/bin/python scripts/thresholds.py >docs/thresholds.md`."""

from __future__ import annotations

from trainperf.findings.thresholds import TABLE

HEAD = """\
# Thresholds

Every number that a verdict depends on. Made from `python/trainperf/findings/thresholds.py` by \
`scripts/thresholds.py`; a test keeps the two equal.

| Name | Value | Unit | Meaning | Source |
|---|---|---|---|---|"""

if __name__ == "__main__":
    print(HEAD)
    for t in TABLE.values():
        print(f"| `{t.name}` | {t.value:g} | {t.unit} | {t.meaning} | {t.source} |")
