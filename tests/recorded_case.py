"""Trains one known case, writes its run file, and prints its truth: what `python -m tests.replay --record` asks for.

python tests/recorded_case.py lightning.epoch_end --path a.tpr    a function of lightning_cases.py
python tests/recorded_case.py huggingface.trainer_save --path a.tpr    of huggingface_cases.py
python tests/recorded_case.py gpu.item --path a.tpr    a program of gpu_programs.py, on the scripted libcupti
python tests/recorded_case.py example.demo:files --path a.tpr    a file of examples/, with its arguments
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
# The finding of each case that does not know it by itself; None: a healthy run.
GPU = {
    "busy": None,
    "hidden_fetch": None,
    "slow_fetch": "data-starved",
    "gil_hog": "gil-hog",
    "item": "sync-in-loop",
    "pageable": "pageable-copies",
    "launches": "launch-bound",
    "allocations": "allocator-churn",
    "modules": "module-loading",
    "autotuning": "autotuning",
    "collectives": "exposed-communication",
    "float32": "no-tensor-cores",
    "throttled": "gpu-throttled",
}
EXAMPLE = {
    "demo:files": "data-starved",
    "demo:metrics": "gil-hog",
    "demo:checkpoints": "checkpoint",
    "plain": None,
    "plain_loop": "data-starved",
    "lightning_train": "data-starved",
    "transformers_train": "data-starved",
    "accelerate_train": "checkpoint",
}


def lightning(name: str, path: Path) -> dict[str, Any]:
    import lightning_cases
    from trainperf.integrations.lightning import TrainPerf

    case = getattr(lightning_cases, name)()
    case.fit([TrainPerf(path, verbose=False)], str(path.parent))
    return {"finding": case.finding or None, "who": case.who}


def huggingface(name: str, path: Path) -> dict[str, Any]:
    import huggingface_cases

    case = getattr(huggingface_cases, name)()
    case.train(path)
    return {"finding": case.finding or None, "who": case.who}


def gpu(name: str, path: Path) -> dict[str, Any]:
    from fakes import fake_libraries

    cupti, cuda = fake_libraries()
    _run(HERE / "gpu_programs.py", name, str(path), cupti, cuda, TRAINPERF_CUPTI_PATH=cupti)
    return {"finding": GPU[name]}


def example(name: str, path: Path) -> dict[str, Any]:
    script, *words = name.split(":")
    with tempfile.TemporaryDirectory() as folder:
        _run(EXAMPLES / f"{script}.py", *words, TRAINPERF_DIR=folder, TMPDIR=folder)
        (written,) = Path(folder).rglob("*.tpr")
        shutil.move(written, path)
    return {"finding": EXAMPLE[name]}


def _run(script: Path, *words: str, **environment: str) -> None:
    subprocess.run([sys.executable, str(script), *words], check=True, env={**os.environ, **environment}, stdout=2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", help="KIND.NAME, as above")
    parser.add_argument("--path", type=Path, required=True)
    arguments = parser.parse_args()
    kinds = {"lightning": lightning, "huggingface": huggingface, "gpu": gpu, "example": example}
    kind, _, name = arguments.case.partition(".")
    print(json.dumps(kinds[kind](name, arguments.path)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
