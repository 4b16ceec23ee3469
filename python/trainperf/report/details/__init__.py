"""What a report shows beyond the verdict, worked out once from a run: a file per panel; no markup."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainperf.findings.facts import Facts
from trainperf.report.details import bins, children, devices, distribution, flames, gil, host, loader, trend, worst

if TYPE_CHECKING:
    from trainperf.ranks import Ranks
    from trainperf.report.model import ReportModel
    from trainperf.run import Run


@dataclass(frozen=True, slots=True)
class Details:
    """Panels; None (or empty) where the run has nothing of the kind."""

    bins: bins.Bins | None
    trend: trend.Trend
    distribution: distribution.Distribution | None
    worst: tuple[worst.WorstStep, ...]
    gil: gil.Gil
    loaders: tuple[loader.LoaderPanel, ...]
    loaders_left_out: int
    children: tuple[children.GroupRow, ...]
    children_left_out: int  # kinds of them
    devices: devices.Devices | None
    host: host.Host
    stacks: flames.Flame | None
    holders: flames.Flame | None
    ranks: Ranks | None  # of the same job
    script: str
    from_trace: bool  # of another profiler, rather than watched
    overhead: tuple[tuple[str, int], ...]  # place, ns
    abstained: tuple[tuple[str, tuple[str, ...]], ...]  # why, and the rules that could not look because of it


def build(run: Run, model: ReportModel, *, ranks: Ranks | None = None) -> Details:
    facts = Facts(run)
    panels, left_out = loader.loader_panels(run, facts)
    child_rows, kinds_left_out = children.child_rows(facts)
    return Details(
        bins=bins.bins(run),
        trend=trend.trend(run),
        distribution=distribution.distribution(run) if run.step_count else None,
        worst=worst.worst_steps(run, facts, model.median_ms),
        gil=gil.gil(run, facts),
        loaders=panels,
        loaders_left_out=left_out,
        children=child_rows,
        children_left_out=kinds_left_out,
        devices=devices.devices(run, facts),
        host=host.host(run),
        stacks=flames.step_thread(run, facts),
        holders=flames.gil_holders(run, facts),
        ranks=ranks,
        script=_script(run),
        from_trace=run.meta.get("source") == "trace",
        abstained=_by_reason(model),
        overhead=tuple(sorted(run.overhead_ns.items(), key=lambda o: -o[1])),
    )


def _by_reason(model: ReportModel) -> tuple[tuple[str, tuple[str, ...]], ...]:
    reasons: dict[str, list[str]] = {}
    for a in sorted(model.abstained, key=lambda a: a.id):
        reasons.setdefault(a.why, []).append(f"{a.id} {a.slug}")
    return tuple((why, tuple(rules)) for why, rules in reasons.items())


def _script(run: Run) -> str:
    """ "train.py --epochs 3"."""
    if run.is_notebook:
        return "a notebook"  # its arguments are the kernel's
    return " ".join([run.script, *run.argv[1:]]) if run.script else ""
