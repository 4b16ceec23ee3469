"""TP302: the user's own Python, on the CPU with the GIL, takes a notable part of the step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from trainperf.findings import loaders
from trainperf.findings.facts import plural
from trainperf.findings.frames import in_module, is_stdlib_file, is_user_file, user_frame
from trainperf.findings.model import Abstained, Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts, Spot
    from trainperf.runfile import Detail, Frame


def own_python(stack: Sequence[Frame]) -> bool:
    """The innermost frame is the user's, or the standard library's on the user's behalf; not torch's own Python."""
    for f in stack:
        if is_user_file(f.file):
            return True
        if not is_stdlib_file(f.file):
            return False
    return False


class HostPython:
    id = "TP302"
    slug = "host-python"
    limits = Limits(limit("one_function_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("gil_holds",)

    def check(self, facts: Facts) -> Outcome:
        cells = facts.cells("python")
        whole = sum(cells.values())
        if facts.grade(whole, self.limits) is None:
            return None
        samples = facts.samples(phases={p for p, _ in cells}, states=["python"])
        count = sum(d.count for d in samples)
        if count < limit("min_samples"):
            return Abstained(
                self.id,
                self.slug,
                f"only {plural(count, 'sample')} of Python on the training thread: run longer to tell",
            )
        spots = facts.spots(samples, keep=own_python)
        if not spots:
            return None
        top = spots[0]
        if facts.share(int(whole * top.share)) < limit("one_function_share") or top.samples < limit("min_samples"):
            return None
        claims = loaders.spread(cells, int(whole * sum(s.share for s in spots)))
        severity = facts.grade(sum(claims.values()), self.limits)
        if severity is None:
            return None
        cost = sum(claims.values())
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="python",
            claims=claims,
            title="the loop's own Python code takes much of the step",
            confidence=facts.confidence(samples=sum(s.samples for s in spots)),
            evidence=(
                f"{facts.of_step(cost)} the training thread runs your Python, holding the GIL",
                *(f"{s.share:.0%} of {plural(count, 'sample')} in {facts.label(s)}" for s in spots[:3]),
                "it runs before the model is called, not in it: that counts as forward, whose end is the backward"
                if self._before_the_model(facts, samples, top)
                else "",
            ),
            who=(facts.step_thread_name,),
            where=facts.place(top.frame),
            why=f"{facts.step_thread_name} runs {facts.label(top)}",
            fix="# do it in tensors, every N steps, or in a DataLoader worker:\nif step % 50 == 0: ...",
            will_not_help="threads: Python code in a thread takes the GIL from training",
        )

    @staticmethod
    def _before_the_model(facts: Facts, samples: Iterable[Detail], top: Spot) -> bool:
        """Of forward, and never below a module, though other samples of forward are."""
        stacks = [facts.run.stack(d.stack) for d in samples if d.phase == "forward"]
        place = (top.frame.file, top.frame.function)
        mine = [s for s in stacks if (at := user_frame(s)) is not None and (at.file, at.function) == place]
        return bool(mine) and not any(in_module(s) for s in mine) and any(in_module(s) for s in stacks)
