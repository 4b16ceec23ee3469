"""The report as one HTML file: no network, every chart drawn beforehand, no script needed to read it.

page = render(run)
write(page, "a.html")
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from trainperf.output import replacing
from trainperf.report import charts, details
from trainperf.report import json as as_json
from trainperf.report.model import COMPUTE, LOOKS_LESS, SAMPLES_LESS, build, phase_words
from trainperf.report.sharing import homeless, host_number, hostless
from trainperf.report.svg import palette
from trainperf.report.svg.base import duration, num, script_safe, short
from trainperf.report.tiers import is_amiss

if TYPE_CHECKING:
    from jinja2 import Environment

    from trainperf.findings.model import Finding
    from trainperf.ranks import Ranks
    from trainperf.run import Run

_LONGEST_LINE = 300
_MOST_LINES = 40

_PLACES = {
    "collector": "our collecting thread",
    "sampler": "our sampling thread",
    "marks": "marks, on your threads",
    "gil_hook": "timing of GIL waits, on your threads",
}


def render(
    run: Run,
    *,
    notes: Sequence[str] = (),
    ranks: Ranks | None = None,
    embedded: bool = False,
) -> str:
    """The page as text.

    Args:
        notes: to be shown before the run's own.
        ranks: all ranks of the job; the page is about `run`, one of them.
        embedded: within a notebook: without what belongs to a page of its own.

    Raises RunFileError when the file turns out to be damaged.
    """
    model = build(run, notes=notes, standing=ranks.standing(run) if ranks is not None else "")
    found = details.build(run, model, ranks=ranks)
    top = next((f for f in model.findings if f.id == model.verdict.finding), None)
    page: str = (
        environment()
        .get_template("report.html")
        .render(
            m=model,
            d=found,
            top=top,
            beside=next((f for f in model.findings if f.id == model.verdict.look), None),
            meta=run.meta,
            embedded=embedded,
            host_number=_host_numbers(ranks),
            policy=_policy(),
            script=_script() if found.stacks or found.holders else "",
            definitions=Markup(palette.definitions()),
            data=Markup(script_safe(hostless(as_json.to_dict(model, ranks=ranks)))),
            timeline=charts.step_timeline(found, model),
            histogram=charts.histogram(found.distribution) if found.distribution else None,
            amiss=_amiss(model.tiers),
            host_known=bool(not found.from_trace or found.host.readings or run.meta.get("platform")),
        )
    )
    return homeless(page, [run.meta])


def _host_numbers(ranks: Ranks | None) -> Callable[[str], str]:
    hosts = list(dict.fromkeys(rank.host for rank in ranks.ranks)) if ranks is not None else []
    return lambda host: host_number(host, hosts)


def write(
    page: str, path: str | os.PathLike[str], *, overwrite: bool = False, inputs: Iterable[str | os.PathLike[str]] = ()
) -> str:
    """Writes the page, all or nothing, and gives its path. Raises FileExistsError when there is one already.

    `inputs`: the files that it was made of, which it never replaces.
    """
    target = os.fspath(path)
    with (
        replacing(target, overwrite=overwrite, inputs=inputs, suffix=".html") as made,
        open(made, "w", encoding="utf-8", errors="replace") as file,
    ):
        file.write(page)
    return target


def _amiss(tiers: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """Probes that are less than they could be, by what they are; why is told once, below."""
    found: dict[str, list[str]] = {}
    for probe, text in sorted(tiers.items()):
        if is_amiss(probe, text):
            found.setdefault(text.partition(":")[0], []).append(probe)
    return sorted(found.items())


@lru_cache(maxsize=1)
def _script() -> Markup:
    """The one script of the page; without what only its readers here need."""
    text = environment().get_template("flame.js").render()
    return Markup("\n".join(line.strip() for line in text.splitlines() if line.strip()))


@lru_cache(maxsize=1)
def _policy() -> str:
    """What the page may do: nothing comes from elsewhere, and no script but ours runs, whatever a run's names hold."""
    digest = base64.b64encode(hashlib.sha256(_script().encode()).digest()).decode()
    nothing = "default-src 'none'; base-uri 'none'; form-action 'none'"
    return f"{nothing}; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


@lru_cache(maxsize=1)
def environment() -> Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("trainperf.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        duration=duration,
        num=num,
        short=short,
        percent=_percent,
        count=lambda n: f"{n:,}",
        code=_code,
        swatch=lambda look: Markup(palette.swatch(look)),
        size=_size,
    )
    environment.globals.update(
        {name: _marked(getattr(charts, name)) for name in _CHARTS},
        computes=COMPUTE,
        legend=charts.legend,
        timeline_table=charts.timeline_table,
        worst_lanes=charts.worst_lanes,
        longest_rank=charts.longest_rank,
        look=palette.look,
        phase_words=phase_words,
        phase_look=lambda name: palette.PHASE_LOOKS.get(name, palette.OTHERS),
        phase_sums=charts.phase_sums,
        calm=(LOOKS_LESS, SAMPLES_LESS),
        reasons=("warm-up", "validation", "checkpoint", "the loader started", "events were dropped"),
        places=_PLACES,
        gpu_idles=_gpu_idles,
    )
    return environment


_CHARTS = (
    *(
        "mean_step",
        "mean_phases",
        "worst_step",
        "worst_bar",
        "device_bar",
        "ready_bars",
        "fetch_bar",
        "rank_bar",
        "flame_graph",
    ),
    "sparkline",
    "cpu_lane",
)


def _marked(chart: Any) -> Any:
    def drawn(*args: Any) -> Markup:
        return Markup(chart(*args))

    return drawn


def _percent(share: float) -> str:
    """ "57%", "0.4%", "under 0.01%"."""
    if 0 < share < 0.0001:
        return "under 0.01%"
    return f"{share:.0%}" if share >= 0.1 or share == 0 else f"{num(100 * share, 1 if share >= 0.01 else 2)}%"


def _gpu_idles(finding: Finding) -> bool:
    """Whether its cost is the device's idle time: less than what the mean step shows of its cause."""
    return finding.by_device and bool(finding.idle_ns) and finding.idle_ns == finding.cost_ns


def _code(text: str) -> str:
    """Lines to paste, each as it is unless it is endless."""
    return "\n".join(short(line, _LONGEST_LINE) for line in text.splitlines()[:_MOST_LINES])


def _size(n: float) -> str:
    from trainperf.findings.text import size

    return size(n)
