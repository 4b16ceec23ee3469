"""A container's CPU quota: the kernel stops the process for the rest of each 100 ms period. Size: per cent of one CPU
that is taken away."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from _common import Program, Ready, Trainer
from torch.utils.data import DataLoader

PERIOD_US = 100_000


def own_group(controller: str) -> str:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _number, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path
    raise OSError(f"no cgroup of {controller or 'version 2'}")


@contextmanager
def quota(share: float) -> Iterator[Path]:
    """Moves this process into a new cgroup that may use `share` of one CPU: its cpu.stat. OSError where not allowed."""
    limit = int(share * PERIOD_US)
    root = Path("/sys/fs/cgroup")
    if (root / "cgroup.controllers").exists():
        old = root / own_group("").lstrip("/")
        group, values = old / f"trainperf-{os.getpid()}", {"cpu.max": f"{limit} {PERIOD_US}"}
    else:
        old = root / "cpu" / own_group("cpu").lstrip("/")
        group = old / f"trainperf-{os.getpid()}"
        values = {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(limit)}
    group.mkdir()
    try:
        for name, value in values.items():
            (group / name).write_text(value)
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield group / "cpu.stat"
    finally:
        (old / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


def throttled_ns(stat: Path) -> int:
    facts = dict(line.split() for line in stat.read_text().splitlines())
    return int(facts["throttled_time"]) if "throttled_time" in facts else int(facts["throttled_usec"]) * 1000


def main() -> None:
    program = Program(cause="throttled", finding="throttled", steps=400, size=50, where="")
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # the kernel sums over CPUs
    trainer = Trainer(width=512).warm_up(program.warm_up)

    def train() -> None:
        for x, y in DataLoader(Ready(trainer, program.steps), batch_size=None):
            trainer.step(x, y)

    with ExitStack() as limited:
        stat = None
        if program.size:
            try:
                stat = limited.enter_context(quota(1 - program.size / 100))
            except OSError as error:
                program.skip(f"no CPU quota can be set here: {error}")
        with program.watch():
            before = throttled_ns(stat) if stat else 0
            train()
            program.truth_ns = throttled_ns(stat) - before if stat else 0
    program.report()


if __name__ == "__main__":
    main()
