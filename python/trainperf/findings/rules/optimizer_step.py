"""TP311: the optimizer's step on the CPU is many small operations, and could be few."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trainperf.findings.facts import plural
from trainperf.findings.frames import FrameLike, in_optimizer, in_own_optimizer
from trainperf.findings.model import Cell, Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts

_FUSED = ("Adam", "AdamW", "SGD")  # measured to be faster on the CPU
_FUSED_SINCE = (2, 4)  # of torch, on the CPU
_PLACE = "torch.optim."


@dataclass(frozen=True, slots=True)
class _Optimizer:
    """One of torch's own, on the CPU, as it was at its first step."""

    name: str
    groups: int
    parameters: int
    foreach: bool
    fused: bool

    @property
    def one_by_one(self) -> bool:
        """A row of operations for each parameter; else for each group. On the CPU that is what it does by itself."""
        return not (self.foreach or self.fused)

    @property
    def many_groups(self) -> bool:
        """As with a group for each parameter or layer; two of each, for weight decay, are few."""
        return self.groups >= limit("optimizer_groups") and 4 * self.groups >= self.parameters


class OptimizerStep:
    id = "TP311"
    slug = "optimizer-step"
    limits = Limits(limit("optimizer_share"), None)
    needs: tuple[str, ...] = ("hook_optimizer",)

    def check(self, facts: Facts) -> Outcome:
        if facts.run.feeds_device:
            return None
        optimizer = _the_one(facts)
        if optimizer is None:
            return self._by_hand(facts)
        can_fuse = not optimizer.fused and optimizer.name in _FUSED and _torch(facts) >= _FUSED_SINCE
        # Where each parameter has its own row anyhow, fewer groups alone save nothing.
        fewer_groups = optimizer.many_groups and (can_fuse or not optimizer.one_by_one)
        if not can_fuse and not fewer_groups:
            return None
        claims = _work(facts, in_optimizer, unseen=True)
        severity = facts.grade(sum(claims.values()), self.limits)
        if severity is None:
            return None
        spots = facts.spots(facts.samples(phases=["optimizer"]), keep=in_optimizer)
        groups = plural(optimizer.groups, "group")
        parameters = plural(optimizer.parameters, "parameter")
        each, all_of_them = ("parameter", parameters) if optimizer.one_by_one else ("group", groups)
        kind = "" if optimizer.one_by_one else f", {'fused' if optimizer.fused else 'foreach'}=True"
        fewer = "fewer groups: one for all parameters of equal settings, or for a block of layers"
        fused = f"torch.optim.{optimizer.name}(..., fused=True)"
        return facts.finding(
            (self.id, self.slug),
            severity=severity if fewer_groups else "info",
            cause=facts.main_cause(claims),
            claims=claims,
            title=f"the optimizer's step runs separate operations for each of {all_of_them}",
            confidence=facts.confidence(),
            evidence=(
                f"{facts.of_step(sum(claims.values()))} is the optimizer's, on the CPU",
                f"{optimizer.name} has {parameters} in {groups}{kind}",
            ),
            who=(facts.step_thread_name,),
            where=facts.where(spots[0] if spots else None),
            why=f"{optimizer.name} goes through each {each} by operations of its own",
            fix=f"{fused}\n# and {fewer}" if can_fuse and fewer_groups else fused if can_fuse else f"# {fewer}",
            fix_share=limit("optimizer_saves"),
            will_not_help="foreach=True, where groups are many or parameters large; more DataLoader workers",
        )

    def _by_hand(self, facts: Facts) -> Outcome:
        """An info: an update that nobody else has written is needed."""
        if all(_is_torchs(description) for kind, description in facts.run.objects.values() if kind == "optimizer"):
            return None
        spots = facts.spots(facts.samples(phases=["optimizer"]), keep=in_own_optimizer)
        top = spots[0] if spots else None
        if top is None or top.samples < limit("min_samples"):
            return None
        claims = _work(facts, in_own_optimizer, unseen=False)
        if facts.grade(sum(claims.values()), self.limits) is None:
            return None
        return facts.finding(
            (self.id, self.slug),
            severity="info",
            cause=facts.main_cause(claims),
            claims=claims,
            title="the optimizer's step is the program's own code",
            confidence=facts.confidence(samples=sum(spot.samples for spot in spots)),
            evidence=(
                f"{facts.of_step(sum(claims.values()))} is in an optimizer that is none of torch.optim's, on the CPU",
            ),
            who=(facts.step_thread_name,),
            where=facts.where(top),
            why=f"{facts.step_thread_name} updates the weights in {facts.label(top)}",
            fix="# the optimizer of torch.optim that does the same: Adam, AdamW and SGD have fused=True\n"
            "# else in place (mul_, addcmul_, addcdiv_: no temporary tensors), or of all parameters at once",
            fix_share=limit("optimizer_saves"),
            will_not_help="more DataLoader workers; a faster model",
        )


def _work(facts: Facts, is_own: Callable[[Sequence[FrameLike]], bool], *, unseen: bool) -> dict[Cell, int]:
    """Of the phase's exact time on the CPU what samples show in the optimizer itself: hooks of its step, and closures,
    are in that phase as well. Where nothing was sampled: all of it if `unseen`, else nothing."""
    claims: dict[Cell, int] = {}
    for state in ("python", "native"):
        samples = facts.samples(phases=["optimizer"], states=[state])
        own = sum(d.ns for d in samples if is_own(facts.run.stack(d.stack)))
        whole = sum(d.ns for d in samples if facts.run.stack(d.stack))
        exact = facts.matrix["optimizer", state]
        claims["optimizer", state] = exact * own // whole if whole else exact if unseen else 0
    return claims


def _the_one(facts: Facts) -> _Optimizer | None:
    """Several of one kind are as one; None of different kinds, of which the time is not known apart."""
    read = [_read(description) for kind, description in facts.run.objects.values() if kind == "optimizer"]
    known = [o for o in read if o is not None]
    if not known or len(known) < len(read) or len({(o.name, o.foreach, o.fused) for o in known}) > 1:
        return None
    return replace(known[0], groups=sum(o.groups for o in known), parameters=sum(o.parameters for o in known))


def _is_torchs(description: Mapping[str, Any]) -> bool:
    return str(description.get("module", "")).startswith(_PLACE)


def _read(description: Mapping[str, Any]) -> _Optimizer | None:
    """None where it is not torch's own, not on the CPU, or not described so far, as by an older trainperf."""
    groups, parameters = description.get("groups"), description.get("parameters")
    if (
        not _is_torchs(description)
        or description.get("device") != "cpu"
        or not isinstance(groups, int)
        or not isinstance(parameters, int)
    ):
        return None
    foreach, fused = description.get("foreach") is True, description.get("fused") is True
    return _Optimizer(str(description.get("class")), groups, parameters, foreach, fused)


def _torch(facts: Facts) -> tuple[int, ...]:
    parts = facts.run.meta.get("torch", "").split(".")[:2]
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else ()
