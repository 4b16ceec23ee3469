"""One Lightning training under one tool, in a process of its own: what is said of it, or how long a step takes.

python benchmarks/lightning_child.py case NAME TOOL OUT    a case of tests/lightning_cases.py: its truth, what is said
python benchmarks/lightning_child.py time SIZE TOOL OUT    ns of the median step of a healthy training

TOOL: none, trainperf, simple, traceml (under `traceml run`, which writes its own summary).
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "python")]

import lightning_cases as cases  # noqa: E402

from benchmarks.lightning_overhead import Healthy  # noqa: E402

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

# Which of SimpleProfiler's actions tell of a case; of the others it has nothing to say.
ACTIONS = {
    "data_wait": ("train_dataloader_next",),
    "stream": ("train_dataloader_next",),
    "other_loader": ("train_dataloader_next",),
    "callback_after": ("[Callback]SlowEnd.",),
    "callback_before": ("[Callback]SlowBackward.",),
    "validation": ("val_next", "validation_step", "on_validation"),
    "checkpoints": ("save_checkpoint",),
}


def tool(name: str, folder: str) -> tuple[list[Any], dict[str, Any]]:
    """(callbacks, options of the trainer)."""
    if name == "trainperf":
        from trainperf.integrations.lightning import TrainPerf

        return [TrainPerf(Path(folder) / "a.tpr", verbose=False)], {}
    if name == "simple":
        from lightning.pytorch.profilers import SimpleProfiler

        return [], {"profiler": SimpleProfiler()}
    if name == "traceml":
        from traceml_ai.integrations.lightning import TraceMLCallback, init

        init()
        return [TraceMLCallback()], {}
    return [], {}


def said(case: cases.Case, callbacks: list[Any], options: dict[str, Any]) -> dict[str, Any]:
    if callbacks and hasattr(callbacks[0], "findings"):
        prof = callbacks[0]
        first = next((f for f in prof.findings if f.severity != "info" and f.slug != "descheduled"), None)
        share = case.reported(prof.run) if case.cause else None
        return {"share": share, "verdict": f"{first.slug} ({first.who[0]})" if first else "nothing found"}
    profiler = options.get("profiler")
    if profiler is not None and case.name in ACTIONS:
        recorded = profiler.recorded_durations
        told = sum(sum(d) for name, d in recorded.items() if any(part in name for part in ACTIONS[case.name]))
        return {"share": told / sum(recorded["run_training_epoch"]), "verdict": ""}
    return {"share": None, "verdict": ""}


def main() -> None:
    what, name, tool_name, out = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        callbacks, options = tool(tool_name, folder)
        if what == "time":
            result: Any = Healthy(int(name)).step_ns(callbacks=callbacks, options=options)
        else:
            case: cases.Case = getattr(cases, name)()
            case.fit(callbacks, folder, **options)
            result = {"truth": case.share, "steps": case.truth.batches, **said(case, callbacks, options)}
    Path(out).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
