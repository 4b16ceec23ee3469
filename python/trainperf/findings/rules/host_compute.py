"""TP310: native code of the loop's own, beside the training itself, takes much of the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainperf.findings import file_work, host_work, source_marks
from trainperf.findings.facts import Affected, ms, plural
from trainperf.findings.frames import runs_layer
from trainperf.findings.host_work import Telling
from trainperf.findings.model import Abstained, Finding, Limits, Outcome, Severity
from trainperf.findings.own_code import (
    arrays_in_model,
    beside_the_model,
    forward_beside_layers,
    native_cells,
    own_code,
    too_few_samples,
)
from trainperf.findings.text import SELDOM
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.own_code import OwnCode


_IN_THE_MODEL = Telling(
    title="the model or its loss computes in NumPy or its like",
    fix="# by operations of PyTorch; or, where it needs the batch alone, in Dataset.__getitem__, by workers or "
    "once beforehand",
    will_not_help="a faster GPU: it runs on the CPU, in each call of the model",
)
_MAY_BE_A_LOSS = Telling(
    title="the loop computes outside of any module",
    fix="# a loss, a model, an average of the weights: of all at once, in fewer operations\n"
    f"{SELDOM}\n# the batch: in Dataset.__getitem__, by workers",
    will_not_help="a faster model",
)
_WITHOUT_TRAINING = Telling(
    title=_MAY_BE_A_LOSS.title,
    fix="# the batch: in Dataset.__getitem__, by workers; results: of all of the batch at once, in fewer operations",
    will_not_help="a faster model",
)
_LOSS_IN_PIECES = Telling(
    title="the loop computes outside of any module, in operations that make backward long",
    fix="# compute it of the whole batch at once: no Python loop over samples, classes or pairs\n"
    "# where no gradient is needed: with torch.no_grad(), every N steps",
    will_not_help="a faster model; DataLoader workers",
)


class HostCompute:
    id = "TP310"
    slug = "host-compute"
    limits = Limits(limit("warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("gil_holds", "stacks")

    def check(self, facts: Facts) -> Outcome:
        mine = own_code(facts, "native")
        severity = facts.grade(mine.ns, self.limits)
        top = mine.spots[0] if mine.spots else None
        if severity is None or top is None or top.samples < limit("min_samples"):
            found = [f for f in (self._beside_the_model(facts), self._in_the_model(facts)) if f is not None]
            return max(found, key=lambda f: f.cost_ns) if found else self._blind(facts, mine)
        # Without torch's optimizers, the loop's own update of the weights is here as well.
        if not facts.run.phase_ns("optimizer") and not facts.inference:
            severity = "info"
        affected = _affected(facts, mine)
        took = f"{facts.of_step(mine.ns)} is "
        if affected.steps < facts.steps:
            each = ms(mine.ns * affected.share / affected.steps)
            took = f"{affected.steps:,} of {facts.steps:,} steps, {each} each: "
        told = host_work.telling(facts, mine, top, rare=affected.rare(facts.steps))
        python = mine.share(mechanism="python")
        return self._finding(
            facts,
            mine,
            severity,
            told,
            evidence=(
                f"{took}{told.what(python)}",
                f"{python:.0%} of it is Python in the same functions" if python >= limit("warn_share") else "",
                *mine.evidence(facts),
            ),
        )

    def _beside_the_model(self, facts: Facts) -> Finding | None:
        """An info, as a loss is computed there and is needed, unless backward is too long for a model and its loss."""
        mine = beside_the_model(facts)
        top = mine.spots[0] if mine.spots else None
        if top is None or top.samples < limit("min_samples"):
            return None
        severity = facts.grade(int(mine.ns * top.share), self.limits)
        if severity is None:
            return None
        call = file_work.file_call(facts, mine)
        if call:
            told = host_work.of_files(call)
            took = f"{facts.of_step(mine.ns)} is {told.what(0.0)}"
            return self._finding(facts, mine, severity, told, evidence=(took, *mine.evidence(facts)))
        forward, backward = facts.run.phase_ns("forward"), facts.run.phase_ns("backward")
        in_backward = backward >= limit("backward_ratio") * forward > 0 and mine.ns >= limit("half_share") * forward
        return self._finding(
            facts,
            mine,
            severity if in_backward else "info",
            _LOSS_IN_PIECES if in_backward else _WITHOUT_TRAINING if facts.inference else _MAY_BE_A_LOSS,
            evidence=(
                f"{facts.of_step(mine.ns)} is in functions of yours that no module calls"
                + ("" if facts.inference else ", most of it in what counts as forward: all that ends with a backward"),
                *mine.evidence(facts),
                f"backward takes {backward / forward:.1f} times as long as forward, of a model and its loss one to two:"
                " it goes back through each of these operations"
                if in_backward
                else "a part of the model that is a plain function is needed there"
                if facts.inference
                else "a loss, or a part of the model that is a plain function, is needed there; a metric or an average "
                "of the weights is not needed in each step, and a batch can be made before, in a DataLoader worker",
            ),
            saves_more=in_backward,
        )

    def _in_the_model(self, facts: Facts) -> Finding | None:
        """An info: a part of the model may need it."""
        mine = arrays_in_model(facts)
        top = mine.spots[0] if mine.spots else None
        if top is None or top.samples < limit("min_samples") or facts.grade(mine.ns, self.limits) is None:
            return None
        took = f"{facts.of_step(mine.ns)} is in such libraries' code, which no gradient goes through by itself"
        return self._finding(facts, mine, "info", _IN_THE_MODEL, evidence=(took, *mine.evidence(facts)))

    def _finding(
        self,
        facts: Facts,
        mine: OwnCode,
        severity: Severity,
        told: Telling,
        *,
        evidence: Sequence[str],
        saves_more: bool = False,
    ) -> Finding:
        top = mine.spots[0]
        second = facts.second(mine.spots)
        loop = source_marks.fused(facts, top)
        if source_marks.rewrites(facts, top):
            told = host_work.REWRITES
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause=facts.main_cause(mine.claims),
            claims=mine.claims,
            title=told.title,
            affected=_affected(facts, mine),
            confidence=facts.confidence(samples=mine.samples, doubts=(told.doubt,) if told.doubt else ()),
            evidence=evidence,
            who=(facts.step_thread_name,),
            where=facts.where(top),
            why=f"{facts.step_thread_name} {told.does} "
            + (f"in {facts.label_with_caller(top)}" if second is None else facts.label_of_two(top, second, "in ")),
            fix=loop or told.fix,
            fix_share=facts.saved_share(mine.spots),
            will_not_help=told.will_not_help,
            saves_more=saves_more,
            finds_out=told in (_MAY_BE_A_LOSS, _WITHOUT_TRAINING) and not loop,
        )

    def _blind(self, facts: Facts, mine: OwnCode) -> Abstained | None:
        """Where much native code runs beside the model, and it cannot be told whose."""
        outside = facts.matrix["other", "native"]
        ns, why = mine.ns, too_few_samples(facts, mine, self.limits)
        if facts.grade(outside, self.limits) is not None:
            if facts.run.feeds_device and facts.gpu is None:
                return Abstained(self.id, self.slug, "with a device, native code may be waiting for it")
            count = sum(d.count for d in facts.samples(phases={p for p, _ in native_cells(facts)}, states=["native"]))
            if count < limit("min_samples"):
                ns, why = outside, f"only {plural(count, 'sample')} of native code on the training thread: run longer"
        if why:
            return Abstained(self.id, self.slug, why, "compute beside the model", "compute", ns)
        return self._undecided(facts)

    def _undecided(self, facts: Facts) -> Abstained | None:
        """What may be the model, or work on its batch."""
        mine = forward_beside_layers(facts)
        top = mine.spots[0] if mine is not None and mine.spots else None
        if mine is not None and top is not None and self._is_large(facts, mine.ns, top.samples):
            layers = any(runs_layer(facts.run.stack(d.stack)) for d in facts.samples())
            seen = "outside of any module" if layers else "no layer of torch.nn was seen"
            ratio = facts.run.phase_ns("forward") / facts.run.phase_ns("backward")
            return self._abstained(
                f"{seen}: whether {facts.label(top)} is the model or works on its batch is unclear; forward takes "
                f"{ratio:.1f} times as long as backward, too long for a model alone",
                mine.ns,
                f"which part is the model; {top.share:.0%} of it runs in {facts.label(top)}",
            )
        unsure_ns = facts.batch_work.unsure_ns
        if not self._is_large(facts, unsure_ns, int(limit("min_samples"))):
            return None
        return self._abstained(
            "whether PyTorch's functions before the first layer are the model or work on its batch is unclear: "
            "backward is long enough to go through them",
            unsure_ns,
            "which part is the model, and which works on its batch",
        )

    def _is_large(self, facts: Facts, ns: int, samples: int) -> bool:
        return samples >= limit("min_samples") and facts.grade(ns, self.limits) is not None

    def _abstained(self, why: str, ns: int, unknown: str) -> Abstained:
        return Abstained(self.id, self.slug, why, "compute before backward", "compute", ns, unknown)


def _affected(facts: Facts, mine: OwnCode) -> Affected:
    """The few steps that the samples or, between the phases, the exact times say that it is in; or all. Others may be
    long between the phases for a wait, or compute longer within one: its own do both."""
    seen = mine.affected(facts.steps)
    if seen.steps < facts.steps or mine.share(phase="other") < limit("held_share"):
        return seen
    few = facts.affected_by_part(mine.ns, phase="other")
    computing = facts.affected_by_part(mine.ns, cause=facts.main_cause(mine.claims))
    return few if computing.steps <= 2 * few.steps and computing.steps < facts.steps else seen
