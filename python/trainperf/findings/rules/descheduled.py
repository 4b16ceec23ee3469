"""TP307: the training thread is ready to run, and the CPUs are busy with others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings import loaders
from trainperf.findings.facts import Holder, function_name, plural
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.run import Detail

# Time of the training thread in which it used no CPU; time of no known mechanism counts as used.
_OFF_CPU = frozenset({"blocked", "gil_wait", "gpu_wait", "descheduled", "throttled"})


@dataclass(frozen=True, slots=True)
class _Load:
    """Who used the CPUs during the run, in CPUs."""

    own: float
    threads: float  # of `own`: neither the training thread, nor torch's threads, nor ours
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
        threads = facts.torch_threads
        lower = max(1, cpus - workers) if cpus else 1
        confidence = facts.confidence()
        wont = "a larger batch, pin_memory: the CPUs are short"
        who = [facts.step_thread_name]
        where = ""
        if load.threads >= limit("own_threads_cpus") and workers + 1 <= max(cpus, 1):
            compete = " and other processes" if load.others >= limit("own_threads_cpus") else ""
            title = f"the training thread waits for a CPU: this process' own threads{compete} compete"
            why = f"own threads (beside torch's) use {load.threads:.1f} CPUs"
            if compete:
                why += f", other processes {load.others:.1f}"
            holder = self._busiest(facts)
            fix = "# make them sleep between their turns, or move their work to a process:\ntop -H -p PID"
            if holder is not None:
                who.append(holder.name)
                at, work = "", "its work"
                if holder.spot is not None:
                    where, at = facts.place(holder.spot.frame), f" in {facts.label(holder.spot)}"
                    work = function_name(holder.spot)
                why += f"; most of their Python is {holder.name}{at}: it holds the GIL {holder.share:.0%} of the time"
                fix = f"# make {holder.name} sleep between its turns, or move {work} to a process or after training"
            wont = "more threads or workers: they compete for the same CPUs"
        elif load.known and load.others > max(load.own, load.workers) * 0.5 and load.others > 0.5:
            title, why = "other processes use the CPUs", f"other processes use {load.others:.1f} CPUs beside this one"
            fix = self._room(cpus, threads, load.others)
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
                f"in CPUs: this process {load.own:.1f}"
                + (f" ({load.threads:.1f} in own threads)" if load.threads >= limit("own_threads_cpus") else "")
                + f", its workers {load.workers:.1f}, others {load.others:.1f}"
                if load.known
                else "",
                f"{plural(cpus, 'CPU')} usable"
                + (f", {threads} torch threads" if threads else "")
                + f", {plural(workers, 'worker')}"
                if cpus
                else "",
            ),
            who=who,
            where=where,
            why=why,
            fix=fix,
            will_not_help=wont,
        )

    @staticmethod
    def _room(cpus: int, threads: int, others: float) -> str:
        """What leaves the others' CPUs to them, as far as this machine has CPUs to divide."""
        if 1 < cpus <= threads:
            fewer = max(1, cpus - math.ceil(others - 0.25))
            return f"# stop them, or leave them their CPUs:\ntorch.set_num_threads({fewer})"
        if cpus > 2:
            last = min(4, cpus - 1) - 1
            return f"# stop them, or give this run its own CPUs:\ntaskset -c 0-{last} python train.py"
        return "# stop them, or run them at another time"

    @staticmethod
    def _busiest(facts: Facts) -> Holder | None:
        """Who besides the training thread holds the GIL most; its share is of the run."""
        step = facts.run.step_thread
        by_thread: dict[int, list[Detail]] = {}
        for d in facts.run.detail_totals("hold"):
            if d.thread is not None and (step is None or d.thread.id != step.id):
                by_thread.setdefault(d.thread.id, []).append(d)
        if not by_thread:
            return None
        group = max(by_thread.values(), key=lambda details: sum(d.ns for d in details))
        ns, count = sum(d.ns for d in group), sum(d.count for d in group)
        if count < limit("min_samples"):
            return None
        spots = facts.spots(group)
        return Holder(
            facts.thread_name(group[0].thread), group[0].thread, ns, 0, facts.share(ns), spots[0] if spots else None
        )

    @staticmethod
    def _own_threads(facts: Facts) -> float:
        """CPUs that threads of this process used besides the training thread, torch's and ours; 0.0: not known.

        From the readings while steps ran: building a model is the training thread's doing as well.
        """
        table = facts.run.steps
        start, end = int(table.start_ns[0]), int(table.start_ns[-1] + table.wall_ns[-1])
        during = [h for h in facts.run.host if start <= h.at_ns <= end]
        if len(during) < 2 or during[-1].at_ns <= during[0].at_ns:
            return 0.0
        used = (during[-1].process_cpu_ns - during[0].process_cpu_ns) / (during[-1].at_ns - during[0].at_ns)
        on_cpu = native = 0
        for (phase, mechanism), ns in facts.matrix.items():
            # While a device's autograd thread runs backward, the training thread waits: the work is the loop's own.
            on_cpu += ns if mechanism not in _OFF_CPU or (phase, mechanism) == ("backward", "blocked") else 0
            native += ns if mechanism == "native" else 0
        # At most: small operations do not use all of torch's threads.
        torchs = native * max(0, facts.torch_threads - 1)
        ours = sum(facts.run.overhead_ns.values()) / facts.run.watched_ns if facts.run.watched_ns else 0.0
        return max(0.0, used - facts.share(on_cpu + torchs) - ours)

    @staticmethod
    def _load(facts: Facts) -> _Load:
        host = facts.run.host
        if len(host) < 2 or host[-1].at_ns <= host[0].at_ns:
            return _Load(0.0, 0.0, 0.0, 0.0, False)
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
        return _Load(own, Descheduled._own_threads(facts), workers, others, True)
