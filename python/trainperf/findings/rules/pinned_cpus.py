"""TP604: threads and workers wait for a CPU, as the process' affinity leaves CPUs of the machine unused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from trainperf.findings import cpu_room, cpus, frames, loaders
from trainperf.findings.facts import plural
from trainperf.findings.model import Cell, Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.cpu_room import Narrowed
    from trainperf.findings.facts import Facts


class PinnedCpus:
    id = "TP604"
    slug = "pinned-cpus"
    limits = Limits(limit("descheduled_warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ()

    def check(self, facts: Facts) -> Outcome:
        narrow = cpu_room.narrowed(facts.run)
        if narrow is None or facts.off("run_delay") is not None:
            return None
        wants, load = cpus.demand(facts), cpus.load_in_waits(facts)
        # On a busy machine too it is what narrowed them that threads and workers of the run share fewer CPUs.
        shares = narrow.during and wants.wanted > len(narrow.cpus)
        if _idle_cpus(facts) < limit("free_cpus") and not shares:
            return None
        # Of one that was started so, TP602 and TP307 know why its threads wait, unless that is not clear.
        started_so = not narrow.during and not _settings(facts)
        if started_so and cpus.whose(wants, load) != "unclear":
            return None
        waits = facts.waits_for_cpu()
        claims = {**waits, **_of_workers(facts, narrow)}
        cost, waited = sum(claims.values()), sum(waits.values())
        severity = facts.grade(cost, self.limits, machine=True)
        # Our threads take CPU too, and where CPUs are short that is what the training thread waits for.
        if severity is None or cost < facts.own_cpu_ns:
            return None
        have = len(narrow.cpus)
        for_data = cost - waited
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="descheduled" if waited >= for_data else "data_wait",
            claims=claims,
            title=f"CPU affinity limits this process to {have} of {narrow.possible} CPUs, and it waits for them",
            affected=facts.affected("descheduled") if waited >= for_data else facts.affected("data_wait"),
            confidence=facts.confidence(),
            evidence=(
                f"{facts.of_step(waited)} the training thread is ready and waits for a CPU" if waited else "",
                f"{facts.of_step(for_data)} it waits for workers that share these CPUs" if for_data else "",
                f"allowed CPUs: {_text(narrow.cpus)}; {_idle_cpus(facts):.1f} CPUs of the machine are idle on average",
                f"{plural(wants.workers, 'worker')} inherited the affinity"
                if wants.workers and narrow.workers_too
                else "",
                load.text,
            ),
            who=(facts.step_thread_name,),
            where=f"{_file(facts, narrow.call.file)}:{narrow.call.line}" if narrow.call is not None else "",
            why=_why(facts, narrow),
            fix=_fix(facts, narrow),
            will_not_help="more threads or workers: they get the same CPUs",
            saves_more=wants.threads > have,
        )


def _of_workers(facts: Facts, narrow: Narrowed) -> dict[Cell, int]:
    """Waits for data, where workers are on the same CPUs, and these are full."""
    used = cpus.load(facts)
    workers = any(loaders.num_workers(v) for v in facts.run.loaders.values())
    full = used.known and used.own + used.workers >= limit("full_cpus") * len(narrow.cpus)
    if not (workers and narrow.workers_too and full):
        return {}
    return {cell: left for cell in facts.cells("data_wait") if (left := facts.ledger.left(cell)) > 0}


def _idle_cpus(facts: Facts) -> float:
    """Of the machine, on average while it was watched."""
    host = facts.run.host
    wall = host[-1].at_ns - host[0].at_ns if len(host) >= 2 else 0
    return (host[-1].machine_idle_ns - host[0].machine_idle_ns) / wall if wall > 0 else 0.0


def _why(facts: Facts, narrow: Narrowed) -> str:
    have = plural(len(narrow.cpus), "CPU")
    settings = _settings(facts)
    if narrow.call is not None:
        at = f"{narrow.call.function} ({_file(facts, narrow.call.file)}:{narrow.call.line})"
        return f"{at} called os.sched_setaffinity{_when(facts, narrow)}: {have} left"
    if narrow.during:
        by = f"; {settings} is set" if settings else ", or another process"
        return f"the affinity was narrowed to {have}{_when(facts, narrow)}: by a native library{by}"
    by = f"{settings} is set" if settings else "by taskset, numactl, a job scheduler, or a library imported before"
    return f"the affinity was {have} when the watch began: {by}"


def _when(facts: Facts, narrow: Narrowed) -> str:
    steps = cpu_room.steps_before(facts.run, narrow.at_ns)
    return f" during step {steps:,}" if steps else " before the first step"


def _fix(facts: Facts, narrow: Narrowed) -> str:
    widen = "os.sched_setaffinity(0, range(os.cpu_count()))"
    workers = ", before the DataLoader starts its workers" if narrow.workers_too and facts.run.loaders else ""
    if narrow.call is not None:
        at = f"{_file(facts, narrow.call.file)}:{narrow.call.line}"
        return f"# remove the call at {at}, or undo it right after{workers}:\n{widen}"
    settings = _settings(facts)
    if settings:
        names = " ".join(f"-u {name.partition('=')[0]}" for name in settings.split(", "))
        return f"{facts.command(f'env {names}')}  # or, after the imports:\n{widen}"
    if narrow.during:
        return f"# after the imports{workers}:\n{widen}"
    return f"# start it with more CPUs (taskset -c, numactl, --cpus-per-task), or at its start:\n{widen}"


def _settings(facts: Facts) -> str:
    """Variables with which OpenMP libraries pin threads: "OMP_PROC_BIND=close"."""
    try:
        found = json.loads(facts.run.meta.get("affinity_settings", "{}"))
    except ValueError:
        return ""
    return ", ".join(f"{name}={value}" for name, value in found.items()) if isinstance(found, dict) else ""


def _file(facts: Facts, file: str) -> str:
    return frames.short_path(file, facts.base)


def _text(numbers: frozenset[int]) -> str:
    some = ", ".join(map(str, sorted(numbers)[:8]))
    return f"{some}, ..." if len(numbers) > 8 else some
