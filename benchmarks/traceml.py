"""TraceML on the loop of step_overhead.py: it needs its own launcher, so processes alternate instead of blocks."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import Figure, Loop, paired_ratios, ratio_figure

CHILD = Path(__file__).with_name("traceml_child.py")


def figures(*, quick: bool = False) -> list[Figure]:
    name = "step time with / without, 1.4 ms steps: traceml-ai"
    if importlib.util.find_spec("traceml_ai") is None:
        return [Figure(name, None, note="traceml-ai is not installed")]
    batch, steps = str(len(Loop(1.4).batch[0])), "1000"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "ns"

        def run(command: list[str]) -> float:
            out.unlink(missing_ok=True)
            done = subprocess.run(
                [*command, str(out)], check=False, cwd=folder, capture_output=True, text=True, timeout=120
            )
            if not out.exists():
                raise RuntimeError(f"{' '.join(command)} wrote no time:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
            return float(out.read_text())

        launcher = [sys.executable, "-m", "traceml_ai.launcher.cli", "run", "--mode", "summary", "--logs-dir", folder]
        try:
            ratios = paired_ratios(
                lambda: run([sys.executable, str(CHILD), batch, steps]),
                lambda: run([*launcher, str(CHILD), "--args", batch, steps]),
                2 if quick else 5,
            )
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            return [Figure(name, None, note=f"could not be run: {str(error)[:200]}")]
    return [ratio_figure(name, ratios, note=f"{len(ratios)} pairs of processes of {steps} steps")]
