"""What the parts of a framework's loop cost, as its integration measured them: callbacks, hooks of the module, loggers,
its own chores; and fixes in its words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from trainperf.findings import frames, places
from trainperf.findings.frames import FrameLike, is_framework, is_users
from trainperf.findings.loaders import spread
from trainperf.findings.model import Cell, Limits, Severity
from trainperf.findings.places import by_cell, weighed
from trainperf.findings.thresholds import limit
from trainperf.runfile.schema import KEEP_NAME, described
from trainperf.runfile.steps import MAX_NS

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts, Spot
    from trainperf.runfile import Detail

_LOADER = re.compile(r"DataLoader\(\.\.\., ([^()]*)\)")
_KNOWN = ("num_workers", "persistent_workers", "prefetch_factor", "pin_memory", "drop_last")


def arguments(meta: Mapping[str, str]) -> Mapping[str, Any]:
    """The Trainer's arguments as the callback noted them; empty when it was no training of its."""
    return described(meta, "transformers")


def own_loader(meta: Mapping[str, str]) -> str:
    """The method, "Mine.get_train_dataloader", in which a Trainer of the user's makes it; "" where none does."""
    own = arguments(meta).get("own_loader")
    return own if isinstance(own, str) else ""


def in_its_words(meta: Mapping[str, str], fix: str) -> str:
    """DataLoader(..., num_workers=4) -> TrainingArguments(dataloader_num_workers=4)."""
    if "DataLoader(" not in fix or not arguments(meta):
        return fix

    def said(match: re.Match[str]) -> str:
        options = match[1].split(", ")
        if not all(option.partition("=")[0] in _KNOWN for option in options):
            return match[0]
        return f"TrainingArguments({', '.join(f'dataloader_{option}' for option in options)})"

    return _LOADER.sub(said, fix)


MONITORS = ("ThroughputMonitor", "DeviceStatsMonitor")  # Lightning's callbacks that measure the training
# What Lightning does at each batch, as our integration calls it.
METRICS, SIGTERM = "metrics after each batch", "SIGTERM broadcast"
CALLBACK_LIMITS = Limits(limit("framework_part_share"), limit("critical_share"))
_NOTHING: Mapping[Cell, int] = {}
MODULE = "lightning_module"  # the kind of a LightningModule, of which its hooks are measured
_FRAMEWORKS = ("lightning.", "pytorch_lightning.", "transformers.")
_FRAMEWORKS_FILE = re.compile(r"-packages/(lightning/pytorch|pytorch_lightning|transformers)/")
# A hook of the module has the phase in which it is called: with automatic optimization these, and else the loop's.
_MODULES_PHASES = ("other", "forward", "backward", "optimizer")
_PHASE_OF_HOOK = {
    "on_before_zero_grad": "forward",
    "on_before_backward": "forward",
    "on_after_backward": "optimizer",
    "on_before_optimizer_step": "optimizer",
}


@dataclass(frozen=True, slots=True)
class Hook:
    name: str
    at: str  # file:line
    count: int
    other_ns: int  # in the loop itself, not in validation or a checkpoint
    own_ns: int  # all of it, but what is measured inside of it
    max_ns: int
    # Whether other_ns and own_ns are without what keeps its name wherever it is: collections, waits for the GIL or for
    # a CPU. An older trainperf did not measure that.
    is_clear: bool
    by: str = ""  # of a logger: the function of the program, "Mine.on_x", that called it; "" for the trainer
    by_at: str = ""  # file:line

    @property
    def alike(self) -> bool:
        """All of its calls may take about as long; else one of them, or a few, take much longer than most."""
        return self.max_ns * self.count < limit("alike_ratio") * self.other_ns


@dataclass(frozen=True, slots=True)
class Part:
    """A callback, the module that is trained, a logger, or something that the framework does at each batch. Compared as
    the object that it is."""

    number: int
    kind: str
    name: str
    module: str
    at: str  # file:line of its class
    hooks: tuple[Hook, ...] = field(compare=False)  # costliest first

    @property
    def other_ns(self) -> int:
        return sum(hook.other_ns for hook in self.hooks)

    @property
    def own_ns(self) -> int:
        return sum(hook.own_ns for hook in self.hooks)

    @property
    def is_frameworks_own(self) -> bool:
        """Or a class of the user's that inherits what costs most."""
        inherited = bool(self.hooks) and _FRAMEWORKS_FILE.search(self.hooks[0].at) is not None
        return self.of_framework or inherited

    @property
    def of_framework(self) -> bool:
        """A class of the framework's."""
        return self.module.startswith(_FRAMEWORKS)

    @property
    def saves(self) -> bool:
        """Whether it is Lightning's ModelCheckpoint, or inherits what costs most from it."""
        inherited = bool(self.hooks) and "/callbacks/model_checkpoint.py:" in self.hooks[0].at
        return self.is_frameworks_own and (self.name == "ModelCheckpoint" or inherited)

    @property
    def is_clear(self) -> bool:
        return all(hook.is_clear for hook in self.hooks)

    @property
    def is_module(self) -> bool:
        return self.kind == MODULE

    def place(self, facts: Facts, hook: Hook | None = None) -> str:
        """The hook's file:line, or the costliest one's."""
        hook = hook or next(iter(self.hooks), None)
        return _short(facts, (hook.at if hook is not None else "") or self.at)


def called_by(facts: Facts, hook: Hook) -> str:
    """ "Mine.on_x (train.py:12)"."""
    return f"{hook.by} ({_short(facts, hook.by_at)})" if hook.by_at else hook.by


def _short(facts: Facts, at: str) -> str:
    file, _, line = at.rpartition(":")
    return f"{frames.short_path(file, facts.base)}:{line}" if file else at


def parts(facts: Facts, kind: str) -> list[Part]:
    """Those of a kind ("callback", MODULE, "logger", "lightning"), the costliest in the loop first."""
    found = []
    for number, (object_kind, description) in facts.run.objects.items():
        hooks = description.get("hooks")
        if object_kind == kind and isinstance(hooks, dict):
            name = frames.short_function(str(description.get("name") or description.get("class") or "?"))
            module, at = str(description.get("module") or ""), str(description.get("at") or "")
            found.append(Part(number, kind, name, module, at, _hooks(hooks, kind)))
    return sorted(found, key=lambda part: -part.other_ns)


def loggers(facts: Facts) -> list[Part]:
    """What writes metrics, the costliest first: loggers, and of Hugging Face's callbacks what they do in on_log."""
    found = parts(facts, "logger")
    for part in parts(facts, "callback"):
        own = tuple(hook for hook in part.hooks if hook.name == "on_log" and hook.own_ns)
        if own and arguments(facts.run.meta):
            found.append(replace(part, hooks=own))
    return sorted(found, key=lambda part: -part.own_ns)


def around_saves(facts: Facts) -> Part | None:
    """The framework's own callback that saves, for what it does in the loop beside saving (it removes the file before):
    that belongs to the checkpoint. None where that is more than the saves themselves."""
    saving = sum(facts.cells("checkpoint").values())
    return next(
        (part for part in parts(facts, "callback") if part.saves and 0 < part.other_ns <= saving),
        None,
    )


def is_monitor(part: Part) -> bool:
    return part.is_frameworks_own and part.name in MONITORS


def hook_holders(facts: Facts) -> list[Part]:
    """The callbacks that no rule of their own tells and the module with its hooks, the costliest first."""
    saves = around_saves(facts)  # TP304 tells it
    found = [part for part in parts(facts, "callback") if not is_monitor(part) and part != saves]
    return sorted(found + parts(facts, MODULE), key=lambda part: -part.other_ns)


def told_hook_holders(facts: Facts) -> list[Part]:
    """The costliest, and others that are worth a warning by themselves."""
    found = hook_holders(facts)
    return found[:1] + [part for part in found[1:] if facts.grade(part.other_ns, CALLBACK_LIMITS) is not None]


def in_told_hook(facts: Facts) -> Callable[[str, Sequence[frames.FrameLike]], bool]:
    """Whether a stack, seen in that phase, is in the hooks that TP701 reports, or in the trace function that TP313
    does."""
    hook, tracer = _in_told_hook(facts), in_reported_tracer(facts)
    return lambda phase, stack: hook(phase, stack) or tracer(stack)


def in_reported_tracer(facts: Facts) -> Callable[[Sequence[frames.FrameLike]], bool]:
    """Whether a stack is in a trace function that was set for most of the run."""
    file, _, function = facts.run.meta.get("tracer", "").rpartition(":")
    if not file or facts.run.traced_percent < 100 * limit("half_share"):
        return lambda stack: False
    return lambda stack: any(f.file == file and f.function == function for f in stack)


def _in_told_hook(facts: Facts) -> Callable[[str, Sequence[frames.FrameLike]], bool]:
    """In the hooks: their time is exact, and not to be told once more by samples. Those of callbacks are the loop's;
    the module's are in the phases that they are called in."""
    told = told_hook_holders(facts)
    if facts.grade(sum(claims_of_all(facts, [(p, p.other_ns) for p in told]).values()), CALLBACK_LIMITS) is None:
        return lambda phase, stack: False
    hooks = Hooks(facts)
    of_phase = {phase: [part for part in told if phase == "other" or part.is_module] for phase in _MODULES_PHASES}
    return lambda phase, stack: bool(of_phase.get(phase)) and any(hooks.owner(f) in of_phase[phase] for f in stack)


def _hooks(hooks: Mapping[str, Any], kind: str) -> tuple[Hook, ...]:
    read = [_hook(name, h) for name, h in hooks.items() if isinstance(h, dict)]
    return tuple(sorted(read, key=lambda hook: -(hook.own_ns if kind == "logger" else hook.other_ns)))


def _hook(name: str, read: Mapping[str, Any]) -> Hook:
    numbers = (read.get(key) for key in ("count", "other_ns", "own_ns", "named_ns", "max_ns"))
    count, other_ns, own_ns, named_ns, max_ns = (max(0, min(n, MAX_NS)) if isinstance(n, int) else 0 for n in numbers)
    clear_ns = max(0, own_ns - named_ns)
    other_ns = other_ns * clear_ns // own_ns if own_ns else other_ns
    name, _, caller = name.partition(" by ")
    by, _, by_at = caller.partition(" at ")
    return Hook(name, str(read.get("at") or ""), count, other_ns, clear_ns, max_ns, "named_ns" in read, by, by_at)


def trainer(facts: Facts) -> Mapping[str, Any]:
    """Lightning's settings, as the run was begun; empty when it is no run of Lightning's."""
    return described(facts.run.meta, "lightning")


class Hooks:
    """Whose hook a frame of a stack is."""

    def __init__(self, facts: Facts) -> None:
        version = facts.run.meta.get("python", "").split(".")[:2]
        self._tells_classes = all(map(str.isdecimal, version)) and tuple(map(int, version)) >= (3, 11)
        self._classes = {
            frames.short_function(str(description.get("class"))) for _, description in facts.run.objects.values()
        }
        self._known: dict[tuple[str, str], list[tuple[int, Part]]] = {}  # by file and name: the first line
        for kind in ("callback", MODULE, "logger", "lightning"):
            for part in parts(facts, kind):
                for hook in part.hooks:
                    file, _, line = hook.at.rpartition(":")
                    first = int(line) if line.isdecimal() else 0
                    self._known.setdefault((file, hook.name), []).append((first, part))

    def owner(self, frame: frames.FrameLike) -> Part | None:
        """Of a base class' hook it is who has no other; before CPython 3.11, which tells no class, the line says it."""
        kind, _, function = frames.short_function(frame.function).rpartition(".")
        known = self._known.get((frame.file, function), ())
        if not kind and self._tells_classes:
            return None
        if not kind:
            known = [at for at in known if at[0] <= frame.line]
            return max(known, key=lambda at: at[0])[1] if known else None
        own = [part for _, part in known if part.name == kind]
        others = [part for _, part in known] if kind not in self._classes else []
        if own:  # classes of one name, each in a function of its own
            return max((at for at in known if at[1] in own), key=lambda at: (at[0] <= frame.line, at[0]))[1]
        return next(iter(others), None)


def callback_of(facts: Facts, spot: Spot | None) -> str:
    """The user's callback that does it, with its hook: "Ev.on_step_end"; "" if none does. What a base class of the
    framework's does is not the user's."""
    if spot is None:
        return ""
    hooks = Hooks(facts)
    for frame in spot.frames:
        part = hooks.owner(frame) if frames.is_users(frame, spot.frames) else None
        if part is not None and not part.is_module:
            return f"{part.name}.{frame.function.rpartition('.')[2]}"
    return ""


def method_of_users(facts: Facts, part: Part) -> Spot | None:
    """Where a class of the user's inherits the hook that costs most: the method of the user's that takes most of it."""
    if part.of_framework or not part.is_frameworks_own:
        return None
    hook = part.hooks[0]
    file = hook.at.rpartition(":")[0]

    def below(stack: Sequence[frames.FrameLike]) -> int | None:
        """How many frames the hook has called; None where it is not in the stack."""
        for i, f in enumerate(stack):
            if f.file == file and f.function.rpartition(".")[2] == hook.name:
                return i
        return None

    inside = [d for d in facts.samples() if below(facts.run.stack(d.stack)) is not None]
    spots = facts.spots(inside, seen_from=lambda stack: stack[: below(stack)])
    return spots[0] if spots and sum(spot.share for spot in spots) >= limit("most_share") else None


def fetching_hook(facts: Facts) -> str:
    """The hook, "A.on_substep_end", in which most of what is fetched is: from a loader of its own, which no option of
    the framework's reaches; "" if there is none."""
    hooks = Hooks(facts)
    seen: dict[str, int] = {}
    samples = weighed(facts.samples(phases=["fetch"]), facts.cells("data_wait", ["fetch"]))
    for detail in samples:
        for frame in facts.run.stack(detail.stack):
            if (part := hooks.owner(frame)) is not None:
                name = f"{part.name}.{frame.function.rpartition('.')[2]}"
                seen[name] = seen.get(name, 0) + detail.ns
                break
    top = max(seen, key=seen.__getitem__, default="")
    return top if top and seen[top] >= limit("half_share") * sum(detail.ns for detail in samples) else ""


def claims_of(
    facts: Facts, part: Part, ns: int, phase: str = "other", told: Mapping[Cell, int] = _NOTHING
) -> dict[Cell, int]:
    """The cells that `ns` of a part's time stand for, less its share of what has causes of its own where that was not
    measured.

    By the samples in its hooks where there are any, else in proportion to the whole phase; but nothing that is `told`.
    A module's are in any phase in which they were seen, or that its hooks usually have, and no more than these have:
    what a hook fetches or moves to the device is in phases that others tell.
    """
    phases = _MODULES_PHASES if part.is_module else (phase,)
    whole = {cell: n for cell, n in facts.matrix.items() if cell[0] in phases and n > 0}
    cells = {cell: n for cell, n in whole.items() if cell[1] not in KEEP_NAME}
    if not whole:
        return {}
    if not part.is_clear:
        ns = ns * sum(cells.values()) // sum(whole.values())
    cells = {cell: n - told.get(cell, 0) for cell, n in cells.items()}
    seen = _seen_in(facts, part, phases, whole)
    every = max(1, sum(seen.values()))
    shares = {cell: min(ns * sampled // every, cells.get(cell, 0)) for cell, sampled in seen.items()}
    out = {cell: amount for cell, amount in shares.items() if amount}
    usual = {_PHASE_OF_HOOK.get(hook.name, "other") for hook in part.hooks if hook.other_ns}
    among = {at for at, _ in seen} | usual if part.is_module else phases
    rest = {cell: n - out.get(cell, 0) for cell, n in cells.items() if cell[0] in among}
    for cell, amount in spread(rest, ns - sum(out.values())).items():
        out[cell] = out.get(cell, 0) + amount
    return out


def _seen_in(facts: Facts, part: Part, phases: Sequence[str], whole: Mapping[Cell, int]) -> dict[Cell, int]:
    """What samples show in its hooks, of the exact times of `whole`."""
    hooks = Hooks(facts)
    seen = weighed(facts.samples(phases=phases), whole)
    return by_cell(d for d in seen if any(hooks.owner(frame) == part for frame in facts.run.stack(d.stack)))


def claims_of_all(facts: Facts, told: Iterable[tuple[Part, int]], phase: str = "other") -> dict[Cell, int]:
    """Of several parts, each with its ns."""
    claims: dict[Cell, int] = {}
    for part, ns in told:
        for cell, amount in claims_of(facts, part, ns, phase, claims).items():
            claims[cell] = claims.get(cell, 0) + amount
    return claims


# -- what Lightning's self.log costs where the program calls it

LOG_LIMITS = Limits(limit("warn_share"), limit("critical_share"))

_LOGS = re.compile(r"[/\\](lightning[/\\]pytorch|pytorch_lightning)[/\\]core[/\\]module\.py$")
_LOG_CAUSES = ("python", "compute", "launch")  # of validation, of a hook or a logger others tell


def is_log_call(stack: Sequence[FrameLike]) -> bool:
    """Lightning's own code below a self.log that the user's code called, of no callback."""
    calls = next((i for i, f in enumerate(stack) if is_users(f, stack)), None)
    if calls is None or any(f.function == "_call_callback_hooks" and is_framework(f.file) for f in stack):
        return False
    return any(_LOGS.search(f.file) and f.function.rpartition(".")[2] in ("log", "log_dict") for f in stack[:calls])


def log_calls(facts: Facts) -> tuple[places.Part, Severity | None]:
    """What the calls took: native code only where it is no wait for a device that was not seen. A stack that changed
    while it was read is lost, which is likeliest where functions are short, as these are: the lost ones are shared out
    like the others. None: too little to speak of."""
    mechanisms = ("python",) if facts.run.feeds_device and facts.gpu is None else ("python", "native")
    in_hook = facts.once(in_told_hook)

    def is_one(d: Detail) -> bool:
        return is_log_call(stack := facts.run.stack(d.stack)) and not in_hook(d.phase, stack)

    cells = [cell for cell in facts.matrix if cell[1] in mechanisms and facts.cause_of(cell) in _LOG_CAUSES]
    calls = facts.part_of(cells, is_one, of_read=True)
    severity = facts.grade(calls.ns, LOG_LIMITS)
    if severity is None or calls.samples < limit("min_samples"):
        return calls, None
    if facts.ms_per_step(calls.ns) >= limit("metric_calls_ms"):
        return calls, severity
    # A few calls, in a short step.
    return calls, "info" if facts.loop_share(calls.ns) >= limit("framework_share") else None
