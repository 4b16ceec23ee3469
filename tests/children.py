"""A tiny training, in this process and as the start of a child's script; and how the child is run."""

from __future__ import annotations

import os
import subprocess
import textwrap
from pathlib import Path

import torch
import warm

CHILD = """
import os, sys, signal, threading, time
import torch
import trainperf
from torch.utils.data import DataLoader

weight = torch.ones(1, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
def train(n=10, **options):
    for batch in DataLoader([torch.ones(1)] * n, batch_size=None, **options):
        (weight * batch).sum().backward()
        optimizer.step()
path = sys.argv[1]
"""


def train(n: int = 10) -> None:
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for batch in torch.utils.data.DataLoader([torch.ones(1)] * n, batch_size=None):  # type: ignore[arg-type]
        (weight * batch).sum().backward()
        optimizer.step()


def child(
    body: str, path: Path, *, code: int = 0, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    done = warm.run(["-c", CHILD + textwrap.dedent(body), str(path)], env={**os.environ, **(env or {})})
    assert done.returncode == code, done.stdout + done.stderr
    return done
