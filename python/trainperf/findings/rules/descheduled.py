"""TP307: the training thread is ready to run, and the CPUs are busy with others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainperf.findings import cpus
from trainperf.findings.facts import function_name, plural
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.own_threads import own_threads
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts


# At the default priority a process takes the CPUs from training as a thread does.
_NICE = "a process that yields the CPUs: os.nice(19) in it"
_FEWER = f"# start fewer of them, make them sleep between their turns, or move their work to {_NICE}\ntop -H -p PID"
_LOOK = "# look at what else runs:\ntop -H"


class Descheduled:
    id = "TP307"
    slug = "descheduled"
    limits = Limits(limit("descheduled_warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("run_delay",)

    def check(self, facts: Facts) -> Outcome:
        claims = facts.waits_for_cpu()  # stops are told in a note
        cost = sum(claims.values())
        severity = facts.grade(cost, self.limits, machine=True)
        # Our threads take CPU too, and where CPUs are short that is what the training thread waits for.
        if severity is None or cost < facts.own_cpu_ns:
            return None
        wants, load = cpus.demand(facts), cpus.load_in_waits(facts)
        whose = cpus.whose(wants, load)
        if whose == "oversubscribed":
            return None  # a finding of its own
        threads, workers = wants.threads, wants.workers
        confidence = facts.confidence()
        wont = "a larger batch, pin_memory: the CPUs are short"
        who = [facts.step_thread_name]
        where, shared = "", False
        mostly_others = whose == "others"
        if whose == "own threads":
            mostly_others = load.others > load.threads and not cpus.leave_room(wants, load)
            title, why, fix, names, where = self._own_threads(facts, load, mostly_others)
            who += names
            if mostly_others:
                fix = f"# stop the other processes, and see to this run's own threads:\n{fix}"
            wont = "more threads or workers: they compete for the same CPUs"
        elif whose == "children":
            title = "its own child processes use the CPUs"
            why = f"processes that this one started (no DataLoader workers) use {load.children:.1f} CPUs"
            fix = "# start them with `nice -n 19`, at another time, or fewer at once; `ps` lists them below this one:\n"
            fix += "ps -e --forest -o pid,pcpu,args"
            if 1 < wants.cpus <= threads:
                fix = f"{self._fewer_threads(wants.cpus, load.children)}  # leaves them their CPUs; or {fix[2:]}"
            shared = threads > 1
        elif whose == "others":
            title, why = "other processes use the CPUs", f"other processes use {load.others:.1f} CPUs beside this one"
            if load.elsewhere:
                why = f"other processes use {load.others:.1f} or more of the CPUs that this one may use"
            why += self._beside_others(facts, load)
            fix = self._room(facts, wants.cpus, threads, load.others)
            shared = threads > 1
            wont = "more threads or workers: they compete for the same CPUs"
        elif whose == "both":
            title, why, fix = self._both(wants, load)
            mostly_others = load.others > load.started
            wont = "more threads or workers: they compete for the same CPUs"
        else:
            title = "the training thread waits for a CPU"
            why = "who else ran is not clear" if load.known else "the watch was too short to see who else ran"
            fix = _LOOK
            confidence = "medium" if confidence[0] == "high" else confidence[0], f"{confidence[1]}; {why}"
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="descheduled",
            claims=claims,
            title=title,
            brief=title.rpartition(": ")[2],
            affected=facts.affected("descheduled"),
            confidence=confidence,
            evidence=(
                f"{facts.of_step(cost)} the training thread is ready and waits for a CPU",
                load.text,
                f"{threads} threads of torch share each operation: while one has no CPU the others wait for it, which "
                "counts as compute"
                if shared
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
            by_others=mostly_others,
            finds_out=fix == _LOOK,
            saves_more=shared,
        )

    @staticmethod
    def _beside_others(facts: Facts, load: cpus.Load) -> str:
        """What of the run's own uses the CPUs too: it may be what training waits for in a part of the run."""
        own = load.threads + load.workers + load.children
        unknown = ""
        if "children_cpu_after_ns" not in facts.run.meta:
            unknown = "; processes that this one started may be among them: it is known once a watch has ended"
        if own < cpus.SPEAKS_OF:
            return unknown or "; nothing in this program makes them do so"
        python = load.threads >= limit("half_share") * own and not own_threads(facts).more_native
        holder = facts.busiest_other() if python else None
        at = f" in {facts.label(holder.spot)}" if holder is not None and holder.spot is not None else ""
        named = f"; of these {holder.name} holds the GIL most{at}" if holder is not None else ""
        return f"; this run's own threads and processes, beside training, use {own:.1f}{named}{unknown}"

    @staticmethod
    def _both(wants: cpus.Demand, load: cpus.Load) -> tuple[str, str, str]:
        """Title, why, fix: processes of the run, and others."""
        parts = {"workers": load.workers, "child processes": load.children, "other ranks": load.ranks}
        most = max(parts.values())
        named = {name: used for name, used in parts.items() if used and used >= most * limit("half_share")}
        title = f"the training thread waits for a CPU: its {' and '.join(named)} and other processes compete"
        counted = {"workers": plural(wants.workers, "worker")}
        used = ", ".join(f"its {counted.get(name, name)} used {used:.1f} CPUs" for name, used in named.items())
        why = f"{used}, other processes {load.others:.1f}{' or more' if load.elsewhere else ''}"
        fix = "# stop the others, or run them at another time"
        if "workers" in named and wants.workers > wants.cpus:  # fewer than CPUs, and the loop waits for its data
            fix = f"DataLoader(..., num_workers={wants.cpus})  # and stop the others"
        return title, f"{why}, of the {wants.cpus} that it may use", fix

    @staticmethod
    def _own_threads(facts: Facts, load: cpus.Load, mostly_others: bool) -> tuple[str, str, str, list[str], str]:
        """Title, why, fix, who, where."""
        own = own_threads(facts)
        holder = facts.busiest_other()
        at = f" in {facts.label(holder.spot)}" if holder is not None and holder.spot is not None else ""
        named = [holder.name] if holder is not None else []
        where = facts.where(holder.spot) if holder is not None else ""
        others = f", other processes {load.others:.1f}" if load.others >= limit("own_threads_cpus") else ""
        whose = "own native threads" if own.mostly_native else "own threads"
        compete = f"this process' {whose}{' and other processes' if others else ''} compete"
        if mostly_others:
            compete = f"other processes and this process' {whose} compete"
        title = f"the training thread waits for a CPU: {compete}"
        if own.mostly_native:
            starts = "libraries start them (OpenMP, OpenBLAS, tokenizers)"
            if facts.torch_threads == 1:
                starts += ", or torch, where set_num_threads allows it more in a part of the run"
            why = f"{own.native_text}, beside torch's{others}: {starts}"
            if at:
                why += f"; {holder.name} may do so{at}" if holder is not None else ""
            return title, why, _limit_them(facts, own.pools), named, where
        known = "; ".join(text for text in (own.python_text, own.native_text) if text)
        why = f"{known or f'own threads (beside torch) use {load.threads:.1f} CPUs'}{others}"
        if holder is None:
            return title, why, _FEWER, named, where
        work = function_name(holder.spot) if holder.spot is not None else "its work"
        why += f"; most of their Python is {holder.name}{at}: it holds the GIL {facts.share(holder.ns):.0%} of the time"
        used = next((t.cpus for t in own.python if t.name == holder.name), 0.0) * facts.run.watched_ns
        if holder.ns < limit("warn_share") * used:  # it computes without the GIL: not by polling
            return title, why, f"# start fewer of them, or move {work} to {_NICE}; or after training", named, where
        fix = f"# make {holder.name} sleep between its turns, or move {work} to {_NICE}; or after training"
        return title, why, fix, named, where

    @staticmethod
    def _fewer_threads(cpus: int, others: float) -> str:
        return f"torch.set_num_threads({max(1, cpus - math.ceil(others - 0.25))})"

    @staticmethod
    def _room(facts: Facts, cpus: int, threads: int, others: float) -> str:
        """What leaves the others' CPUs to them, as far as this machine has CPUs to divide."""
        if 1 < cpus <= threads:
            return f"{Descheduled._fewer_threads(cpus, others)}  # leaves the others their CPUs; or stop them"
        if cpus > 2:
            last = min(4, cpus - 1) - 1
            return f"# stop them, or give this run its own CPUs:\n{facts.command(f'taskset -c 0-{last}')}"
        return "# stop them, or run them at another time"


def _limit_them(facts: Facts, pools: Sequence[tuple[str, str]]) -> str:
    """How each library is told: by a variable, before the program starts, or by a call."""
    variables = [setting for _, setting in pools if "(" not in setting]
    calls = [setting for _, setting in pools if "(" in setting]
    if not pools:
        return "# limit their number: OMP_NUM_THREADS=1, and torch.set_num_threads(1)"
    names = ", ".join(library for library, _ in pools)
    lines = [f"# limit their number; imported here, with threads of their own: {names}"]
    if variables:
        lines.append(facts.command(" ".join(dict.fromkeys(variables))))
    return "\n".join([*lines, *calls])
