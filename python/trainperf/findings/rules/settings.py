"""Settings that make a training slow, or end it: each a row that says when it is wrong here and what it costs.

A price comes from this run: it is the cost of a finding, or that of samples that show the setting at work. Where
neither is there the price is not known, which is never the same as none."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from trainperf.findings import frames, framework, gpu, loaders
from trainperf.findings.frames import FrameLike, calls_module
from trainperf.findings.messages import TEXTS, words
from trainperf.findings.model import (
    Abstained,
    Cell,
    Claim,
    Diagnosis,
    Finding,
    Limits,
    Outcome,
    Params,
    Said,
    Saves,
    Saving,
    Severity,
    Sure,
    Unsure,
)
from trainperf.findings.places import NOTHING, Part, total
from trainperf.findings.rule import PURE_LOSS, WARNS, rule
from trainperf.findings.rules.growth import heap_churn
from trainperf.findings.text import Bytes, Count, Names, Ns, Share
from trainperf.findings.thresholds import limit
from trainperf.runfile.schema import described

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts

State = Literal["costs", "unpriced", "risk", "fine", "not seen"]

Stack = Sequence[FrameLike]

_SLOW_ISA: Final = re.compile(r"default|sse|compatible", re.IGNORECASE)
_DRIVERS_OF_THEIR_OWN: Final = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")  # "powersave" holds no clock down


@dataclass(frozen=True, slots=True)
class Seen:
    wrong: bool | None  # None: its finding alone tells
    params: Params = field(default_factory=dict)


if TYPE_CHECKING:
    Look = Callable[[Facts], Seen | None]  # None: this run does not tell


@dataclass(frozen=True, slots=True)
class Slowed:
    """What alone a setting can slow down, and by which text."""

    ns: Callable[[Facts], int]  # of the whole run; 0: not known
    why: str
    saving: Saving = "up to"


@dataclass(frozen=True, slots=True)
class Setting:
    """`setting_<id>`, `setting_<id>_why` (no price, or what it risks) and `setting_<id>_fix` are its texts."""

    id: str
    look: Look
    findings: tuple[str, ...] = ()  # whose cost is its price: "TP311", or one variant, "TP313.tracer"
    shows: Callable[[Facts], Callable[[Stack], bool]] | None = None  # stacks that show it at work
    slows: Slowed | None = None  # where no sample shows it: its price is that at most
    change: Callable[[Params], str] | None = None  # with which `trainperf try` measures what it costs
    risk: bool = False  # it costs no time, and may end the run

    def price(self, facts: Facts) -> Part | None:
        """At least; None: too few samples."""
        if self.shows is None:
            return None
        cost = _cost_of(facts, self.shows(facts))
        return cost if cost.samples >= limit("min_samples") else None

    def told_by(self, finding: Finding) -> bool:
        """Not by one whose cost no fix saves, as it is paid once: that makes no setting wrong."""
        named = any(name in (finding.id, f"{finding.id}.{finding.variant}") for name in self.findings)
        return named and not (finding.cost_ns and not finding.fix_share)


@dataclass(frozen=True, slots=True)
class Checked:
    id: str
    name: str  # as people write it
    state: State
    cost_ns: int | None = None  # of the whole run, what the fix saves; None: not known, or none
    cost_is: Saving = "up to"
    finding: str = ""  # the id of that which reports it
    why: str = ""  # why it has no price or only a bound, what it risks, or why it was not seen
    fix: str = ""
    prove: str = ""  # the command that measures what it costs; "": none does


def check(facts: Facts, findings: Sequence[Finding], abstained: Sequence[Abstained]) -> tuple[Checked, ...]:
    """The state of each setting in a run, in the table's order, by what the rules said of that run."""
    return tuple(_checked(facts, findings, abstained, row) for row in TABLE)


def _checked(facts: Facts, findings: Sequence[Finding], abstained: Sequence[Abstained], row: Setting) -> Checked:
    name, seen = TEXTS[f"setting_{row.id}"], row.look(facts)
    teller = next((f for f in findings if row.told_by(f)), None)
    if teller is not None:
        cost_ns = round(teller.cost_ns * teller.fix_share)
        if cost_ns:
            return Checked(row.id, name, "costs", cost_ns, teller.saving, teller.id, teller.why, teller.fix)
        return _by_itself(facts, row, seen, teller)
    unsure = next((a.why for a in abstained if a.id in row.findings), "")
    if seen is None or (seen.wrong is None and unsure):
        return Checked(row.id, name, "not seen", why=unsure if seen is not None else TEXTS[_unseen(facts, row)])
    return _by_itself(facts, row, seen) if seen.wrong else Checked(row.id, name, "fine")


def _by_itself(facts: Facts, row: Setting, seen: Seen | None, teller: Finding | None = None) -> Checked:
    """One that is wrong, by what the run shows of it where no finding has its cost."""
    params = seen.params if seen is not None else {}

    def text(part: str) -> str:
        return words(facts, TEXTS.get(f"setting_{row.id}{part}", ""), params)

    prove = _tried(facts, row.change(params)) if row.change is not None and not facts.run.is_notebook else ""
    told, why, fix = ("", "", text("_fix")) if teller is None else (teller.id, teller.why, teller.fix)
    found = Checked(row.id, text(""), "costs", finding=told, fix=fix)
    cost = row.price(facts) if facts.steps else None
    if cost is not None:
        return replace(found, cost_ns=cost.ns, cost_is="at least")
    most_ns = row.slows.ns(facts) if row.slows is not None and facts.steps else 0
    if row.slows is not None and most_ns:
        slows = row.slows
        return replace(found, cost_ns=most_ns, cost_is=slows.saving, why=TEXTS[slows.why], prove=prove)
    return replace(found, state="risk" if row.risk else "unpriced", why=text("_why") or why, prove=prove)


def _tried(facts: Facts, change: str) -> str:
    prefix, run = words(facts, TEXTS["setting_try"], {"change": shlex.quote(change)}), facts.run
    if "trainperf" in run.command[:3] and run.script.endswith(".py") and run.script != "__main__.py":
        return f"{prefix} python {shlex.join(run.argv)}"  # not `trainperf run` and its options
    return facts.command(prefix)


def _unseen(facts: Facts, row: Setting) -> str:
    """Why this run does not tell."""
    if facts.of_trace:
        return "setting_unseen_in_traces"
    key = f"setting_{row.id}_unseen"
    return key if key in TEXTS and "process_settings" in facts.run.meta else "setting_unseen"


# -- what a run tells


def recorded(facts: Facts) -> Mapping[str, Any]:
    """What the watch read as it ended; {} of older run files."""
    return described(facts.run.meta, "process_settings")


def _of(name: str, wrong: Callable[[Any], bool], params: Callable[[Any], Params] = lambda _: {}) -> Look:
    def look(facts: Facts) -> Seen | None:
        value = recorded(facts).get(name)
        try:
            return None if value is None else Seen(wrong(value), params(value) if wrong(value) else {})
        except (TypeError, ValueError, AttributeError, LookupError):  # of a damaged file
            return None

    return look


def _percent(key: str, least: str) -> Look:
    """For how much of the time it was on, as looks of the watch have it."""

    def look(facts: Facts) -> Seen | None:
        if facts.of_trace or "torch" not in facts.run.meta:
            return None
        percent = facts.number(key)
        return Seen(percent >= 100 * limit(least), {"percent": f"{percent:.0f}"})

    return look


def _if(there: Callable[[Facts], object]) -> Look:
    return lambda facts: Seen(None) if there(facts) else None


def _torchs_optimizer(facts: Facts) -> bool:
    """Of a class of the user's own it is not known what its options do."""
    return any(
        kind == "optimizer" and str(described.get("module", "")).startswith("torch.optim.")
        for kind, described in facts.run.objects.values()
    )


def _blocking(facts: Facts) -> Seen | None:
    if not facts.run.feeds_device or facts.of_trace:
        return None
    return Seen(facts.run.meta.get("launch_blocking") == "1")


def _unset(params: Params) -> str:
    """Variables that are set as in "A=1, B=2"."""
    names = params.get("names")
    return ",".join(f"{name.partition('=')[0]}=" for name in names) if isinstance(names, Names) else ""


def _shared_memory(facts: Facts) -> Seen | None:
    read = recorded(facts).get("shared_memory")
    if not isinstance(read, list) or len(read) != 2 or not all(isinstance(n, int) for n in read):
        return None
    free, size = read
    if not any(map(loaders.num_workers, facts.run.loaders.values())):
        return Seen(False)
    wrong = size <= limit("shm_bytes") or free < limit("shm_free_share") * size
    return Seen(wrong, {"free": Bytes(free), "size": Bytes(size)})


def _descriptors(facts: Facts) -> Seen | None:
    read = recorded(facts).get("descriptors")
    if not isinstance(read, list) or len(read) != 2 or not all(isinstance(n, int) for n in read):
        return None
    opened, most = read
    by_descriptor = recorded(facts).get("sharing") == "file_descriptor"
    return Seen(
        0 < most < opened / limit("descriptors_share"),
        {"opened": Count(opened), "most": Count(most), "by_descriptor": by_descriptor},
    )


def _tokenizers(facts: Facts) -> Seen | None:
    chosen = recorded(facts).get("tokenizers_parallelism")
    if chosen is None:
        return None
    forks = any(
        loaders.num_workers(v) and v.description.get("multiprocessing_context") == "fork"
        for v in facts.run.loaders.values()
    )
    return Seen(not chosen and forks)


def _denormals(facts: Facts) -> Seen | None:
    return None if (found := Denormals.read(facts)) is None else Seen(found.slow)


def _malloc(facts: Facts) -> Seen | None:
    """Where a finding names the code that takes the memory, TP603 has none of its time left to tell."""
    if facts.run.feeds_device or facts.of_trace:
        return None
    found = facts.once(heap_churn.check)
    if isinstance(found, Unsure):
        return Seen(None)
    return Seen(found is not None, found.params if found is not None else {})


# -- what a setting can slow down


def _python_ns(facts: Facts) -> int:
    """All that Python takes: its code, collections, waits for the GIL, and for workers, which run it too."""
    if facts.off("gil_holds") is not None:
        return 0
    workers = any(map(loaders.num_workers, facts.run.loaders.values()))
    mechanisms = ("python", "gc", "gil_wait", "object_lock")
    return sum(
        ns for (phase, how), ns in facts.matrix.items() if how in mechanisms or (workers and (phase, how) == _AWAITED)
    )


def _clocks_read(facts: Facts) -> bool:
    read = facts.run.machine.get(f"gpu_sm_mhz:{facts.gpu.device.id}") if facts.gpu is not None else None
    return read is not None and len(read) >= limit("clock_readings")


def _clocks_ns(facts: Facts) -> int:
    """What a device's work took longer at the clocks that it had, if all of it grows with the clock."""
    clocks = gpu.clocks(facts.run, facts.gpu.device.id) if facts.gpu is not None else None
    return round(facts.gpu.busy_ns * clocks.lost) if facts.gpu is not None and clocks is not None else 0


_AWAITED: Final = ("fetch", "blocked")
_PYTHON: Final = Slowed(_python_ns, "setting_slows_python")
_COLLECTIONS: Final = Slowed(
    lambda facts: sum(ns for (_, how), ns in facts.matrix.items() if how == "gc"), "setting_slows_collections"
)


def _pages_ns(facts: Facts) -> int:
    found = facts.once(heap_churn.check)
    return sum(found.claim.cells.values()) if isinstance(found, Diagnosis) else 0


_PAGES: Final = Slowed(_pages_ns, "setting_slows_pages", "about")
_KERNELS: Final = Slowed(_clocks_ns, "setting_slows_kernels")


# -- stacks that show a setting at work


def _cost_of(facts: Facts, shows: Callable[[Stack], bool]) -> Part:
    """The exact time that the samples of some stacks stand for."""
    cells = [cell for cell, ns in facts.matrix.items() if ns > 0 and cell[1] in ("python", "native", "blocked")]
    return facts.part_of(cells, lambda d: shows(facts.run.stack(d.stack)))


_NAMES: Final = {
    "gradcheck": re.compile(r"[/\\]torch[/\\]autograd[/\\]gradcheck\.py$"),
    "data_parallel": re.compile(r"[/\\]torch[/\\]nn[/\\]parallel[/\\]data_parallel\.py$"),
    "logging": re.compile(r"[/\\](logging[/\\]__init__|torch[/\\]_logging[/\\]_internal)\.py$"),
    "compiler": re.compile(r"[/\\]torch[/\\]_(dynamo|inductor|functorch|logging)[/\\]"),
}


def _in(name: str, stack: Stack) -> bool:
    return any(_NAMES[name].search(f.file) for f in stack)


def _of_zeroing(facts: Facts) -> Callable[[Stack], bool]:
    """zero_grad(set_to_none=False): at the lines of PyTorch's own that True does not come to."""
    places = {
        (file, function, line)
        for file, functions in described(facts.run.meta, "zeroing_lines").items()
        if isinstance(functions, dict)
        for function, lines in functions.items()
        if isinstance(lines, list)
        for line in lines
        if isinstance(line, int)
    }
    return lambda stack: any((f.file, f.function, f.line) in places for f in stack)


def _of_data_parallel(facts: Facts) -> Callable[[Stack], bool]:
    """What DataParallel does around the model: it copies it, scatters the batch and gathers the results."""

    def around_model(stack: Stack) -> bool:
        own = next((i for i, f in enumerate(stack) if _NAMES["data_parallel"].search(f.file)), None)
        return own is not None and not any(map(calls_module, stack[:own]))

    return around_model


def _of_gradcheck(facts: Facts) -> Callable[[Stack], bool]:
    return lambda stack: _in("gradcheck", stack)


def _if_sampled(shows: Callable[[Facts], Callable[[Stack], bool]], key: str = "torch") -> Look:
    """Wrong where samples show it."""

    def look(facts: Facts) -> Seen | None:
        if facts.off("stacks") is not None or key not in facts.run.meta:
            return None
        at_work = shows(facts)
        return Seen(any(at_work(facts.run.stack(d.stack)) for d in facts.samples(states=("python", "native"))))

    return look


# -- denormals: what looks of the watch found (hooks/denormals.py)


@dataclass(frozen=True, slots=True)
class Denormals:
    forward: float  # of modules' the share that would be saved
    backward: float
    optimizers: float  # likewise of optimizers' steps, at most
    optimizer_ns: float  # of a step; by so much fewer multiplications would take
    seen: Mapping[str, Mapping[str, float]]  # of the model and the optimizer: whose, and their share of its elements

    @classmethod
    def read(cls, facts: Facts) -> Denormals | None:
        """None: no CPU tensors were looked at."""
        found = described(facts.run.meta, "denormals")
        try:
            of = {"backward": found["forward"], **found}
            saved = [float(of[key]) for key in ("forward", "backward", "optimizer", "optimizer_ns")]
            seen = {part: {w: float(s) for w, s in found["seen"][part].items()} for part in ("model", "optimizer")}
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):  # none, or of a damaged file
            return None
        shares = (*saved[:3], *seen["model"].values(), *seen["optimizer"].values())
        if not all(0 <= share <= 1 for share in shares) or not saved[3] >= 0:
            return None
        return cls(saved[0], saved[1], saved[2], saved[3], seen)

    @property
    def slow(self) -> bool:
        parts = (("model", max(self.forward, self.backward)), ("optimizer", self.optimizers))
        return any(self.seen[part] and saved >= limit("rare_warn_share") for part, saved in parts)

    def saves(self, facts: Facts) -> dict[Cell, int]:
        """By layers in forward and in backward; by optimizers."""
        on_cpu = {p: [(p, "native"), (p, "python")] for p in ("forward", "backward", "optimizer")}
        cpu = {p: sum(facts.matrix[cell] for cell in cells) for p, cells in on_cpu.items()}
        if total(facts.samples(phases=["forward"], states=["native", "python"])) >= limit("min_samples"):
            in_modules = facts.part_of(on_cpu["forward"], lambda d: any(map(calls_module, facts.run.stack(d.stack))))
            cpu["forward"] = in_modules.ns
        multiplied = self.optimizer_ns * int(facts.run.steps.optimizer_steps.sum())
        saved = {
            "forward": self.forward * cpu["forward"],
            "backward": self.backward * cpu["backward"],
            "optimizer": min(self.optimizers * facts.matrix["optimizer", "native"], multiplied),
        }
        claims: dict[Cell, int] = {}
        for phase, ns in saved.items():
            first, second = on_cpu[phase]  # how it divides into these is sampled
            claims[first] = min(round(ns), facts.ledger.left(first))
            claims[second] = min(round(ns) - claims[first], facts.ledger.left(second))
        return {cell: ns for cell, ns in claims.items() if ns > 0}


# -- the table

TABLE: Final = (
    # Modes for debugging, and builds.
    Setting(
        "anomaly",
        _percent("anomaly_percent", "warn_share"),
        ("TP313.anomaly", "TP313.anomaly_in_lightning"),
        change=lambda _: "anomaly=off",
    ),
    Setting("tracer", _percent("traced_percent", "warn_share"), ("TP313.tracer",), slows=_PYTHON),
    Setting("profiler", _percent("profiled_percent", "warn_share"), ("TP309.profiler",)),
    Setting("deterministic", _percent("deterministic_percent", "warn_share"), change=lambda _: "deterministic=off"),
    Setting(
        "tracemalloc",
        _percent("tracemalloc_percent", "warn_share"),
        slows=_PYTHON,
        change=lambda _: "tracemalloc=off",
    ),
    Setting("launch_blocking", _blocking, change=lambda _: "CUDA_LAUNCH_BLOCKING=0"),
    Setting("malloc_debug", _of("malloc_debug", bool), slows=_PYTHON, change=lambda _: "PYTHONMALLOC=pymalloc"),
    Setting("gc_debug", _of("gc_debug", bool), slows=_COLLECTIONS, change=lambda _: "gc_debug=off"),
    Setting("python_debug", _of("debug_build", bool), slows=_PYTHON),
    Setting("torch_debug", _of("torch_debug", bool)),
    Setting(
        "torch_logs",
        _of("logs", bool, lambda names: {"names": Names(map(str, names))}),
        ("TP314.torch_logs",),
        lambda _: lambda stack: _in("logging", stack) and _in("compiler", stack),
        change=_unset,
    ),
    Setting("gradcheck", _if_sampled(_of_gradcheck), ("TP314.gradcheck",), _of_gradcheck),
    Setting("distributed_debug", _of("distributed_debug", bool)),
    # CPUs.
    Setting("threads", _if(lambda facts: facts.torch_threads), ("TP602",)),
    Setting("affinity", _if(lambda facts: facts.number("cpus")), ("TP604",)),
    Setting(
        "instructions",
        _of(
            "instructions",
            lambda set_: any(_SLOW_ISA.match(value) for value in set_.values()),
            lambda set_: {"names": Names(f"{name}={value}" for name, value in set_.items() if _SLOW_ISA.match(value))},
        ),
        change=_unset,
    ),
    Setting("blas", _of("blas", lambda blas: blas in ("generic", "eigen"), lambda blas: {"blas": blas})),
    Setting("governor", _of("governor", lambda read: read[0] == "powersave" and read[1] not in _DRIVERS_OF_THEIR_OWN)),
    Setting("denormals", _denormals, ("TP315",), change=lambda _: "flush_denormal=on"),
    # Data and memory.
    Setting("workers", _if(lambda facts: facts.run.loaders), ("TP101", "TP102")),
    Setting("persistent_workers", _if(lambda facts: facts.run.loaders), ("TP104", "TP705")),
    Setting("malloc", _malloc, ("TP603",), slows=_PAGES),
    # The model and its optimizer.
    Setting(
        "zero_grad",
        _if_sampled(_of_zeroing, "zeroing_lines"),
        ("TP314.zero_grad",),
        _of_zeroing,
        change=lambda _: "zero_grad=set_to_none",
    ),
    Setting("data_parallel", _if_sampled(_of_data_parallel), ("TP314.data_parallel",), _of_data_parallel),
    Setting("optimizer", _if(_torchs_optimizer), ("TP311",)),
    # Devices.
    Setting("pin_memory", _if(lambda facts: facts.gpu), ("TP505",)),
    Setting("tensor_cores", _if(lambda facts: facts.gpu), ("TP512",)),
    Setting("autotuning", _if(lambda facts: facts.gpu), ("TP514",)),
    Setting("gpu_clocks", _if(_clocks_read), ("TP516",), slows=_KERNELS),
    # What may end the run.
    Setting("shared_memory", _shared_memory, risk=True),
    Setting("descriptors", _descriptors, risk=True),
    Setting("tokenizers", _tokenizers, risk=True),
)


@rule("TP314", "costly-setting", PURE_LOSS)
def costly_setting(facts: Facts, limits: Limits) -> Outcome:
    """The costliest of the settings that samples give a price; `trainperf check` lists all."""
    seen = [(row, looked) for row in TABLE if row.shows is not None and (looked := row.look(facts)) is not None]
    wrong = [(cost, row, looked) for row, looked in seen if looked.wrong and (cost := row.price(facts)) is not None]
    if not wrong:
        return None
    cost, row, looked = max(wrong, key=lambda found: found[0].ns)
    if facts.grade(cost.ns, limits) is None:
        return None
    spot = next(iter(facts.spots(cost.details)), None)
    return Diagnosis(
        variant=row.id,
        claim=Claim(facts.main_cause(cost.claims), cost.claims),
        params={
            **looked.params,
            "place": facts.where(spot) or None,
        },
        place=facts.where(spot),
        sure=Sure(cost.samples),
        saves=Saves(more=True),
    )


@rule("TP315", "denormals", PURE_LOSS)
def denormals(facts: Facts, limits: Limits) -> Outcome:
    """Denormal floats, with which the CPU computes many times slower."""
    found = Denormals.read(facts)
    if found is None or not found.slow or facts.run.feeds_device:
        return None
    claims = found.saves(facts)
    if facts.grade(sum(claims.values()), limits) is None:
        return None
    optimizer = sum(ns for (phase, _), ns in claims.items() if phase == "optimizer")
    model = sum(claims.values()) - optimizer
    variant = "in_optimizer" if optimizer > model else "in_model"
    seen = found.seen[variant.removeprefix("in_")] or {**found.seen["model"], **found.seen["optimizer"]}
    return Diagnosis(
        variant=variant,
        claim=Claim(facts.main_cause(claims), claims),
        params={
            "most": max(seen, key=lambda what: seen[what]),
            "model": Ns(model / facts.steps) if model else None,
            "optimizer": Ns(optimizer / facts.steps) if optimizer else None,
            "seen": tuple(
                {"what": what, "share": Share(share)} for of in found.seen.values() for what, share in of.items()
            ),
        },
        sure=Sure(tier=Said("timed_in_both" if model and optimizer else f"timed_{variant}")),
        saves=Saves(about=True),
    )


# -- TP313: modes for debugging


@rule("TP313", "debug-mode", WARNS)
def debug_mode(facts: Facts, limits: Limits) -> Outcome:
    """A mode for debugging was left on: autograd's anomaly detection, or a trace function of Python's."""
    found = [d for d in (_anomaly(facts, limits), _tracer(facts, limits)) if d is not None]
    if found:
        return max(found, key=lambda d: sum(d.claim.cells.values()))
    unpriced = (*_too_few_samples(facts), *_without_price(facts))
    return Unsure("modes_without_price", {"modes": unpriced}) if unpriced else None


def _anomaly(facts: Facts, limits: Limits) -> Diagnosis | None:
    cost = _cost_of(facts, frames.in_anomaly) if facts.run.anomaly_percent else NOTHING
    severity = _priced(facts, cost, limits)
    if severity is None:
        return None
    lightning = "lightning" in facts.run.meta.get("framework", "")
    return Diagnosis(
        variant="anomaly_in_lightning" if lightning else "anomaly",
        severity=severity,
        claim=Claim(facts.main_cause(cost.claims), cost.claims),
        params={
            "percent": facts.run.anomaly_percent,
            "modes": tuple({"said": said} for said in _without_price(facts)),
        },
        sure=Sure(cost.samples),
        saves=Saves(more=True),
    )


def _tracer(facts: Facts, limits: Limits) -> Diagnosis | None:
    percent = facts.run.traced_percent
    if percent < 100 * limit("half_share") or facts.too_few:
        return None
    cost = _cost_of(facts, framework.in_reported_tracer(facts))
    severity = _priced(facts, cost, limits)
    python = facts.share(facts.cause_ns("python"))
    if severity is None:
        cost = NOTHING
    # A tracer slows all Python: where that is much of the step, the mode comes before what else is said of it.
    unpriced: Severity = "warning" if python >= limit("critical_share") else "info"
    name, how = facts.run.meta.get("tracer", "").rpartition(":")[2], _tracer_kind(facts)
    priced = bool(cost.claims)
    return Diagnosis(
        variant="tracer",
        severity=severity or unpriced,
        claim=Claim(facts.main_cause(cost.claims) if priced else "python", cost.claims),
        params={
            "how": how,
            "name": name,
            "named": bool(name),
            "percent": percent,
            "python": Share(python),
            "fix": Said(f"off_{how.partition('.')[2]}" if how in _TRACERS else "off_settrace"),
            "modes": tuple({"said": said} for said in _without_price(facts)),
        },
        sure=Sure(cost.samples if priced else None),
        saves=Saves(share=1.0 if priced else 0.0, more=True),
    )


_TRACERS: Final = ("sys.settrace", "sys.monitoring", "sys.setprofile")


def _tracer_kind(facts: Facts) -> str:
    return facts.run.meta.get("tracer_kind", "sys.settrace")


def _priced(facts: Facts, cost: Part, limits: Limits) -> Severity | None:
    return facts.grade(cost.ns, limits) if cost.samples >= limit("min_samples") else None


def _too_few_samples(facts: Facts) -> list[Said]:
    least = 100 * limit("warn_share")
    anomaly, traced = facts.run.anomaly_percent, facts.run.traced_percent
    return [
        *([Said("anomaly_was_on", {"percent": anomaly})] if anomaly >= least else []),
        *([Said("tracer_was_on", {"percent": traced, "how": _tracer_kind(facts)})] if traced >= least else []),
    ]


def _without_price(facts: Facts) -> list[Said]:
    """Modes that were on, and slow down the operations themselves: no sample tells by how much."""
    least = 100 * limit("warn_share")
    profiled, deterministic = facts.run.profiled_percent, facts.number("deterministic_percent")
    blocking = facts.run.feeds_device and facts.run.meta.get("launch_blocking") == "1"
    return [
        *([Said("profiler_was_on", {"percent": profiled})] if profiled >= least else []),
        *([Said("blocking_was_on")] if blocking else []),
        *([Said("deterministic_was_on", {"percent": f"{deterministic:.0f}"})] if deterministic >= least else []),
    ]
