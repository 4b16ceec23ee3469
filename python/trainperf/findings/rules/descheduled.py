"""TP307: the training thread is ready to run, and the CPUs are busy with others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings import loaders
from trainperf.findings.facts import plural
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts


@dataclass(frozen=True, slots=True)
class _Load:
    """Who used the CPUs during the run, in CPUs."""

    own: float
    workers: float
    others: float
    known: bool


class Descheduled:
    id = "TP307"
    slug = "descheduled"
    limits = Limits(limit("descheduled_warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("run_delay",)

    def check(self, facts: Facts) -> Outcome:
        claims = facts.cells("descheduled")
        cost = sum(claims.values())
        severity = facts.grade(cost, self.limits, machine=True)
        # Our threads take CPU too, and where CPUs are short that is what the training thread waits for.
        if severity is None or cost < sum(facts.run.overhead_ns.values()):
            return None
        load = self._load(facts)
        cpus = loaders.cpus(facts)
        workers = sum(loaders.num_workers(v) for v in facts.run.loaders.values())
        try:
            threads = int(facts.run.meta.get("torch_threads", "0"))
        except ValueError:
            threads = 0
        lower = max(1, cpus - workers) if cpus else 1
        confidence = facts.confidence()
        wont = "a larger batch, pin_memory: the CPUs are short"
        if load.known and load.others > max(load.own, load.workers) * 0.5 and load.others > 0.5:
            title, why = "other processes use the CPUs", f"other processes use {load.others:.1f} CPUs beside this one"
            fix = "# stop them, or give this run its own CPUs:\ntaskset -c 0-3 python train.py"
            wont = "more threads or workers: they compete for the same CPUs"
        elif cpus and workers + 1 > cpus:
            title = "more workers than CPUs"
            why = f"{plural(workers, 'worker')} and the training thread share {plural(cpus, 'CPU')}"
            fix = f"DataLoader(..., num_workers={max(1, cpus - 1)})"
            wont = "more workers"
        elif cpus and threads + workers > cpus:
            title = "more threads than CPUs"
            why = f"{threads} torch threads and {plural(workers, 'worker')} share {plural(cpus, 'CPU')}"
            fix = f"torch.set_num_threads({lower})"
            wont = "more threads or workers: they compete for the same CPUs"
        else:
            title = "the training thread waits for a CPU"
            why = (
                "own threads (beside torch's) compete with it"
                if load.known
                else "who else ran is not known (a run of under two seconds)"
            )
            fix = f"torch.set_num_threads({lower})  # and look at what else runs: top -H"
            confidence = (
                "medium" if confidence[0] == "high" else confidence[0],
                f"{confidence[1]}; who else ran is not clear",
            )
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="descheduled",
            claims=claims,
            title=title,
            affected=facts.affected("descheduled"),
            confidence=confidence,
            evidence=(
                f"{facts.of_step(cost)} the training thread is ready and waits for a CPU",
                f"in CPUs: this process {load.own:.1f}, its workers {load.workers:.1f}, others {load.others:.1f}"
                if load.known
                else "",
                f"{plural(cpus, 'CPU')} usable"
                + (f", {threads} torch threads" if threads else "")
                + f", {plural(workers, 'worker')}"
                if cpus
                else "",
            ),
            who=(facts.step_thread_name,),
            why=why,
            fix=fix,
            will_not_help=wont,
        )

    @staticmethod
    def _load(facts: Facts) -> _Load:
        host = facts.run.host
        if len(host) < 2 or host[-1].at_ns <= host[0].at_ns:
            return _Load(0.0, 0.0, 0.0, False)
        first, last = host[0], host[-1]
        wall = last.at_ns - first.at_ns
        own = (last.process_cpu_ns - first.process_cpu_ns) / wall
        workers = (
            sum(
                w.cpu_share * w.seconds
                for v in facts.run.loaders.values()
                for w in v.workers
                if w.cpu_share is not None
            )
            * 1e9
            / wall
        )
        others = max(0.0, (last.machine_busy_ns - first.machine_busy_ns) / wall - own - workers)
        return _Load(own, workers, others, True)
