"""What rules ask of a run: sums, shares, places, and the grading that all of them use."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from trainperf.findings.gpu import Gpu
from trainperf.findings.ledger import Ledger
from trainperf.findings.model import Affected, Cell, Confidence, Limits, Params, Said, Severity, Standing
from trainperf.findings.places import Part, Places, Spot, by_cell, total
from trainperf.findings.text import Count, Ns, Share, plural
from trainperf.findings.thresholds import limit
from trainperf.runfile.schema import CAUSES, MECHANISM_OF, MECHANISMS, PHASES, cause_of

__all__ = ["Facts", "Spot"]

if TYPE_CHECKING:
    from trainperf.runfile import Detail, Int64Array, RunReader

T = TypeVar("T")
_LONGEST_COMMAND = 160  # characters


class Facts(Places):
    """A run, asked the way that rules ask. Holds no state but caches."""

    def __init__(self, run: RunReader, *, standing: Standing = "") -> None:
        super().__init__(run)
        self.standing = standing
        self.steps = int(run.step_count)
        self.wall_ns = int(run.wall_ns)
        # What may pass for the loop's own trouble: only what we spend on the user's threads.
        on_loops_threads = ("marks", "gil_hook", "kept_memory", "denormals", "fewer_threads")
        self.own_ns = sum(run.overhead_ns.get(place, 0) for place in on_loops_threads)
        self.figures_ns = run.overhead_ns.get("figures", 0)  # that the user's loggers took for ours, on the CPU or not
        self.own_cpu_ns = sum(run.overhead_ns.values()) - self.figures_ns
        self.of_trace = run.meta.get("source") == "trace"  # of another profiler: no probe of ours was there
        self._known: dict[Callable[[Facts], Any], Any] = {}

    def once(self, ask: Callable[[Facts], T]) -> T:
        """What a function of these facts returns, worked out when it is first asked for: several rules ask."""
        if ask not in self._known:
            self._known[ask] = ask(self)
        known: T = self._known[ask]
        return known

    @cached_property
    def inference(self) -> bool:
        """Whether nothing trains in this run: no backward and no optimizer, in any of its steps."""
        table = self.run.steps
        phases = ("backward", "optimizer")
        none = not table.backwards.any() and not table.optimizer_steps.any()
        return bool(self.steps) and none and not any(map(self.run.phase_ns, phases))

    # -- the device

    @cached_property
    def _seen(self) -> tuple[Gpu | None, str]:
        """The device; or None, and why it was not seen: "" where there is none to see, as in training on the CPU."""
        devices = self.run.devices
        if not devices:
            if not self.run.feeds_device and not self.of_trace:
                return None, ""
            return None, self.off("cuda") or "no work on a device was recorded"
        device = max(devices, key=lambda d: d.totals.busy_ns)
        gpu = Gpu(self.run, device, len(devices))
        if not device.totals.kernels:
            return None, f"{gpu.name} ran no kernel that was recorded"
        lost, traced = int(device.steps.incomplete.sum()), self.steps - int(device.steps.untraced.sum())
        if lost > limit("incomplete_share") * traced:
            return None, f"records of {gpu.name} were lost in {lost} of {plural(traced, 'step')}"
        return gpu, ""

    @property
    def gpu(self) -> Gpu | None:
        return self._seen[0]

    @property
    def gpu_unseen(self) -> str:
        """Why there is no `gpu`; "" when there is, and where nothing is trained on one."""
        return self._seen[1]

    @cached_property
    def ledger(self) -> Ledger:
        """What the rules before this one left untold."""
        return Ledger(self.matrix, self.gpu.idle_causes if self.gpu is not None else None, self.cause_of)

    # -- time

    @cached_property
    def matrix(self) -> dict[Cell, int]:
        rows = self.run.matrix_ns.tolist()
        return {(p, m): int(rows[i][j]) for i, p in enumerate(PHASES) for j, m in enumerate(MECHANISMS)}

    def cells(self, cause: str, phases: Iterable[str] = PHASES) -> dict[Cell, int]:
        """The non-empty cells that make up a cause, in some phases."""
        wanted = set(phases)
        return {
            cell: ns
            for cell, ns in self.matrix.items()
            if ns > 0 and cell[0] in wanted and self.cause_of(cell) == cause
        }

    def cause_of(self, cell: Cell) -> str:
        """As the file's own columns are folded."""
        return cause_of(*cell, feeds_device=self.run.feeds_device)

    def main_cause(self, claims: Mapping[Cell, int]) -> str:
        """The cause that most of these cells fold into."""
        causes = self.by_cause(claims)
        return max(causes, key=lambda cause: causes[cause], default="unknown")

    def by_cause(self, claims: Mapping[Cell, int]) -> dict[str, int]:
        causes: dict[str, int] = {}
        for cell, ns in claims.items():
            causes[self.cause_of(cell)] = causes.get(self.cause_of(cell), 0) + ns
        return causes

    def claims_of(self, samples: Iterable[Detail]) -> dict[Cell, int]:
        """The time of samples of the training thread, as far as no finding has told it."""
        return {cell: ns for cell, n in by_cell(samples).items() if (ns := min(n, self.ledger.left(cell))) > 0}

    def part_of(self, cells: Iterable[Cell], is_it: Callable[[Detail], bool], *, of_read: bool = False) -> Part:
        """Of the exact time of each cell as much as of its samples; `of_read`: of those whose stack was read."""
        claims: dict[Cell, int] = {}
        details: list[Detail] = []
        for phase, mechanism in cells:
            samples = self.samples(phases=[phase], states=[s for s, of in MECHANISM_OF.items() if of == mechanism])
            if of_read:
                samples = [d for d in samples if self.run.stack(d.stack)]
            mine = [d for d in samples if is_it(d)]
            ns = self.matrix[phase, mechanism] * total(mine) // max(1, total(samples))
            if ns:
                claims[phase, mechanism] = ns
                details += mine
        return Part(claims, tuple(details))

    def cause_ns(self, cause: str) -> int:
        return sum(self.cells(cause).values())

    def share(self, ns: int) -> float:
        return ns / self.wall_ns if self.wall_ns else 0.0

    def ms_per_step(self, ns: int) -> float:
        return ns / self.steps / 1e6 if self.steps else 0.0

    def of_step(self, ns: int) -> Params:
        """A cost as means over all steps: what each step has of it, and how long a step is."""
        return {"each": Ns(ns / self.steps), "step": Ns(self.wall_ns / self.steps)}

    def command(self, prefix: str) -> str:
        """ "OMP_NUM_THREADS=1 python train.py": how the program is to be started; of a notebook, the server."""
        if self.run.is_notebook:
            return f"{prefix} jupyter lab"
        started = shlex.join(self.run.command)
        if started.isprintable() and len(self.run.command) > 1 and len(started) <= _LONGEST_COMMAND:
            return f"{prefix} {started}"
        script = self.run.script
        known = script.endswith(".py") and script != "__main__.py"  # python -m has the package's
        return f"{prefix} python {shlex.quote(script) if known else 'train.py'}"

    @cached_property
    def too_few(self) -> bool:
        """Whether fewer steps than a warning needs are left without the first, and one that an exception cut short."""
        left_out = 0 if self.of_trace else 1 + (self.run.ended == "exception")
        return self.steps - left_out < limit("warn_min_steps")

    @property
    def level(self) -> Confidence:
        """How sure so few steps make it at most."""
        return "high" if self.steps >= limit("critical_min_steps") else "medium" if self.steps >= 5 else "low"

    @property
    def is_short(self) -> bool:
        """So short that what happened once in it may never happen again."""
        return self.wall_ns < limit("once_min_s") * 1e9

    @cached_property
    def kept_off_ns(self) -> int:
        """Time that the machine kept the training thread off the CPUs: none of the loop's doing."""
        return self.cause_ns("descheduled") + self.cause_ns("throttled")

    @cached_property
    def stopped_ns(self) -> int:
        """Of the time `descheduled`: the whole process stood still, which is nobody's doing on the CPUs."""
        return min(self.run.stopped_ns, self.cause_ns("descheduled"))

    def waits_for_cpu(self) -> dict[Cell, int]:
        """The time `descheduled` that no finding has told yet, without the stops."""
        cells = self.cells("descheduled")
        whole = sum(cells.values())
        left = {cell: self.ledger.left(cell) - self.stopped_ns * ns // whole for cell, ns in cells.items()}
        return {cell: ns for cell, ns in left.items() if ns > 0}

    @property
    def waits_share(self) -> float:
        """Of waits for a CPU: what the machine kept the training thread off the CPUs, less the stops."""
        return self.share(self.kept_off_ns - self.stopped_ns)

    def loop_share(self, ns: int) -> float:
        """Of the time that the machine left to the run: the same on a busy machine as on a quiet one."""
        left = self.wall_ns - self.kept_off_ns
        return ns / left if left > 0 else 0.0

    def grade(self, ns: int, limits: Limits, *, machine: bool = False) -> Severity | None:
        """None: too small to speak of, or too few steps, or no larger than our own cost.

        `machine`: the cost is the machine's doing, and measured against the whole run; else a warning is measured
        against what the machine left to the run.
        """
        share = self.share(ns)
        if self.too_few or share < limit("least_share"):
            return None
        if (share if machine else self.loop_share(ns)) < limits.warn:
            return None
        if self.ms_per_step(ns) < limit("min_cost_ms") or ns < self.own_ns:
            return None
        critical = limits.critical is not None and share >= limits.critical
        return "critical" if critical and self.steps >= limit("critical_min_steps") else "warning"

    def grade_of_asked_work(self, ns: int, limits: Limits) -> Severity | None:
        """Of work that was asked for, such as validation: an info below a share at which less of it is the largest
        gain."""
        severity = self.grade(ns, limits)
        return "info" if severity is not None and self.loop_share(ns) < limit("validation_warn_share") else severity

    def affected(self, cause: str) -> Affected:
        """Which steps have the cost: all, unless it is felt in fewer than half of them and they hold nearly all of it.

        A row of merged steps counts as a whole, so that in long runs what is rare within each row is said per step.
        """
        return self.affected_by(self.run.steps.causes_ns[:, CAUSES.index(cause)])

    def affected_by(self, column: Int64Array) -> Affected:
        """`column`: the cost of each row of the step table."""
        table = self.run.steps
        felt = (column > 0) & (column >= limit("felt_share") * table.wall_ns)
        steps, held, whole = int(table.count[felt].sum()), int(column[felt].sum()), int(column.sum())
        if not steps or held < limit("held_share") * whole:
            return Affected(self.steps, 1.0)
        # Of those, the fewest that hold nearly all of it, with those like them.
        each = np.where(felt, column / table.count, 0)
        order = np.argsort(-each)
        enough = int(np.argmax(np.cumsum(column[order]) >= limit("held_share") * whole))
        alike = felt & (each >= limit("half_share") * np.median(each[order[: enough + 1]]))
        if (held_by_these := int(column[alike].sum())) >= limit("held_share") * whole:
            steps, held = int(table.count[alike].sum()), held_by_these
        return Affected(steps, held / whole) if 2 * steps < self.steps else Affected(self.steps, 1.0)

    def is_of_the_first(self, affected: Affected, cause: str) -> bool:
        """Whether a cost of so few steps, but more than one, is in the run's first that many, or few more."""
        table = self.run.steps
        first = 4 * np.cumsum(table.count) <= 5 * affected.steps
        column = table.causes_ns[:, CAUSES.index(cause)]
        return 1 < affected.steps < self.steps and int(column[first].sum()) >= limit("held_share") * int(column.sum())

    def is_in_first_step(self, cause: str) -> bool:
        """Whether nearly all of a cause is in the run's first step."""
        table = self.run.steps
        column = table.causes_ns[:, CAUSES.index(cause)]
        whole = int(column.sum())
        return whole > 0 and int(table.count[0]) == 1 and int(column[0]) >= limit("held_share") * whole

    def affected_by_part(self, ns: int, *, cause: str = "", phase: str = "") -> Affected:
        """Which steps have a cost of `ns` that is a part of a cause or of a phase: the fewest that have nearly so much
        more of it than the median step has, with those like them; or all."""
        table = self.run.steps
        column = table.causes_ns[:, CAUSES.index(cause)] if cause else table.phases_ns[:, PHASES.index(phase)]
        each = column / table.count
        beyond = each - np.median(each)
        order = np.argsort(-beyond)
        held = np.cumsum((beyond * table.count)[order])
        enough = np.flatnonzero(held >= limit("held_share") * ns)
        if not len(enough):
            return Affected(self.steps, 1.0)
        alike = beyond >= limit("half_share") * np.median(beyond[order[: enough[0] + 1]])
        if 2 * (steps := int(table.count[alike].sum())) >= self.steps:
            return Affected(self.steps, 1.0)
        return Affected(steps, min(1.0, float((beyond * table.count)[alike].sum()) / ns))

    # -- who and where

    @cached_property
    def machine(self) -> str:
        """ "x86_64" or "aarch64", as the kernel calls it; "" when it was not recorded."""
        found = re.search(r"x86_64|amd64|aarch64|arm64", self.run.meta.get("platform", ""))
        return found.group() if found is not None else ""

    @cached_property
    def torch_threads(self) -> int:
        """Of one operation; 0 when it is not known."""
        return int(self.number("torch_threads"))

    @property
    def torch_version(self) -> tuple[int, int]:
        """(2, 13); (0, 0) when it is not known."""
        found = re.match(r"(\d+)\.(\d+)", self.run.meta.get("torch", ""))
        return (int(found[1]), int(found[2])) if found is not None else (0, 0)

    def number(self, key: str) -> float:
        """A fact about the process; 0 when it is not known."""
        try:
            number = float(self.run.meta.get(key, "0"))
        except ValueError:
            return 0.0
        return number if 0 <= number < math.inf else 0.0

    def off(self, probe: str) -> str | None:
        """Why a probe gave nothing; None when it worked."""
        tier = self.run.tiers.get(probe)
        if tier is None:
            return f"the run has no {probe} probe"
        if tier.tier.startswith("off"):
            return f"{probe} off: {tier.why or tier.tier.partition(':')[2].strip() or 'no reason given'}"
        return None

    @property
    def has_gil(self) -> bool:
        """False of a free-threaded Python: who is attached to the interpreter was seen, and no GIL."""
        return self.tier("gil_holds").startswith("off") or not self.tier("gil_waits").startswith("off")

    @property
    def gil_unmeasured(self) -> bool:
        """Who waited for the GIL is not known, only who held it at most."""
        return self.off("gil_waits") is not None or self.tier("gil_waits").startswith("busy-only")

    def tier(self, probe: str) -> str:
        tier = self.run.tiers.get(probe)
        return tier.tier if tier is not None else "off"

    # -- when

    def when(self, claims: Mapping[Cell, int]) -> Said | None:
        """ "96% of it is in steps 0 to 133 (of 400)" when a cost sits in half of the run or less."""
        if not claims:
            return None
        per_section: list[tuple[float, int, int, int]] = []
        for s in self.run.sections:
            ns = sum(int(s.matrix_ns[PHASES.index(p), MECHANISMS.index(m)]) for p, m in claims)
            if s.steps > 0:
                per_section.append((ns / s.steps, ns, s.first_step, s.steps))
        whole = sum(p[1] for p in per_section)
        total_steps = sum(p[3] for p in per_section)
        if len(per_section) < 4 or not whole:
            return None
        best: tuple[float, int, int] | None = None
        for i in range(len(per_section)):
            ns = steps = 0
            for j in range(i, len(per_section)):
                ns += per_section[j][1]
                steps += per_section[j][3]
                if steps > total_steps / 2:
                    break
                if ns / whole >= limit("clustered_share") and (best is None or steps < best[2] - best[1] + 1):
                    best = (ns / whole, per_section[i][2], per_section[i][2] + steps - 1)
        if best is None:
            return None
        steps_of = {"first": Count(best[1]), "last": Count(best[2]), "steps": Count(total_steps)}
        return Said("clustered", {"share": Share(best[0]), **steps_of})
