"""Runs to compare, made up: noise like that of real ones, and a cause or two that differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from runfiles import RunFile
from trainperf.comparison import Comparison, compare
from trainperf.comparison.bootstrap import Floats

COMPUTE = 60.0  # ms: 300 steps are a long run


def noisy(rng: np.random.Generator, steps: int, scale: float = 1.0) -> Floats:
    """Steps of about `scale` ms as real ones are: neighbours alike, a slow drift, now and then a long one."""
    own = rng.normal(0, 0.04, steps)
    alike = np.zeros(steps)
    for i in range(1, steps):
        alike[i] = 0.8 * alike[i - 1] + own[i]
    drift = 0.03 * np.sin(np.linspace(0, 6.3, steps) + rng.uniform(0, 6.3))
    spikes = (rng.random(steps) < 0.01) * rng.exponential(1.0, steps)
    result: Floats = scale * (1 + alike + drift + spikes).clip(0.3)
    return result


def write(
    path: Path, steps: Floats | list[float], *, host: tuple[float, float] | None = (1.0, 0.0), **causes: float
) -> Path:
    """A run whose compute takes `steps`; `host`: CPUs of its own and of others."""
    file = RunFile(path)
    file.step(compute=80.0, flags=16)
    for ms in steps:
        file.step(compute=float(ms), **causes)
    file.detail("sample", 8.0 * len(steps), phase="backward", state="native")
    if host is not None:
        file.host(10, process_cpus=host[0], other_cpus=host[1], idle_cpus=2 - sum(host))
    return file.build()


def compared(a: Path, b: Path, **options: Any) -> Comparison:
    import trainperf

    with trainperf.open(a) as before, trainperf.open(b) as after:
        return compare(before, after, **options)


def pair(tmp_path: Path, seed: int = 0, steps: int = 300, scale: float = 1.0, **causes: float) -> tuple[Path, Path]:
    rng = np.random.default_rng(seed)
    a = write(tmp_path / "a.tpr", noisy(rng, steps, COMPUTE))
    return a, write(tmp_path / "b.tpr", noisy(rng, steps, COMPUTE * scale), **causes)
