"""TP304 to TP306: what a loop does beside its steps, and needs less often: checkpoints, logs, validation."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median_low
from typing import TYPE_CHECKING, Final

from trainperf.findings import cpus, frames, framework, loaders, own_code, places
from trainperf.findings.cpus import usable_cpus
from trainperf.findings.model import Cell, Claim, Diagnosis, Limits, Outcome, Params, Said, Saves, Severity, Sure
from trainperf.findings.own_code import functions_that_call_modules
from trainperf.findings.places import said_thread, weighed
from trainperf.findings.rule import PURE_LOSS, rule
from trainperf.findings.rules.trainer import validation_workers
from trainperf.findings.text import Bytes, Count, Names, Ns, Share
from trainperf.findings.thresholds import limit
from trainperf.findings.waits import call_of, syscall_name, waiting_kind

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts, Spot
    from trainperf.runfile import Detail, Frame

# Hooks that the trainer's own validation calls.
_IN_VALIDATION: Final = ("on_evaluate", "on_predict", "on_prediction", "on_validation", "on_sanity_check")


# -- checkpoints


# What a save is called through: our wrappers of Trainer.save_checkpoint, of torch.save and its like.
_AROUND_SAVE = re.compile(r"[/\\]trainperf[/\\](hooks[/\\](saves|checkpoint)|integrations[/\\]lightning_patches)\.py$")
_NO_FILE = ("lock", "process", "sleep", "socket")  # who copies a file waits in calls that are in no table, too


@dataclass(frozen=True, slots=True)
class _Saving:
    """What saves take of the loop."""

    claims: dict[Cell, int]
    torch_ns: int  # in the calls that save
    chores_ns: int  # of what a framework's callback does beside them
    around: framework.Part | None
    beside_ns: int  # outside of the calls, in functions that save
    beside_spots: list[Spot]
    own: _InSaves

    @property
    def ns(self) -> int:
        return sum(self.claims.values())

    @property
    def storage(self) -> float:
        """The share that waits for it."""
        return (sum(ns for (_, m), ns in self.claims.items() if m == "blocked") - self.own.blocked_ns) / self.ns


@dataclass(frozen=True, slots=True)
class _Told:
    """The one thing that most of the saves' time goes to."""

    variant: str
    spot: Spot | None
    share: float  # of it, that the fix saves at most
    params: Params


@dataclass(frozen=True, slots=True)
class _InSaves:
    """What the user's functions do within saves, beside writing."""

    spots: list[Spot]
    ns: int  # exact
    blocked_ns: int  # of it: waits
    call: str  # the system call that the costliest one's waits are in; "" where most of it is on the CPU


@rule("TP304", "checkpoint", PURE_LOSS, needs=("hook_checkpoint",))
def checkpoint(facts: Facts, limits: Limits) -> Outcome:
    """The loop stands still while a checkpoint is written."""
    all_of_it = _saving(facts)
    if facts.grade(all_of_it.ns, limits) is None:
        return None
    cost, total, affected = all_of_it.ns, facts.run.span_total("checkpoint"), facts.affected("checkpoint")
    # Of a trainer's save that is not bracketed as a whole each file is one: those of one step are one save.
    saves = min(total.count, total.steps) or affected.steps
    files = round(total.count / saves)
    spots = facts.spots(facts.samples(phases=["checkpoint"]))
    top = spots[0] if spots else None
    saver = own_code.saver(top.frames if top is not None else ())
    told = _most_of(facts, all_of_it, top, saver, _every(facts, saves))
    of_log = told.spot is not None and places.is_of_log(told.spot.frame)
    mostly_own = told.variant == "own_work"
    known = total.value > 0 and total.ns > 0
    beside, around = all_of_it.beside_spots, all_of_it.around
    chores = around is not None and all_of_it.chores_ns >= limit("show_share") * cost
    return Diagnosis(
        variant=told.variant,
        claim=Claim("checkpoint", all_of_it.claims),
        params={
            "saves": Count(saves),
            "each": Ns(cost / saves),
            "files": Count(files) if files > 1 else None,
            "saver": saver,
            "chores": Share(all_of_it.chores_ns / cost) if chores else None,
            "around": around.name if around is not None else None,
            "beside": Share(all_of_it.beside_ns / cost) if beside else None,
            "beside_place": facts.label(beside[0]) if beside else None,
            "called": tuple(
                {"share": Share(share), "place": facts.label(s, with_caller=True)} for s, share in _called(all_of_it)
            ),
            "bytes": Bytes(total.value / saves) if known else None,
            "speed": Bytes(total.value / (total.ns / 1e9)) if known and not mostly_own else None,
            "storage": None if mostly_own else Share(all_of_it.storage),
            "on_cpu": all_of_it.storage + all_of_it.own.ns / cost < 0.995,
            **told.params,
            **({"fix": Said("save_rows")} if of_log else {}),
            "of_log": of_log,
        },
        place=facts.where(told.spot),
        affected=affected,
        saves=Saves(share=1.0 if of_log else told.share),
    )


def _saving(facts: Facts) -> _Saving:
    claims = facts.cells("checkpoint")
    in_save = sum(claims.values())
    around = framework.around_saves(facts)
    if around is not None:
        claims |= framework.claims_of(facts, around, around.other_ns)
    chores = sum(claims.values()) - in_save
    beside = facts.once(own_code.beside_saves)
    for cell, ns in beside.claims.items():
        claims[cell] = min(facts.matrix[cell], claims.get(cell, 0) + ns)
    return _Saving(claims, in_save, chores, around, beside.ns, facts.spots(beside.details), _in_saves(facts))


def _in_saves(facts: Facts) -> _InSaves:
    """In what a save calls (a hook, a method that was overridden): what computes, but not what writes. Anywhere in a
    save: waits that are for no file."""
    seen = weighed(facts.samples(phases=["checkpoint"]), facts.cells("checkpoint"))
    told = [d for d in seen if _is_in_save(facts, d)]
    if sum(d.count for d in told) < limit("min_samples"):
        return _InSaves([], 0, 0, "")
    blocked = [d for d in told if d.state == "blocked"]
    spots = facts.spots(told)
    there = [d for d in told if facts.is_at(d, spots[0], line=True)]
    waits = sum(d.ns for d in there if d.state == "blocked") >= limit("half_share") * sum(d.ns for d in there)
    call = call_of(there, facts.machine) if waits else ""
    return _InSaves(spots, sum(d.ns for d in told), sum(d.ns for d in blocked), call)


def _is_in_save(facts: Facts, d: Detail) -> bool:
    stack = facts.run.stack(d.stack)
    if not own_code.writes_nothing(stack):
        return False
    if d.state == "blocked":
        return waiting_kind(syscall_name(d.syscall, facts.machine)) in _NO_FILE
    # In a hook of a save, or an object that is saved.
    return any(_AROUND_SAVE.search(f.file) for f in frames.from_users(stack))


def _most_of(facts: Facts, saves: _Saving, top: Spot | None, saver: str, every: int) -> _Told:
    cost, called = saves.ns, _called(saves)
    if called and saves.own.ns >= limit("half_share") * cost:
        first, share = called[0]
        params: Params = {
            "place": facts.label(first, with_caller=True),
            "share": Share(share),
            "call": saves.own.call or None,
            "second": facts.label(called[1][0]) if called[1:] else None,
            "second_share": Share(called[1][1]) if called[1:] else None,
            "fix": Said("save_own_work", {"function": frames.label(first.frame, facts.base)}),
        }
        return _Told("own_work", first, share, params)
    if saves.beside_ns >= limit("half_share") * cost:
        fix, fix_share = _less_saving(facts, top, saver, every, whole=True)
        first = saves.beside_spots[0]
        shares = {"share": Share(first.share * saves.beside_ns / cost), "saver_share": Share(saves.torch_ns / cost)}
        return _Told("beside", first, fix_share, {**shares, "place": facts.label(first, with_caller=True), "fix": fix})
    fix, fix_share = _less_saving(facts, top, saver, every)
    function = frames.label(top.frame, facts.base) if top is not None else None
    on_cpu = saves.storage < limit("felt_share")
    return _Told("writing", top, fix_share, {"function": function, "fast_disk": on_cpu, "fix": fix})


def _called(saves: _Saving) -> list[tuple[Spot, float]]:
    """What of the user's a save calls beside writing, where that is felt, with shares of the save: two at most."""
    own, cost = saves.own, saves.ns
    if own.ns < limit("felt_share") * cost:
        return []
    called = [(s, s.share * own.ns / cost) for s in own.spots]
    return [(s, share) for s, share in called if s is own.spots[0] or share >= limit("felt_share")][:2]


def _less_saving(facts: Facts, top: Spot | None, saver: str, every: int, *, whole: bool = False) -> tuple[Said, float]:
    """And the share of the saves that it saves. `whole`: what comes beside `saver` is to go with it."""
    rarely, callback = max(100, 10 * every), framework.callback_of(facts, top)
    now: Params = {"now": Count(every), "each_step": every == 1, "rarely": rarely, "callback": callback or None}
    if not callback and framework.trainer(facts):
        return Said("save_by_lightning", now), 1 - every / rarely
    if not callback and framework.arguments(facts.run.meta):
        return Said("save_by_hugging_face", now), 1 - every / rarely
    # Of a training of Lightning's a state_dict alone would lack what its own checkpoint has.
    if framework.trainer(facts) and top is not None and own_code.saves_by_trainer(top.frames):
        return Said("save_by_trainer", now), 1.0
    if saver not in (
        own_code.TORCH_SAVE,
        "save_file",
    ):  # which may write the optimizer's and the sampler's state as well
        return Said("save_less_often", now), 1.0
    return Said("save_all_in_a_thread" if whole else "save_in_a_thread", now), 1.0


def _every(facts: Facts, saves: int) -> int:
    """Steps from one save to the next, mostly; where the saves are too many for a span each, or come in pairs, the
    mean."""
    mean = facts.steps / saves
    spans = facts.run.spans("checkpoint")
    between = [b - a for a, b in pairwise(sorted({span.step for span in spans if span.step >= 0}))]
    mostly = (
        median_low(between) if len(between) > 1 and len(spans) == facts.run.span_total("checkpoint").count else mean
    )
    return max(1, round(mostly if mean / 2 <= mostly <= 2 * mean else mean))


# -- logs


@rule("TP305", "logging", PURE_LOSS, needs=("hook_logging",))
def logging(facts: Facts, limits: Limits) -> Outcome:
    """Writing logs or metrics takes a notable part of the loop."""
    whole = facts.ledger.cells("logging")  # what loggers are told of is not told once more, nor are our figures
    claims = loaders.spread(whole, sum(whole.values()) - facts.figures_ns)
    cost = sum(claims.values())
    if facts.grade(cost, limits) is None:
        return None
    total = facts.run.span_total("logging")
    spots = facts.spots(facts.samples(phases=["logging"]))
    seen = sum(s.samples for s in spots)
    top = spots[0] if spots else None
    blocked = sum(ns for (_, m), ns in claims.items() if m == "blocked") / cost
    return Diagnosis(
        variant="waits" if blocked >= limit("half_share") else "formats",
        claim=Claim("logging", claims),
        params={
            # Shorter ones have no span, but are part of the cost.
            "calls": Count(total.count) if total.count else None,
            "call": Ns(total.ns / total.count) if total.count else None,
            "in_steps": Count(min(facts.steps, total.steps)),
            "blocked": Share(blocked),
            "place": facts.label(top),
            "place_share": Share(top.share) if top is not None else None,
            **_for_the_lock(facts),
        },
        place=facts.where(top),
        affected=facts.affected("logging"),
        sure=Sure(samples=seen),
    )


def _for_the_lock(facts: Facts) -> Params:
    """That the training thread waits for a handler that another thread is in, where that is a notable part."""
    every = facts.samples(phases=["logging"])
    locked = [d for d in every if d.state == "blocked" and waiting_kind(call_of([d], facts.machine)) == "lock"]
    ns, every_ns = sum(d.ns for d in locked), sum(d.ns for d in every)
    if sum(d.count for d in locked) < limit("min_samples") or ns < limit("felt_share") * every_ns:
        return {"locked": None}
    by_thread: dict[int, list[Detail]] = {}
    for d in facts.run.detail_totals("beside"):
        if d.thread is not None and d.phase == "logging":
            by_thread.setdefault(d.thread.id, []).append(d)
    most = max(by_thread.values(), key=lambda group: sum(d.ns for d in group), default=[])
    spots = facts.spots(most)
    if not spots or sum(d.ns for d in most) < limit("most_share") * ns:
        return {"locked": Share(ns / every_ns), "holder": None}
    at = {
        "holder": said_thread(most[0].thread, facts.thread_name(most[0].thread)),
        "holder_place": facts.label(spots[0]),
    }
    return {"locked": Share(ns / every_ns), **at}


# -- validation


_OF_DATA = {"__iter__", "__next__", "__getitem__", "__getitems__"}


@dataclass(frozen=True, slots=True)
class _OwnWork:
    """Of one function, the costliest."""

    spot: Spot
    share: float  # of all validations' time, and of what they wait for a CPU or the GIL: they do so as they run


@dataclass(frozen=True, slots=True)
class _Validations:
    whole: dict[Cell, int]
    waits_ns: int  # for their data
    own: _OwnWork | None
    for_workers: bool  # they wait mostly, and workers would help

    @property
    def ns(self) -> int:
        return sum(self.whole.values())

    @property
    def waits_mostly(self) -> bool:
        return self.ns <= 2 * self.waits_ns <= 2 * self.ns

    @classmethod
    def of(cls, facts: Facts) -> _Validations:
        whole = {cell: ns for cell, ns in facts.matrix.items() if cell[0] == "validation" and ns > 0}
        waits = sum(v.fetches.validation_wall_ns for v in facts.run.loaders.values())
        found = cls(whole, waits, _own_work(facts), for_workers=False)
        helped = found.own is None and found.waits_mostly and _workers_help(facts, waits)
        return replace(found, for_workers=helped)

    def avoidable_ns(self, facts: Facts) -> int:
        return self.waits_ns - _ready_ns(facts, validating=True) if self.for_workers else 0


@rule("TP306", "validation", Limits(limit("validation_info_share"), None), needs=("hook_eval_mode",))
def validation(facts: Facts, limits: Limits) -> Outcome:
    """Validation is a large part of the run."""
    work, found = facts.cells("validation"), _Validations.of(facts)
    severity = _severity(facts, sum(work.values()), found, limits)
    if severity is None:
        return None
    claims, own = work | _its_waits(facts), found.own
    cost = sum(claims.values())
    if severity == "info" and facts.share(cost) >= limit("validation_warn_share"):
        severity = "warning"
    affected = facts.affected("validation")
    times = _times(facts) or affected.steps
    every = max(1, round(facts.steps / times))
    spots = [own.spot] if own is not None else facts.spots(facts.samples(phases=["validation"]))
    top = spots[0] if spots else None
    # In a loop of the user's own, without a loader: a rollout or pseudo-labels look like it.
    may_make_data = not any(v.fetches.validation_count for v in facts.run.loaders.values()) and not _by_trainer(facts)
    started = sum(work.values()) - sum(facts.ledger.cells("validation").values())
    left = {cell: ns - claims.get(cell, 0) for cell, ns in found.whole.items()}
    saved = own.share if own is not None else found.avoidable_ns(facts) / max(1, cost)
    return Diagnosis(
        variant="eval_mode" if may_make_data else "waits_for_data" if found.for_workers else "validation",
        severity=severity,
        claim=Claim("validation", claims, by_device=False),
        params={
            "times": Count(times),
            "each": Ns(found.ns / times),
            **_elsewhere(left, found.ns, times),
            **_where(facts, found),
            "started": Ns(started / times) if started else None,
            "told_by": validation_workers.id,
            "often": _often(every, times / facts.steps),
            "every_step": every == 1,
            "stretch": (_stretch(facts) or None) if may_make_data else None,
            "now": _often(every),
            "rarely": _less_often(facts, framework.callback_of(facts, top), every),
        },
        place=facts.where(top),
        affected=affected,
        sure=Sure(
            samples=own.spot.samples if own is not None else None,
            doubts=(*((Said("no_loader"),) if may_make_data else ()), *_unbracketed(facts)),
        ),
        saves=Saves(share=_saves(facts, every, saved)),
    )


def _where(facts: Facts, found: _Validations) -> Params:
    """What takes most of them: a function of the user's, or their data."""
    own, waits = found.own, found.waits_ns
    made_in = _data_made_in(facts) if found.waits_mostly else None
    return {
        "waiting": Share(waits / found.ns) if 0 < waits <= found.ns else None,
        "own": facts.label(own.spot, with_caller=True) if own is not None else None,
        "own_share": Share(own.share) if own is not None else None,
        "own_function": frames.label(own.spot.frame, facts.base) if own is not None else None,
        "made_in": facts.label(made_in, with_caller=True),
    }


def _by_trainer(facts: Facts) -> bool:
    return bool(framework.trainer(facts) or framework.arguments(facts.run.meta))


def _times(facts: Facts) -> int:
    before = sum(span.step < 0 for span in facts.run.spans("validation"))  # Lightning's sanity check
    return max(0, facts.run.span_total("validation").count - before)


def _severity(facts: Facts, work_ns: int, found: _Validations, limits: Limits) -> Severity | None:
    """Of validation as such, that was asked for, it is an info up to where less of it is the largest gain; waits that
    workers would take off it, what is no validating, and what is done in each step, are trouble of any kind's size."""
    seldom = facts.run.span_total("validation").steps < limit("held_share") * facts.steps
    asked, avoidable_ns = found.own is None and seldom, found.avoidable_ns(facts)
    severity = (facts.grade_of_asked_work if asked else facts.grade)(work_ns, limits)
    if severity in (None, "info") and avoidable_ns:
        severity = facts.grade(min(avoidable_ns, work_ns), Limits(limit("warn_share"), None)) or severity
    return severity


def _saves(facts: Facts, every: int, by_other_means: float) -> float:
    """Of its time, at most: half as often, or nearly never where it is in each step; or what else is advised."""
    return max(0.5 if every > 1 or _by_trainer(facts) else 1.0, min(1.0, by_other_means))


def _unbracketed(facts: Facts) -> Sequence[Said]:
    """What a trainer does before eval() and after train(), such as to start workers, is then no part of it."""
    why = facts.off("lightning_validation") if "lightning_validation" in facts.run.tiers else None
    return (Said("unbracketed", {"without": why}),) if why else ()


def _elsewhere(left: Mapping[Cell, int], whole_ns: int, times: int) -> Params:
    """What of validations other causes have, where that is notable."""
    ns = sum(left.values())
    if ns < limit("felt_share") * whole_ns:
        return {"elsewhere": None}
    causes = Names(mechanism for (_, mechanism), n in left.items() if n >= limit("warn_share") * ns)
    return {"elsewhere": Ns(ns / times), "causes": causes}


def _workers_help(facts: Facts, waits_ns: int) -> bool:
    """Not where its loaders have some, nor where no CPU is free for them: of workers that compute, beside torch's
    threads. They must save more than it takes to get their batches, of a trainer that has one option for all loaders
    training's too."""
    those = facts.run.loaders.values()
    if any(loaders.num_workers(v) for v in those if v.fetches.validation_count):
        return False
    asleep = facts.matrix["validation", "blocked"] >= limit("half_share") * waits_ns
    usable = usable_cpus(facts.run)
    if not asleep and (cpus.once_free(facts) or 0 < usable <= facts.torch_threads):
        return False
    taken_ns = _ready_ns(facts, validating=True)
    if framework.arguments(facts.run.meta):
        taken_ns += _ready_ns(facts, validating=False)
    return limit("half_share") * waits_ns > taken_ns


def _ready_ns(facts: Facts, *, validating: bool) -> int:
    """What it would take to get all those batches from workers that have made them."""
    those = facts.run.loaders.values()
    if validating:
        count = sum(v.fetches.validation_count for v in those)
    else:
        count = sum(v.fetches.count for v in those if not loaders.only_validates(v))
    return int(count * 1e6 * limit("ready_batch_ms"))


def _often(every: int, times_a_step: float = 0.0) -> Said:
    if times_a_step >= 1.5:
        return Said("several_times", {"times_a_step": Count(round(times_a_step))})
    return Said("in_each_step") if every == 1 else Said("about_every", {"every": Count(every)})


def _less_often(facts: Facts, callback: str, every: int) -> Said:
    """`callback`: of the user's, that does it."""
    if callback and not callback.rpartition(".")[2].startswith(_IN_VALIDATION):
        return Said("validate_in_callback", {"callback": callback})
    if framework.trainer(facts):
        interval = framework.trainer(facts).get("val_check_interval")  # 1.0: once an epoch
        if isinstance(interval, int) and not isinstance(interval, bool):
            return Said("validate_by_lightning", {"interval": 2 * interval, "now": Count(interval)})
        return Said("validate_by_lightning", {"interval": 2 * every})
    if framework.arguments(facts.run.meta):
        return Said("validate_by_hugging_face", {"interval": 2 * every})
    return Said("validate_less_often")


# -- what the user's functions do in validations, beside the model and its data: metrics, hooks, plots


def _own_work(facts: Facts) -> _OwnWork | None:
    """None: most of the validations is the model's, its data's, or not known."""
    cells = facts.cells("validation")
    seen = weighed(facts.samples(phases=["validation"]), cells)
    is_no_models = _is_no_models(facts)
    told = [d for d in seen if _is_validations_own(facts, d) and is_no_models(facts.run.stack(d.stack), d.state)]
    spots = facts.spots(told)
    if not spots:
        return None
    top = spots[0]
    mine = [d for d in told if facts.is_at(d, top)]
    share = sum(d.ns for d in mine) / max(1, sum(cells.values()))
    if sum(d.count for d in mine) < limit("min_samples") or share < limit("half_share"):
        return None
    return _OwnWork(top, share)


def _its_waits(facts: Facts) -> dict[Cell, int]:
    """What holds the training thread up in validations, and would go with them: what no finding has told of it yet;
    the waits for a CPU where these are for the validation's own workers, or too short to be told in the whole run."""
    cells = [("validation", "gil_wait"), ("validation", "gc")]
    left = {cell: facts.ledger.left(cell) for cell in cells}
    waits = facts.waits_for_cpu()
    if facts.share(sum(waits.values())) < limit("descheduled_warn_share") or _waits_for_its_workers(facts):
        left |= {cell: ns for cell, ns in waits.items() if cell[0] == "validation"}
    return {cell: ns for cell, ns in left.items() if ns > 0}


def _waits_for_its_workers(facts: Facts) -> bool:
    """Not where others take the CPUs, or torch has more threads than there are, or who takes them is not known."""
    wants, load = cpus.demand(facts), cpus.load(facts)
    if wants.certain or not load.known or cpus.whose(wants, load) not in ("oversubscribed", "unclear"):
        return False
    return any(loaders.only_validates(v) and loaders.num_workers(v) for v in facts.run.loaders.values())


def _is_no_models(facts: Facts) -> Callable[[Sequence[Frame], str], bool]:
    """Of which stacks and states. Where no layer was seen the model may be any function, one that calls modules may
    compute with what they return, and all but Python may wait for a device that was not seen."""
    unseen = facts.run.feeds_device and facts.gpu is None
    layers = any(frames.runs_layer(facts.run.stack(d.stack)) for d in facts.samples())
    calling = facts.once(functions_that_call_modules)

    def keep(stack: Sequence[Frame], state: str) -> bool:
        at = frames.user_frame(stack)
        beside = frames.of_metric(stack) or (layers and at is not None and frames.function_of(at) not in calling)
        return beside and (state == "python" or not unseen)

    return keep


def _is_validations_own(facts: Facts, detail: Detail) -> bool:
    stack = facts.run.stack(detail.stack)
    if frames.user_frame(stack) is None or frames.in_loader(stack) or not frames.is_the_loops(stack):
        return False
    if frames.in_module(stack) and not frames.of_metric(stack):
        return False
    if any(f.function.rpartition(".")[2] in _OF_DATA for f in stack):
        return False
    # For another thread, which may make the data.
    return not (detail.state == "blocked" and waiting_kind(call_of([detail], facts.machine)) == "lock")


def _stretch(facts: Facts) -> str:
    """The outermost function of the user's that most of the validations are in, and little else: "collect"; "" for
    none."""
    whole: dict[frames.Function, int] = {}
    within: dict[frames.Function, int] = {}
    outermost: dict[frames.Function, int] = {}
    for d in facts.samples():
        stack = facts.run.stack(d.stack)
        mine = [frames.function_of(f) for f in stack if frames.is_users(f, stack)]
        for function in set(mine):
            whole[function] = whole.get(function, 0) + d.ns
            within[function] = within.get(function, 0) + (d.ns if d.phase == "validation" else 0)
    for d in facts.samples(phases=["validation"]):
        stack = facts.run.stack(d.stack)
        for f in reversed(stack):
            function = frames.function_of(f)
            if frames.is_users(f, stack) and within[function] >= limit("held_share") * whole[function]:
                outermost[function] = outermost.get(function, 0) + d.ns
                break
    most = max(outermost, key=lambda function: outermost[function], default=None)
    validations = sum(d.ns for d in facts.samples(phases=["validation"]))
    return "" if most is None or outermost[most] < limit("most_share") * validations else most[1]


def _data_made_in(facts: Facts) -> Spot | None:
    """The user's function in which most of validations' data is made on the training thread; None where it is not
    known."""
    fetches = [d for d in facts.samples(phases=["validation"]) if frames.in_loader(facts.run.stack(d.stack))]
    spots = facts.spots(fetches, keep=lambda stack: frames.in_loader(frames.from_users(stack)))
    if not spots or spots[0].samples < limit("min_samples"):
        return None
    return spots[0] if spots[0].ns >= limit("half_share") * sum(d.ns for d in fetches) else None
