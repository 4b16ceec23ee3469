"""Judges recorded runs by today's rules, and records new ones.

python -m tests.replay [NAME ...]
    judge: what is wrong by the truth, and what differs from the last answer
python -m tests.replay --accept [NAME ...]
    the same, and today's answers become the last ones
python -m tests.replay --record NAME PROGRAM [ARG ...]
    run a program of tests/programs, tests/programs/reported or tests/recorded_case.py and keep its run;
    FIXED=1 before it: its fixed twin
python -m tests.replay --keep NAME RUN.tpr TRUTH.json
    keep a run file that is there already, with its truth
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.replay import case as cases

ROOT = Path(__file__).resolve().parents[2]
MARKER = "# trouble"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.replay", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--accept", action="store_true")
    what.add_argument("--record", metavar="NAME")
    what.add_argument("--keep", metavar="NAME")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="...")
    arguments = parser.parse_args()
    if arguments.record or arguments.keep:
        if len(arguments.words) < (1 if arguments.record else 2):
            parser.error("--record needs a program, --keep a run file and its truth")
        if arguments.record:
            return _record(arguments.record, Path(arguments.words[0]), arguments.words[1:])
        truth = json.loads(Path(arguments.words[1]).read_text(encoding="utf-8"))
        return _keep(
            arguments.keep, Path(arguments.words[0]), truth, truth.get("program", Path(arguments.words[0]).stem)
        )
    return _judge(arguments.words, accept=arguments.accept)


def _judge(names: Sequence[str], *, accept: bool) -> int:
    """1 when a run is judged wrong, or otherwise than before and that is not accepted."""
    started = time.perf_counter()
    wrong = changed = 0
    try:
        recorded = cases.load(names)
    except KeyError as error:
        print(f"replay: {error.args[0]}", file=sys.stderr)
        return 2
    for case in recorded:
        document = cases.replayed(case)
        now = cases.answer(document)
        problems, changes = cases.problems(case.truth, document), cases.changes(case.answer, now)
        wrong, changed = wrong + bool(problems), changed + bool(changes)
        for line in [f"WRONG {problem}" for problem in problems] + changes:
            print(f"{case.name}: {line}")
        if accept and now != case.answer:
            cases.save(cases.Case(case.name, case.program, case.truth, now))
    took = time.perf_counter() - started
    print(
        f"{len(recorded)} recorded runs in {took:.1f} s: {len(recorded) - wrong} right, {wrong} wrong; "
        f"{changed} changed{' (accepted)' if accept and changed else ''}"
    )
    return 1 if wrong or (changed and not accept) else 0


def _record(name: str, program: Path, words: Sequence[str]) -> int:
    if not program.is_file():
        print(f"replay: {program} is no file", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{name}.tpr")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), str(program.parent)])}
        in_truth = program.resolve().parent in (ROOT / "tests", ROOT / "tests" / "programs")  # it watches itself
        watched = [] if in_truth else ["-m", "trainperf", "run", "-f", "-o", str(path)]
        own = ["--path", str(path)] if in_truth else []
        command = [sys.executable, *watched, str(program.resolve()), *own, *words]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)
        if done.returncode:
            print(f"replay: {program} ended with {done.returncode}:\n{done.stderr[-3000:]}", file=sys.stderr)
            return 1
        lines = [line for line in done.stdout.splitlines() if in_truth or line.startswith("TRUTH ")]
        if not lines:
            print(f"replay: {program} printed no line 'TRUTH {{json}}'", file=sys.stderr)
            return 1
        truth = json.loads(lines[-1].removeprefix("TRUTH "))
        if not in_truth and (truth["finding"] is not None or "info" in truth):
            text = program.read_text(encoding="utf-8").splitlines()
            marked = [f"{program.name}:{n}" for n, line in enumerate(text, 1) if line.rstrip().endswith(MARKER)]
            truth.setdefault("where", marked)
        fixed = "FIXED=1 " if os.environ.get("FIXED") == "1" else ""
        return _keep(name, path, truth, " ".join([f"{fixed}{program.name}", *words]))


def _keep(name: str, run_file: Path, truth: dict[str, Any], program: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{name}.tpr")
        shutil.copyfile(run_file, path)
        before = cases.answer(cases.shown(path))
        cases.strip(path, _of_this_machine())
        document = cases.shown(path)
        if before != cases.answer(document):
            print(f"replay: stripped, the run is judged otherwise: {cases.changes(before, cases.answer(document))}")
            return 1
        cases.save(cases.Case(name, program, truth, before), path)
        found = cases.problems(truth, document)
        print(f"{name}: {document['verdict']['text']}\n{name}: {'; '.join(found) or 'right'}")
        return 1 if found else 0


def _of_this_machine() -> dict[str, str]:
    """Paths and names that only this machine has, and what stands for them; the longest first."""
    places = {
        str(Path(sys.prefix).parent): "/home/user/project",  # of .venv
        str(ROOT): "/home/user/project",
        str(ROOT.parent / "shared"): "/home/user/programs",
        str(Path.home()): "/home/user",
        platform.node(): "host",
    }
    return {old: places[old] for old in sorted(places, key=len, reverse=True) if len(old) > 1}


if __name__ == "__main__":
    sys.exit(main())
