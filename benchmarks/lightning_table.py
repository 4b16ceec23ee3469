"""The table of docs/lightning.md: what trainperf, SimpleProfiler and TraceML say of trainings whose trouble is known.

python benchmarks/lightning_table.py [CASE ...]     all, or some cases' rows

Each case runs in a process of its own per tool, and measures its trouble itself each time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.run import with_peers  # noqa: E402  # the lines above make it importable from anywhere

CHILD = ROOT / "benchmarks" / "lightning_child.py"
PAGE = ROOT / "docs" / "lightning.md"
BEGIN, END = "<!-- table: benchmarks/lightning_table.py -->", "<!-- end of table -->"


def run(python: str, name: str, tool: str, folder: Path) -> dict[str, Any]:
    out = folder / f"{name}-{tool}.json"
    command = [python, str(CHILD)]
    arguments = ["case", name, tool, str(out)]
    if tool == "traceml":
        launcher = [python, "-m", "traceml_ai.launcher.cli", "run", "--mode", "summary"]
        command, arguments = [*launcher, "--logs-dir", str(folder / name), str(CHILD)], ["--args", *arguments]
    done = subprocess.run([*command, *arguments], check=False, cwd=folder, capture_output=True, text=True, timeout=180)
    if not out.exists():
        raise RuntimeError(f"{name} under {tool} wrote nothing:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(out.read_text())
    if tool == "traceml":
        summary = json.loads(next((folder / name).rglob("final_summary.json")).read_text())["primary_diagnosis"]
        result["verdict"] = f"{summary['status']}: {summary['summary']}"
    return result


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def row(python: str, make: Any, folder: Path) -> str:
    name = make.__name__
    ours, simple = (run(python, name, tool, folder) for tool in ("trainperf", "simple"))
    try:
        theirs = run(python, name, "traceml", folder)["verdict"]
    except RuntimeError as error:
        theirs = f"could not be run ({str(error).splitlines()[0]})"
    low, high = ours["truth"]
    truth = (
        "healthy" if ours["share"] is None else percent(low) + (f" to {percent(high)}" if high - low > 0.002 else "")
    )
    title, cause = _title(name)
    said = f"{percent(ours['share'])}: {ours['verdict']}" if cause else ours["verdict"]
    return f"| {title} | {cause} {truth} | {said} | {percent(simple['share'])} | {theirs} |".replace("|  ", "| ")


def _title(name: str) -> tuple[str, str]:
    import lightning_cases as cases

    case = getattr(cases, name)()
    case.truth.counting, case.truth.batches = True, 10**9  # lets a case's thread end
    if case.hog is not None:
        case.hog.join()
    return case.title, case.cause


def main() -> int:
    import lightning_cases as cases

    python = with_peers()
    if not python:
        return 1  # the page keeps what others were seen to say
    text = PAGE.read_text(encoding="utf-8")
    before, table, after = text.partition(BEGIN)[0], text.partition(BEGIN)[2].partition(END)[0], text.partition(END)[2]
    rows = {line.split(" | ")[0]: line for line in table.splitlines()}  # by title
    lines = ["| case | truth | trainperf | SimpleProfiler | TraceML 0.5 |", "|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        for make in cases.CASES:
            title = f"| {_title(make.__name__)[0]}"
            if not sys.argv[1:] or make.__name__ in sys.argv[1:]:
                rows[title] = row(python, make, Path(folder))
                print(rows[title], flush=True)
            lines += [rows[title]] if title in rows else []
    PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
