"""TP307: the training thread is ready to run, and the CPUs are busy with others."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainperf.findings import cpus
from trainperf.findings.facts import function_name, plural
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts


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
        wants, load = cpus.demand(facts), cpus.load(facts)
        whose = cpus.whose(wants, load)
        if whose == "oversubscribed":
            return None  # a finding of its own
        threads, workers = wants.threads, wants.workers
        confidence = facts.confidence()
        wont = "a larger batch, pin_memory: the CPUs are short"
        who = [facts.step_thread_name]
        where = ""
        beside = load.others + load.children
        if whose == "own threads":
            compete = " and other processes" if load.others >= limit("own_threads_cpus") else ""
            title = f"the training thread waits for a CPU: this process' own threads{compete} compete"
            why = f"own threads (beside torch's) use {load.threads:.1f} CPUs"
            if compete:
                why += f", other processes {load.others:.1f}"
            holder = facts.busiest_other()
            fix = "# make them sleep between their turns, or move their work to a process:\ntop -H -p PID"
            if holder is not None:
                who.append(holder.name)
                at, work = "", "its work"
                if holder.spot is not None:
                    where, at = facts.where(holder.spot), f" in {facts.label(holder.spot)}"
                    work = function_name(holder.spot)
                held = f"{facts.share(holder.ns):.0%} of the time"
                why += f"; most of their Python is {holder.name}{at}: it holds the GIL {held}"
                fix = f"# make {holder.name} sleep between its turns, or move {work} to a process or after training"
            wont = "more threads or workers: they compete for the same CPUs"
        elif whose == "children":
            title = "its own child processes use the CPUs"
            why = f"processes that this one started (no DataLoader workers) use {load.children:.1f} CPUs"
            fix = "# give them fewer CPUs, or start them at another time:\nps --forest -o pid,pcpu,args -g PID"
        elif whose == "others":
            title, why = "other processes use the CPUs", f"other processes use {load.others:.1f} CPUs beside this one"
            if load.elsewhere:
                why = f"other processes use {load.others:.1f} or more of the CPUs that this one may use"
            fix = self._room(wants.cpus, threads, load.others)
            wont = "more threads or workers: they compete for the same CPUs"
        elif whose == "workers and others":
            title = "the training thread waits for a CPU: its workers and other processes compete"
            used = f"{plural(workers, 'worker')} used {load.workers:.1f} CPUs, other processes {beside:.1f}"
            why = f"its {used}{' or more' if load.elsewhere else ''}, of the {wants.cpus} that it may use"
            fewer = max(1, wants.cpus - 1)
            fix = "# stop the others, or run them at another time"
            if fewer < workers:
                fix = f"DataLoader(..., num_workers={fewer})  # and stop the others"
            wont = "more threads or workers: they compete for the same CPUs"
        else:
            title = "the training thread waits for a CPU"
            why = "who else ran is not clear" if load.known else "the watch was too short to see who else ran"
            fix = "# look at what else runs:\ntop -H"
            confidence = "medium" if confidence[0] == "high" else confidence[0], f"{confidence[1]}; {why}"
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
                + f", its workers {load.workers:.1f}, "
                + (f"the other ranks {load.ranks:.1f}, " if load.ranks >= 0.05 else "")
                + (f"other child processes {load.children:.1f}, " if load.children >= 0.05 else "")
                + (f"others on these CPUs {load.others:.1f} or more" if load.elsewhere else f"others {load.others:.1f}")
                if load.known
                else "",
                f"{plural(wants.cpus, 'CPU')} usable"
                + (f" of the machine's {wants.cpus + load.elsewhere}" if load.elsewhere else "")
                + (f", threads of torch: {threads}" if threads else "")
                + f", {plural(workers, 'worker')}"
                if wants.cpus
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
