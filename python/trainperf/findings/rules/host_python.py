"""TP302: the user's own Python, on the CPU with the GIL, takes a notable part of the step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from trainperf.findings import loaders
from trainperf.findings.facts import plural
from trainperf.findings.frames import in_module, is_the_loops, named_function, user_frame
from trainperf.findings.model import Abstained, Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts, Spot
    from trainperf.runfile import Detail


# Where the code runs says where else it could: what is a part of each step can be in no other process.
_IN_TENSORS = {
    "optimizer": "# update all parameters by a few tensor operations (torch._foreach_add_), or by torch.optim",
    "backward": "# do it by a few tensor operations: it is a part of every backward",
    "model": "# do it by a few tensor operations, or once and not in each call of the model",
}
_ELSEWHERE = "# do it in tensors, every N steps, or in a DataLoader worker:\nif step % 50 == 0: ..."


class HostPython:
    id = "TP302"
    slug = "host-python"
    limits = Limits(limit("one_function_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("gil_holds",)

    def check(self, facts: Facts) -> Outcome:
        cells = facts.cells("python")
        moving = ("transfer", "python")
        if facts.matrix[moving] and not facts.run.feeds_device:
            cells[moving] = facts.matrix[moving]  # no device to copy to: whatever that phase does is the loop's own
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
        spots = facts.spots(samples, keep=is_the_loops)
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
            cause="h2d_copy" if claims.get(moving, 0) > cost / 2 else "python",
            claims=claims,
            title="the loop's own Python code takes much of the step",
            confidence=facts.confidence(samples=sum(s.samples for s in spots)),
            evidence=(
                f"{facts.of_step(cost)} the training thread runs your Python, or a library's for it, holding the GIL",
                *(
                    f"{s.share:.0%} of {plural(count, 'sample')} in {facts.label_with_caller(s)}"
                    for s in spots[:3]
                    if s is top or s.share >= limit("show_share")
                ),
                f"{claims[moving] / cost:.0%} of it in phase transfer (h2d_copy), where nothing is copied to a device"
                if claims.get(moving)
                else "",
                "it runs before the model is called, not in it: that counts as forward, whose end is the backward"
                if self._before_the_model(facts, samples, top)
                else "",
            ),
            who=(facts.step_thread_name,),
            where=facts.place(top.frame),
            why=f"{facts.step_thread_name} runs {facts.label_with_caller(top)}",
            fix=_IN_TENSORS.get(self._part(facts, samples, top), _ELSEWHERE),
            will_not_help="threads: Python code in a thread takes the GIL from training",
        )

    @staticmethod
    def _part(facts: Facts, samples: Iterable[Detail], top: Spot) -> str:
        """The part of the step that most of the top function's time is in: a phase, or the model."""
        place = (top.frame.file, named_function(top.frame.function))
        parts: dict[str, int] = {}
        for d in samples:
            stack = facts.run.stack(d.stack)
            at = user_frame(stack)
            if at is not None and (at.file, named_function(at.function)) == place and is_the_loops(stack):
                part = "model" if d.phase == "forward" and in_module(stack) else d.phase
                parts[part] = parts.get(part, 0) + d.ns
        return max(parts, key=lambda part: parts[part], default="")

    @staticmethod
    def _before_the_model(facts: Facts, samples: Iterable[Detail], top: Spot) -> bool:
        """Of forward, and never below a module, though other samples of forward are."""
        stacks = [facts.run.stack(d.stack) for d in samples if d.phase == "forward"]
        place = (top.frame.file, named_function(top.frame.function))
        mine = [
            s for s in stacks if (at := user_frame(s)) is not None and (at.file, named_function(at.function)) == place
        ]
        return bool(mine) and not any(in_module(s) for s in mine) and any(in_module(s) for s in stacks)
