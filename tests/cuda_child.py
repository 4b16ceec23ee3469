"""A child process that trains on the scripted GPU, and what it told."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path
from typing import Any

import trainperf
import warm
from fakes import fake_libraries

TESTS = Path(__file__).resolve().parent
PRELUDE = """
import json, os, signal, sys, threading, time
sys.path.insert(0, sys.argv[4])
from fakes import Gpu
import torch
import trainperf
from torch.utils.data import DataLoader

path, gpu = sys.argv[1], Gpu(*sys.argv[2:4])
weight = torch.ones(1, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)

def step(batch, kernels=10, ms=0.1, between=lambda: None):
    for i in range(kernels):
        gpu.launch(f"ampere_sgemm_{i % 3}", ms=ms)
    between()
    (weight * batch).sum().backward()
    optimizer.step()
    gpu.synchronize()

def train(n=40, **options):
    gpu.start()
    for batch in DataLoader([torch.ones(1)] * n, batch_size=None):
        step(batch, **options)

def tell(**facts):
    print(json.dumps(facts))
"""


def play(body: str, tmp_path: Path, *, code: int = 0, env: dict[str, str] | None = None) -> dict[str, Any]:
    """What the child told, with its run (None: none was written) as "run"."""
    cupti, cuda = fake_libraries()
    path = tmp_path / "a.tpr"
    done = warm.run(
        ["-c", PRELUDE + textwrap.dedent(body), str(path), cupti, cuda, str(TESTS)],
        env={**os.environ, "TRAINPERF_CUPTI_PATH": cupti, "TRAINPERF_LOG_LEVEL": "error", **(env or {})},
    )
    assert done.returncode == code, done.stdout + done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    facts = {key: value for line in told for key, value in line.items()}
    return {**facts, "run": trainperf.open(path) if path.exists() else None, "stderr": done.stderr}


def tier(facts: dict[str, Any]) -> str:
    found = facts["run"].tiers["cuda"]
    return f"{found.tier}: {found.why}" if found.why else str(found.tier)


def lost(facts: dict[str, Any]) -> dict[str, int]:
    return {what: n for what, n in facts["run"].dropped.items() if what.startswith("cupti") and n}
