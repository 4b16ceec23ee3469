"""TP701 to TP707: what a trainer calls in its loop, and what Lightning does by itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from trainperf.findings import children, framework, loaders
from trainperf.findings.model import Affected, Claim, Diagnosis, Limits, Outcome, Params, Said, Saves, Sure, Unsure
from trainperf.findings.rule import rule
from trainperf.findings.text import Count, Names, Ns, Share
from trainperf.findings.thresholds import limit
from trainperf.findings.waits import Asleep, for_others

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts, Spot
    from trainperf.findings.model import Cell
    from trainperf.runfile import Frame

_ForOthers: TypeAlias = "tuple[Asleep, float]"  # and the share of the time that is such a wait
_LIMITS: Final = Limits(limit("framework_part_share"), limit("critical_share"))

# Callbacks of the frameworks' own, which nobody edits: what sets how often they work.
_OPTIONS: Final = {
    "ModelCheckpoint": "ModelCheckpoint(every_n_train_steps=..., save_top_k=...)",
    "LearningRateMonitor": 'LearningRateMonitor(logging_interval="epoch")',
}


# -- callbacks and hooks of the module


@rule("TP701", "callback", framework.CALLBACK_LIMITS, needs=("lightning_profiler",))
def callback(facts: Facts, limits: Limits) -> Outcome:
    """A callback of the framework, or a hook of the LightningModule, takes a notable part of the loop."""
    told = framework.told_hook_holders(facts)
    if not told:
        return None
    claims = framework.claims_of_all(facts, [(part, part.other_ns) for part in told])
    if facts.grade(sum(claims.values()), limits) is None:
        return None
    top = told[0]
    method = framework.method_of_users(facts, top)
    affected = _affected(facts, told, claims)
    of_top = _affected(facts, told[:1], framework.claims_of(facts, top, top.other_ns)) if told[1:] else affected
    few = 2 * of_top.steps < min(facts.steps, top.hooks[0].count)
    as_it_is = "ProgressBar" in top.name or (top.is_frameworks_own and method is None)
    waits = None if as_it_is else _waits(facts, top, claims)
    advice = _advice(facts, top, waits, few=few, inherited=method is not None)
    # A thread that runs Python takes the GIL from training.
    in_python = sum(ns for (_, m), ns in claims.items() if m == "python") / sum(claims.values())
    return Diagnosis(
        variant=advice.variant,
        claim=Claim(facts.main_cause(claims), claims),
        params={
            **facts.of_step(top.other_ns),
            **_listed(facts, told, waiting=waits is not None),
            **_hook(facts, top, method, waits, few=few),
            **(children.at_work(facts, children.waited_for_in(facts, waits[0])) if waits is not None else {}),
            **advice.params,
            "computes": in_python >= limit("half_share"),
        },
        place=top.place(facts) if method is None else facts.where(method),
        who=(*(name for p in told for name in _names(facts, p)), waits[0].who if waits is not None else ""),
        affected=affected,
        saves=Saves(share=advice.saved_ns / sum(part.other_ns for part in told)),
    )


def _hook(facts: Facts, top: framework.Part, method: Spot | None, waits: _ForOthers | None, *, few: bool) -> Params:
    """Of its costliest hook what it does, how often, and where."""
    hook = top.hooks[0]
    epochs = "epoch" in hook.name
    does: Params = {}
    if waits is not None:
        does = {"does": Said(f"does_{waits[0].kind}"), **waits[0].others(facts)}
    at: Params = {"hook_place": top.place(facts)} if method is None else {"method": facts.label(method)}
    return {
        "does": None,
        "hook_place": None,
        "method": None,
        **does,
        **at,
        "part": top.name,
        "module": top.is_module,
        "hook": hook.name,
        "waits": waits is not None,
        "few": few,
        "epochs": not few and epochs,
        "alike": not few and not epochs and hook.alike,
    }


@dataclass(frozen=True, slots=True)
class _Advice:
    variant: str
    params: Params
    saved_ns: float  # at most


def _advice(facts: Facts, top: framework.Part, waits: _ForOthers | None, *, few: bool, inherited: bool) -> _Advice:
    hook = top.hooks[0]
    if "ProgressBar" in top.name:
        return _Advice("progress_bar", {}, top.other_ns)
    if waits is not None:
        kind = waits[0].kind
        texts = {
            "wait_fix": Said(f"fix_{kind}", {"todo": Said("ask_earlier")}),
            "wait_will_not_help": Said(f"wont_{kind}"),
        }
        return _Advice("waits", texts, waits[1] * hook.other_ns)
    if inherited:
        return _Advice("method", {}, top.other_ns)
    if top.is_frameworks_own:
        option = _OPTIONS.get("ModelCheckpoint" if top.saves else top.name)
        return _Advice("frameworks" if top.of_framework else "inherited", {"option": option}, top.other_ns)
    if few:
        return _Advice("few_calls", {}, hook.other_ns)
    return _less_often(top, hook, hugging_face=bool(framework.arguments(facts.run.meta)))


def _less_often(part: framework.Part, hook: framework.Hook, *, hugging_face: bool) -> _Advice:
    """And the share of the hook's calls that are then left out."""
    if "epoch" in hook.name:
        own = "self.current_epoch" if part.is_module else "trainer.current_epoch"
        counter, unit = "round(state.epoch)" if hugging_face else own, "epochs"
    elif "batch" in hook.name or hook.name in ("on_step_begin", "on_step_end", "on_substep_end"):
        counter, unit = ("state.global_step", "steps") if hugging_face else ("batch_idx", "batches")
    elif part.is_module:
        counter, unit = "self.global_step", "steps"
    else:  # it is not given a number, or called for a reason of its own
        return _Advice("less", {}, hook.other_ns)
    every = 5 if unit == "epochs" else 50
    left = 1 - math.ceil(hook.count / every) / max(1, hook.count)  # the first call is of number 0
    if left < limit("half_share"):
        return _Advice("less", {}, hook.other_ns)
    params: Params = {"every": every, "unit": unit, "counter": counter}
    return _Advice("module_every_n" if part.is_module else "every_n", params, left * hook.other_ns)


def _listed(facts: Facts, told: Sequence[framework.Part], *, waiting: bool) -> Params:
    """Whose hooks they are, and what each took."""
    top, holders = told[0], framework.hook_holders(facts)
    more = _more_hooks(facts, top)
    others = [p for p in holders[len(told) : len(told) + 2] if facts.share(p.other_ns) >= limit("show_share")]
    also = "takes_share" if waiting else "so_does"
    return {
        **_named(facts, told),
        "hooks": (
            _calls(top.hooks[0]),
            *(_calls(h, top.place(facts, h) if top.is_module else None) for h in more),
        ),
        "also": tuple(_part(facts, p) for p in told[1:]),
        "more_hooks": tuple(
            _calls(h, p.place(facts, h)) for p in told[1:] if p.is_module for h in _more_hooks(facts, p)
        ),
        "modules": any(p.is_module for p in holders),
        "others": Names(f"{p.name} {Share(facts.share(p.other_ns)):.1%}" for p in others) or None,
        "also_said": tuple(
            Said(also, {"also_hook": f"{p.name}.{p.hooks[0].name}", "share": Share(facts.share(p.hooks[0].other_ns))})
            for p in told[1:]
        )
        or None,
        "time_in": tuple(
            Said("time_in", {"also_hook": h.name, "share": Share(h.other_ns / top.other_ns)}) for h in more
        )
        or None,
    }


def _named(facts: Facts, told: Sequence[framework.Part]) -> Params:
    """Callbacks by their names, hooks of a module each."""
    modules = sum(part.is_module for part in told)
    names = [name for part in told for name in _names(facts, part)] if modules else [part.name for part in told]
    kind = "kind_callback" if not modules else "kind_module" if modules == len(told) else "kind_hook"
    return {"kind": Said(kind), "names": Names(names), "several": len(names) > 1}


def _calls(hook: framework.Hook, place: str | None = None) -> Params:
    each = Ns(hook.other_ns / max(1, hook.count))
    return {"name": hook.name, "place": place, "count": Count(hook.count), "each": each, "longest": Ns(hook.max_ns)}


def _part(facts: Facts, part: framework.Part) -> Params:
    return {**_of_hook(facts, part, part.other_ns, part.hooks[0].other_ns), "place": part.place(facts)}


def _of_hook(facts: Facts, part: framework.Part, ns: int, of_hook_ns: int) -> Params:
    hook = part.hooks[0]
    return {
        **facts.of_step(ns),
        "part": part.name,
        "hook": hook.name,
        "count": Count(hook.count),
        "call": Ns(of_hook_ns / max(1, hook.count)),
        "longest": Ns(hook.max_ns),
    }


def _waits(facts: Facts, part: framework.Part, claims: Mapping[Cell, int]) -> _ForOthers | None:
    """Where most of its costliest hook's time is a wait for another thread: that is what to look at."""
    name, hooks, phases = part.hooks[0].name, framework.Hooks(facts), sorted({phase for phase, _ in claims})

    def in_hook(stack: Sequence[Frame]) -> bool:
        return any(f.function.rpartition(".")[2] == name and hooks.owner(f) == part for f in stack)

    seen = [d for d in facts.samples(phases=phases) if in_hook(facts.run.stack(d.stack))]
    return for_others(facts, seen, claims) if sum(d.count for d in seen) >= limit("min_samples") else None


def _more_hooks(facts: Facts, part: framework.Part) -> list[framework.Hook]:
    """Beside the costliest: of the module those that are worth a warning, of a callback the one that it has notably."""
    if part.is_module:
        return [h for h in part.hooks[1:] if facts.grade(h.other_ns, framework.CALLBACK_LIMITS) is not None]
    return [h for h in part.hooks[1:2] if h.other_ns >= limit("felt_share") * part.other_ns]


def _names(facts: Facts, part: framework.Part) -> list[str]:
    """A callback is called by one of its hooks, the module by each that is told."""
    more = _more_hooks(facts, part) if part.is_module else []
    return [f"{part.name}.{hook.name}" for hook in (part.hooks[0], *more)]


def _affected(facts: Facts, found: Sequence[framework.Part], claims: Mapping[Cell, int]) -> Affected:
    """Which steps have their costs: the few that others like them do not have, where so few of their calls can be all
    of it; or no more than nearly all of it has calls; else all."""
    ns = sum(part.other_ns for part in found)
    few = facts.affected_by_part(sum(claims.values()), cause=facts.main_cause(claims))
    longest = sum(hook.max_ns for part in found for hook in part.hooks if hook.other_ns)
    if few.steps * longest < limit("held_share") * ns:
        few = Affected(facts.steps, 1.0)
    calls = held = 0
    for hook in sorted((hook for part in found for hook in part.hooks), key=lambda hook: -hook.other_ns):
        calls, held = calls + hook.count, held + hook.other_ns
        if held >= limit("held_share") * ns:
            break
    return Affected(calls, held / ns) if calls < few.steps else few


# -- loggers


@rule("TP702", "trainer-logger", _LIMITS, needs=("lightning_profiler",))
def trainer_logger(facts: Facts, limits: Limits) -> Outcome:
    """One of the trainer's loggers takes a notable part of the loop."""
    loggers = framework.loggers(facts)
    if not loggers:
        return None
    top = loggers[0]
    felt = [top, *(p for p in loggers[1:] if p.own_ns >= limit("felt_share") * top.own_ns)]
    claims = framework.claims_of_all(facts, [(p, p.own_ns) for p in felt], "logging")
    if facts.grade(sum(claims.values()), limits) is None:
        return None
    hook = top.hooks[0]
    csv = top.name == "CSVLogger" and hook.name == "save"
    hugging_face = framework.arguments(facts.run.meta)
    return Diagnosis(
        variant="by_program" if hook.by else "hugging_face" if hugging_face else "lightning",
        claim=Claim("logging", claims),
        params={
            **_logged(facts, top),
            **_of_loggers(facts, loggers, felt),
            **_second(facts, top),
            **_often(hugging_face.get("logging_steps") if hugging_face else framework.trainer(facts).get(_LOGS_EVERY)),
            "caller": hook.by or None,
            "csv": csv,
        },
        place=top.place(facts),
        who=(*(f"{p.name}.{p.hooks[0].name}" for p in felt), hook.by),
        affected=facts.affected("logging"),
        saves=Saves(share=1.0 if csv else _set_by_options(felt)),
    )


_LOGS_EVERY: Final = "log_every_n_steps"


def _often(every: object) -> Params:
    """How often it logs, and how seldom is seldom."""
    known = every if isinstance(every, int) and every > 0 else 0
    return {
        "every": Count(known) if known else None,
        "often": Count(known) if known > 1 else None,
        "each_step": known == 1,
        "seldom": max(50, 5 * known),
    }


def _set_by_options(felt: Sequence[framework.Part]) -> float:
    """Of their cost: the trainer's options set nothing of what the program logs by itself."""
    hook = felt[0].hooks[0]
    mine = [hook] if hook.by else [h for part in felt for h in part.hooks if not h.by]
    return sum(h.own_ns for h in mine) / sum(part.own_ns for part in felt)


def _of_loggers(facts: Facts, loggers: Sequence[framework.Part], felt: Sequence[framework.Part]) -> Params:
    others = loggers[len(felt) : len(felt) + 2]
    return {
        "kind": Said("kind_callback" if {p.kind for p in felt} == {"callback"} else "kind_logger"),
        "names": Names(p.name for p in felt),
        "several": len(felt) > 1,
        "also": tuple(_logged(facts, p) for p in felt[1:]),
        "others": Names(f"{p.name} {Share(facts.share(p.own_ns)):.1%}" for p in others) or None,
    }


def _second(facts: Facts, top: framework.Part) -> Params:
    """Beside its costliest hook one that it has notably."""
    second = next((h for h in top.hooks[1:] if h.own_ns >= limit("felt_share") * top.own_ns), None)
    if second is None:
        return {"second": None, "second_share": None}
    called = Said("called", {"hook": second.name, "by": _by(facts, second)})
    return {"second": called, "second_share": Share(second.own_ns / top.own_ns)}


def _logged(facts: Facts, part: framework.Part) -> Params:
    hook = part.hooks[0]
    return {**_of_hook(facts, part, part.own_ns, hook.own_ns), "by": _by(facts, hook)}


def _by(facts: Facts, hook: framework.Hook) -> str | None:
    return framework.called_by(facts, hook) if hook.by else None


@rule("TP707", "lightning-log", framework.LOG_LIMITS, needs=("gil_holds",))
def lightning_log(facts: Facts, limits: Limits) -> Outcome:
    """The calls of Lightning's self.log take a notable part of the step."""
    calls, severity = framework.log_calls(facts)
    if severity is None:
        return None
    spots = facts.spots(calls.details)
    return Diagnosis(
        variant="log_calls",
        severity=severity,
        claim=Claim(facts.main_cause(calls.claims), calls.claims),
        params={"place": facts.label(spots[0]), "spots": facts.rows(spots, 3, limit("warn_share"))},
        place=facts.where(spots[0]),
        sure=Sure(calls.samples),
    )


# -- what Lightning does by itself


@rule("TP704", "lightning-monitor", _LIMITS, needs=("lightning_profiler",))
def lightning_monitor(facts: Facts, limits: Limits) -> Outcome:
    """A callback that measures the training slows it down: ThroughputMonitor, DeviceStatsMonitor."""
    found = [p for p in framework.parts(facts, "callback") if framework.is_monitor(p) and p.other_ns]
    found = [p for p in found if p.other_ns >= limit("felt_share") * found[0].other_ns]
    claims = framework.claims_of_all(facts, [(p, p.other_ns) for p in found])
    if not found or facts.grade(sum(claims.values()), limits) is None:
        return None
    rows = tuple({**_part(facts, p), "name": p.name} for p in found)
    return Diagnosis(
        variant="monitors",
        claim=Claim(facts.main_cause(claims), claims),
        params={
            "names": Names(p.name for p in found),
            "several": len(found) > 1,
            "calls": Names(f"{p.name}()" for p in found),
            "does": tuple(Said(f"monitor_{p.name}") for p in found),
            "monitors": rows,
            "waits": any(p.name == "ThroughputMonitor" for p in found),
        },
        who=tuple(f"{p.name}.{p.hooks[0].name}" for p in found),
    )


def _chore(facts: Facts, name: str) -> framework.Part | None:
    """What Lightning does at each batch, as our integration calls it."""
    return next((p for p in framework.parts(facts, "lightning") if p.name == name), None)


@rule("TP703", "lightning-progress-bar", _LIMITS, needs=("lightning_progress_bar_metrics",))
def lightning_progress_bar(facts: Facts, limits: Limits) -> Outcome:
    """Metrics logged with prog_bar=True make the host read them, and wait for the device, at every batch."""
    settings, part = framework.trainer(facts), _chore(facts, framework.METRICS)
    names = settings.get("progress_bar_metrics")
    if not settings or part is None:
        return None
    if not isinstance(names, list):
        return Unsure("bar_metrics_unknown")
    if not names or facts.run.meta.get("feeds_device") != "1":
        return None  # without a device a value is there when it is asked for
    claims = framework.claims_of(facts, part, part.other_ns)
    if facts.grade(sum(claims.values()), limits) is None:
        return None
    return Diagnosis(
        variant="read",
        claim=Claim(facts.main_cause(claims), claims),
        params={
            "metrics": Count(len(names)),
            "names": Names(str(name).rpartition(".")[2] for name in names[:3]),
            "dots": "..." if len(names) > 3 else None,
            "each": Ns(part.other_ns / max(1, part.hooks[0].count)),
        },
    )


@rule("TP706", "lightning-sigterm", _LIMITS, needs=("lightning_sigterm_broadcast",))
def lightning_sigterm(facts: Facts, limits: Limits) -> Outcome:
    """Lightning asks all ranks, before every batch, whether one got SIGTERM."""
    part = _chore(facts, framework.SIGTERM)
    claims = framework.claims_of(facts, part, part.other_ns) if part is not None else {}
    if part is None or facts.grade(sum(claims.values()), limits) is None:
        return None
    count = max(1, part.hooks[0].count)
    return Diagnosis(
        variant="broadcast",
        claim=Claim(facts.main_cause(claims), claims),
        params={
            "count": Count(count),
            "each": Ns(part.other_ns / count),
            "longest": Ns(part.hooks[0].max_ns),
            "version": str(framework.trainer(facts).get("version", "")),
        },
    )


@rule("TP705", "validation-workers", _LIMITS, needs=("hook_dataloader",))
def validation_workers(facts: Facts, limits: Limits) -> Outcome:
    """The validation loader's workers start anew at each validation."""
    mine = {k: v for k, v in facts.run.loaders.items() if loaders.only_validates(v) and loaders.num_workers(v) > 0}
    starts = [s for s in facts.run.spans("loader_start") if s.object in mine and s.step >= 0]
    spans = [*starts, *(s for s in facts.run.spans("first_fetch") if s.object in mine and s.step >= 0)]
    if len({s.step for s in starts}) < 2:
        return None  # one start is no habit
    lost = sum(s.end_ns - s.start_ns for s in spans)
    claims = loaders.spread(facts.cells("validation"), lost)
    if facts.grade(sum(claims.values()), limits) is None:
        return None
    main = max(mine.values(), key=lambda v: sum(s.end_ns - s.start_ns for s in spans if s.object == v.id))
    if main.description.get("persistent_workers"):
        return None
    workers = Count(loaders.num_workers(main))
    return Diagnosis(
        variant="restarts",
        claim=Claim("validation", claims, by_device=False),
        params={"starts": Count(len(starts)), "workers": workers, "each": Ns(lost / len(starts))},
        place=loaders.dataset_place(main, facts),
        who=(facts.step_thread_name, Said("worker_processes", {"workers": workers})),
        affected=len({s.step for s in starts}),
    )
