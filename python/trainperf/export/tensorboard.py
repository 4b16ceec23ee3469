"""Steps as TensorBoard scalars: a folder of the run's name in the given one; `tensorboard --logdir` shows it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from trainperf.export.files import needs, rank, run_name
from trainperf.export.metrics import PREFIX, facts, per_step

if TYPE_CHECKING:
    from trainperf.run import Run


def place(run: Run, folder: str) -> str:
    name = run_name(run)
    return os.path.join(folder, f"{name}.rank{rank(run)}" if run.meta.get("rank") else name)


def write(run: Run, folder: str) -> None:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise needs("tensorboard", "tensorboard") from error
    path = place(run, folder)
    if os.path.isdir(path):
        for name in os.listdir(path):  # what an earlier export left would be shown beside it
            if name.startswith("events.out.tfevents"):
                os.unlink(os.path.join(path, name))
    writer = SummaryWriter(path)
    try:
        for step, values in per_step(run):
            for name, value in values.items():
                writer.add_scalar(name, value, step)
        text = "\n\n".join(f"**{key.removeprefix(PREFIX)}** {value}" for key, value in facts(run).items())
        writer.add_text(f"{PREFIX}run", text)
    finally:
        writer.close()
