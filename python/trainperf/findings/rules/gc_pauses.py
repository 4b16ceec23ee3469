"""TP303: Python's garbage collector stops the training thread."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trainperf.findings.facts import Spot, ms, plural
from trainperf.findings.frames import is_users
from trainperf.findings.model import Cell, Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts

_WALKS = {
    0: "generation-0 collections walk what was made since the one before: the loop makes many objects",
    1: "generation-1 collections walk what was made lately: the loop makes many objects that stay alive",
    2: "generation-2 collections walk every object that the program keeps alive, but what gc.freeze() set apart",
}

_INCREMENT = "each collection walks what was made lately and a part of what lives long: the loop makes many objects"

_SELDOM = "if step % 500 == 0: gc.collect()"
_DISABLE = f"gc.disable()  # and in the loop, for cycles:\n{_SELDOM}"
_FREEZE = f"gc.collect(); gc.freeze(); gc.disable()  # once, when all is built; gc.collect() every 500 steps\n{_SELDOM}"


def _incremental(facts: Facts) -> bool:
    """CPython 3.14.0 to 3.14.4 collect in increments, as generation 1; 3.14.5 went back to three generations."""
    release = re.match(r"3\.14\.(\d+)", str(facts.run.meta.get("python") or ""))
    return release is not None and int(release[1]) < 5


def _collect_call(facts: Facts, claims: dict[Cell, int]) -> Spot | None:
    """The user's line that calls gc.collect()."""
    samples = facts.samples(phases={phase for phase, _ in claims}, states=["python"])
    spots = facts.spots(samples, keep=lambda stack: is_users(stack[0], stack))
    if not spots or spots[0].ns < limit("half_share") * sum(claims.values()) or spots[0].samples < limit("min_samples"):
        return None
    return spots[0]


class GcPauses:
    id = "TP303"
    slug = "gc-pauses"
    limits = Limits(limit("rare_warn_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("hook_gc",)

    def check(self, facts: Facts) -> Outcome:
        claims = facts.cells("gc")
        cost = sum(claims.values())
        severity = facts.grade(cost, self.limits)
        if severity is None:
            return None
        by_generation: dict[int, list[int]] = {}
        for d in facts.run.detail_totals("gc"):
            entry = by_generation.setdefault(d.code, [0, 0])
            entry[0] += d.ns
            entry[1] += d.count
        spans = facts.run.spans("gc")
        longest = max((s.end_ns - s.start_ns for s in spans), default=0)
        affected = facts.affected("gc")
        worst = max(by_generation, key=lambda g: by_generation[g][0], default=2)
        full, younger = (by_generation.get(g, [0, 0])[1] for g in (2, 1))
        incremental = _incremental(facts)
        # By themselves full collections are half as many as the younger at most; a call makes more, also a library's.
        # In increments none is full but where it is asked for: those count where they take most of it.
        often = worst == 2 if incremental else full >= limit("held_share") * younger
        asked = full >= limit("asked_collections") and often
        call = _collect_call(facts, claims) if asked else None
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="gc",
            claims=claims,
            title="garbage collections stop the training thread"
            if not asked
            else f"gc.collect() is called in the loop ({plural(full, 'time')}), which stops the training thread",
            affected=affected,
            confidence=facts.confidence(samples=None if call is None else call.samples),
            evidence=(
                *(
                    f"{'incremental' if incremental and g == 1 else f'generation {g}'}: {plural(n, 'collection')}, "
                    f"{ms(ns / max(1, n))} each"
                    for g, (ns, n) in sorted(by_generation.items(), key=lambda kv: -kv[1][0])
                ),
                f"the longest took {ms(longest)}" if longest else "",
                f"{affected.steps:,} of {facts.steps:,} steps have nearly all of it"
                if affected.steps < facts.steps
                else "",
            ),
            who=(facts.step_thread_name,),
            where=facts.where(call),
            why=(_INCREMENT if incremental and worst == 1 else _WALKS.get(worst, _WALKS[2]))
            if not asked
            else f"{facts.label(call) if call is not None else 'the loop, or a library in it,'} asks for full "
            "collections, which walk every object that the program keeps alive",
            fix="# remove gc.collect() from the loop (with gc enabled Python collects by itself), or call it every N "
            "steps:\n" + _SELDOM + ("" if call is not None else "  # a library's: by an option of it")
            if asked
            else (_FREEZE if worst == 2 or incremental else _DISABLE),
            will_not_help="gc.disable(): the collections are asked for"
            if asked
            else "gc.disable() alone: cycles then leak; gc.freeze() alone, where the loop itself makes the objects: "
            "those are walked all the same",
        )
