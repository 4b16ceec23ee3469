"""TP702: one of the trainer's loggers takes a notable part of the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainperf.findings import framework, trainer_words
from trainperf.findings.facts import ms, plural
from trainperf.findings.model import Limits, Outcome
from trainperf.findings.thresholds import limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainperf.findings.facts import Facts


_OF_CSV = (
    "CSVLogger(..., flush_logs_every_n_steps=1000)  # and the same keys in each call: a new one rewrites metrics.csv"
)


class TrainerLogger:
    id = "TP702"
    slug = "trainer-logger"
    limits = Limits(limit("framework_part_share"), limit("critical_share"))
    needs: tuple[str, ...] = ("lightning_profiler",)

    def check(self, facts: Facts) -> Outcome:
        loggers = framework.loggers(facts)
        if not loggers:
            return None
        top = loggers[0]
        felt = [top, *(p for p in loggers[1:] if p.own_ns >= limit("felt_share") * top.own_ns)]
        claims = framework.claims_of_all(facts, [(p, p.own_ns) for p in felt], "logging")
        severity = facts.grade(sum(claims.values()), self.limits)
        if severity is None:
            return None
        hook = top.hooks[0]
        second = next((h for h in top.hooks[1:] if h.own_ns >= limit("felt_share") * top.own_ns), None)
        often, fix, fix_share = _advice(facts, felt)
        if top.name == "CSVLogger" and hook.name == "save":
            fix, fix_share = f"{_OF_CSV}\n{fix}", 1.0
        others = [f"{p.name} {facts.share(p.own_ns):.1%}" for p in loggers[len(felt) : len(felt) + 2]]
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="logging",
            claims=claims,
            title=f"the {framework.named(felt)} up the loop",
            affected=facts.affected("logging"),
            confidence=facts.confidence(),
            evidence=(
                f"{facts.of_step(top.own_ns)} in {top.name}, which writes on the training thread",
                _told(facts, hook),
                *(f"{facts.of_step(p.own_ns)} in {p.name}: {_told(facts, p.hooks[0])}" for p in felt[1:]),
                f"other loggers: {', '.join(others)}" if others else "",
            ),
            who=(*(f"{p.name}.{p.hooks[0].name}" for p in felt), hook.by),
            where=top.place(facts),
            why=f"{top.name}.{hook.name} takes {ms(hook.own_ns / max(1, hook.count))} a call"
            + often
            + (
                f"; {second.own_ns / top.own_ns:.0%} of its time is in {_called(facts, second)}"
                if second is not None
                else ""
            ),
            fix=fix,
            fix_share=fix_share,
            will_not_help="a faster model or more workers: it is the same for each log call",
        )


def _advice(facts: Facts, felt: Sequence[framework.Part]) -> tuple[str, str, float]:
    """How often the costliest calls come, what makes them fewer, and of what share of the cost: the trainer's options
    set nothing of what the program logs by itself."""
    hook, whole_ns = felt[0].hooks[0], sum(part.own_ns for part in felt)
    if hook.by:
        fix = f"# in {hook.by}: log less often, or several metrics in one call"
        return f", called by {framework.called_by(facts, hook)}", fix, hook.own_ns / whole_ns
    arguments = trainer_words.arguments(facts.run.meta)  # of Hugging Face's
    every = arguments.get("logging_steps") if arguments else framework.trainer(facts).get("log_every_n_steps")
    option = "TrainingArguments(logging_steps" if arguments else "Trainer(log_every_n_steps"
    fix = f"{option}={_less_often(every)})" + (f"  # now {every}" if isinstance(every, int) else "")
    often = f", every {plural(every, 'step')}" if isinstance(every, int) and every > 0 else ""
    return often, fix, sum(h.own_ns for part in felt for h in part.hooks if not h.by) / whole_ns


def _told(facts: Facts, hook: framework.Hook) -> str:
    each = ms(hook.own_ns / max(1, hook.count))
    return f"{_called(facts, hook)}: {plural(hook.count, 'call')}, {each} each, the longest {ms(hook.max_ns)}"


def _called(facts: Facts, hook: framework.Hook) -> str:
    return f"{hook.name}, called by {framework.called_by(facts, hook)}" if hook.by else hook.name


def _less_often(every: object) -> int:
    return max(50, 5 * every) if isinstance(every, int) else 50
