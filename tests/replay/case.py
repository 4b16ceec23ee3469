"""One recorded run: its file, the truth that its program measured, and the answer that the rules gave last.

`runs/NAME.tpr.xz` is the run file, without what no rule reads (the kept steps' segments) and with the recording
machine's name and paths replaced. `runs/NAME.json` holds program, truth and answer. A program of tests/programs prints
its truth as tests/programs/_common.py says. Any other prints a line `TRUTH {json}`:

  finding  the slug of the finding that the verdict must be about; null: a healthy run, without a warning
  share    of the loop's time, as the program measured it; the finding's may differ by TOLERANCE (optional)
  also     slugs that may stand first as well (optional)
  who      one of whom the finding names (optional)
  where    where the finding must be, as "file.py:line"; the recorder adds the lines that end with "# trouble"
  fix      what its fix must say (optional)
  info     where `finding` is null: the slug of an info that must be there, with share and where as above (optional)
"""

from __future__ import annotations

import json
import lzma
import sqlite3
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trainperf
from trainperf.report import console, model
from trainperf.report import json as as_json

from tests import texts
from tests.programs import judge

RUNS = Path(__file__).parent / "runs"
TOLERANCE = 0.06  # of the share of the run's time
MACHINES = {"descheduled", "cpu-oversubscription"}  # what others do to a run is no false alarm
OWN_WORDS = {("tier", "probe"), ("tier", "tier"), ("counter", "name")}  # no machine's: "nvml" holds the name "vm"
SHARE_STEP = 0.005  # changes of a share below this are no change


@dataclass(frozen=True, slots=True)
class Case:
    """A recorded run and what is known of it."""

    name: str
    program: str
    truth: Mapping[str, Any]
    answer: Mapping[str, Any]


def load(names: Sequence[str] = ()) -> list[Case]:
    """The recorded cases, all when none is named. KeyError: there is no case of that name."""
    known = sorted(path.stem for path in RUNS.glob("*.json"))
    for name in names:
        if name not in known:
            raise KeyError(f"there is no recorded run {name}")
    return [Case(name, **json.loads((RUNS / f"{name}.json").read_text(encoding="utf-8"))) for name in names or known]


def save(case: Case, run_file: Path | None = None) -> None:
    """Writes the case; its run file only if one is given."""
    RUNS.mkdir(exist_ok=True)
    if run_file is not None:
        (RUNS / f"{case.name}.tpr.xz").write_bytes(lzma.compress(run_file.read_bytes(), preset=9 | lzma.PRESET_EXTREME))
    text = json.dumps({"program": case.program, "truth": case.truth, "answer": case.answer}, indent=1)
    (RUNS / f"{case.name}.json").write_text(text + "\n", encoding="utf-8")


def shown(path: Path) -> dict[str, Any]:
    """`trainperf show --json` of a run file, the variant of each finding, and what its verdict advises."""
    with trainperf.open(path) as run:
        built = model.build(run)
        document = as_json.to_dict(built)
        document["advice"] = texts.advice(console.to_plain(console.summary_lines(built)))
    for told, finding in zip(document["findings"], built.findings, strict=True):
        told["variant"] = finding.variant
    return document


def replayed(case: Case) -> dict[str, Any]:
    """What today's rules say of the recorded run."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{case.name}.tpr")
        path.write_bytes(lzma.decompress((RUNS / f"{case.name}.tpr.xz").read_bytes()))
        return shown(path)


def answer(document: Mapping[str, Any]) -> dict[str, Any]:
    """Of such a document: what a change of the rules must not change unseen."""
    findings = [
        {
            "id": f["id"],
            "variant": f["variant"],
            "severity": f["severity"],
            "share": round(f["share"], 3),
            "where": Path(f["where"]).name if f["where"] else "",
        }
        for f in document["findings"]
    ]
    verdict, task = document["verdict"], document["task"]
    kind = task and {key: task[key] for key in ("model", "data", "pace")}
    return {"kind": verdict["kind"], "finding": verdict["finding"], "task": kind, "findings": findings}


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two answers, a line each."""
    keys = ("kind", "finding", "task")
    lines = [f"{key}: {before.get(key)} -> {now[key]}" for key in keys if before.get(key) != now[key]]
    was, is_now = ({f["id"]: f for f in of["findings"]} for of in (before, now))
    for rule in sorted(was.keys() | is_now.keys()):
        old, new = was.get(rule), is_now.get(rule)
        if old is None or new is None or _differ(old, new):
            lines.append(f"{rule}: {_finding(old)} -> {_finding(new)}")
    return lines


def _differ(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    # Before findings had variants none was kept.
    otherwise = bool(old.get("variant")) and old["variant"] != new["variant"]
    moved = abs(old["share"] - new["share"]) >= SHARE_STEP
    return otherwise or moved or any(old[k] != new[k] for k in ("severity", "where"))


def _finding(finding: Mapping[str, Any] | None) -> str:
    if finding is None:
        return "none"
    words = (finding.get("variant"), finding["severity"], f"{finding['share']:.1%}", finding["where"])
    return " ".join(word for word in words if word)


def problems(truth: Mapping[str, Any], document: dict[str, Any]) -> list[str]:
    """What is wrong, by the truth or by itself; empty when nothing."""
    if texts.breaks_off(document["advice"]):
        return [f"the advice breaks off: {document['advice']}"]
    if "truth_share" in truth:
        return judge.problems(judge.Outcome(dict(truth), document, ""))
    findings = document["findings"]
    first = next((f["slug"] for f in findings if f["id"] == document["verdict"]["finding"]), "")
    warnings = [f["slug"] for f in findings if f["severity"] != "info"]
    if truth["finding"] is None:
        allowed = MACHINES | set(truth.get("also", ()))
        alarms = [f"false alarm: {slug}" for slug in warnings if slug not in allowed]
        if "info" not in truth:
            return alarms
        info = next((f for f in findings if f["slug"] == truth["info"]), None)
        return [*alarms, *(_of_finding_wrong(truth, info) if info else [f"{truth['info']} is not found"])]
    wrong = []
    if first not in {truth["finding"], *truth.get("also", ())}:
        wrong.append(
            f"the verdict is about {first or 'nothing'}, not {truth['finding']}: {document['verdict']['text']}"
        )
    found = next((f for f in findings if f["slug"] in {truth["finding"], *truth.get("also", ())}), None)
    if found is None:
        return [*wrong, f"{truth['finding']} is not found"]
    return [*wrong, *_of_finding_wrong(truth, found)]


def _of_finding_wrong(truth: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    wrong = []
    if truth.get("who") and not any(truth["who"] in who for who in found["who"]):
        wrong.append(f"who is {found['who']}, not {truth['who']!r}")
    if truth.get("where") and Path(found["where"]).name not in truth["where"]:
        wrong.append(f"where is {found['where']!r}, not {truth['where']}")
    if truth.get("fix") and truth["fix"] not in found["fix"]:
        wrong.append(f"the fix is {found['fix']!r}, without {truth['fix']!r}")
    if "share" in truth and abs(found["share"] - truth["share"]) > TOLERANCE:
        wrong.append(f"the share is {found['share']:.3f}, in truth {truth['share']:.3f}")
    return wrong


def strip(path: Path, replaced: Mapping[str, str]) -> None:
    """Takes out of a run file what no rule reads, and replaces texts (a machine's paths and name) wherever they are."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("DELETE FROM segment")
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            columns = [
                name for _, name, kind, *_ in database.execute(f"PRAGMA table_info('{table}')") if kind == "TEXT"
            ]
            for column in columns:
                if (table, column) in OWN_WORDS:
                    continue
                for old, new in replaced.items():
                    database.execute(f"UPDATE '{table}' SET {column} = replace({column}, ?, ?)", (old, new))
        database.execute("PRAGMA journal_mode = DELETE")
        database.execute("VACUUM")
