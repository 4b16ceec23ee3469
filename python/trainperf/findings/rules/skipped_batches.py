"""TP107: batches are made and dropped, as where a training resumes within an epoch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trainperf.findings import frames, loaders, trainer_words
from trainperf.findings.facts import Affected, ms, plural
from trainperf.findings.fetching import Fetching
from trainperf.findings.model import Outcome

if TYPE_CHECKING:
    from trainperf.findings.facts import Facts
    from trainperf.findings.skipped import Skipped

_TRAINER = re.compile(r"[/\\]transformers[/\\]trainer\w*\.py$")
_OF_INDICES = (
    "# skip indices, not batches: torchdata's StatefulDataLoader, accelerate.skip_first_batches(loader, n),\n"
    "# or itertools.islice(sampler, seen, None) in the sampler's __iter__"
)


class SkippedBatches:
    id = "TP107"
    slug = "skipped-batches"
    limits = loaders.SKIPPED_LIMITS
    needs: tuple[str, ...] = ("hook_dataloader",)

    def check(self, facts: Facts) -> Outcome:
        mine = facts.skipped
        severity = facts.grade(mine.ns, self.limits) if mine is not None else None
        if mine is None or severity is None:
            return None
        workers, name = loaders.num_workers(mine.main), loaders.dataset_name(mine.main)
        cells = facts.cells("data_wait", ["fetch"])
        fetching = Fetching.of(facts, cells, without_sampler=False) if not workers else None
        made = f"{mine.batches:,} batches"  # ten or more
        when = "before the first step" if mine.in_first else f"in {plural(mine.steps, 'step')}"
        by = f"by {plural(workers, 'worker')}" if workers else "on the training thread"
        where = facts.where(fetching.top) if fetching is not None else ""
        caller = _caller(facts)
        return facts.finding(
            (self.id, self.slug),
            severity=severity,
            cause="data_wait",
            claims=mine.claims,
            title=f"{made} were {'made and dropped' if mine.in_first else 'fetched and not trained on'} {when}",
            affected=Affected(mine.steps, 1.0),
            confidence=facts.confidence(
                samples=fetching.samples if fetching is not None else None,
                doubts=("whether something else uses them, such as statistics of the data, is not measured",),
            ),
            evidence=(
                f"{made} fetched {when} and not trained on: {ms(mine.ns)} in all, {ms(mine.ns / mine.batches)} each",
                f"a usual step fetches {plural(max(1, _usual(facts)), 'batch', 'es')}",
                *(fetching.evidence(facts) if fetching is not None else ()),
            ),
            who=(facts.step_thread_name, plural(workers, "worker process", "es") if workers else ""),
            where=where or loaders.dataset_place(mine.main, facts),
            why=f"{made} of {name} were made {by} {when}" + (f", fetched by {caller}" if caller else ""),
            fix=_fix(facts, mine),
            will_not_help="more workers: they would make the dropped batches, too",
        )


def _usual(facts: Facts) -> int:
    table = facts.run.steps
    order = sorted((int(f) / int(n) for f, n in zip(table.fetches, table.count, strict=True)))
    return round(order[len(order) // 2])


def _caller(facts: Facts) -> str:
    """The user's line that fetches; "" where a library's loop does, or it was not seen."""
    seen = [d for d in facts.samples(phases=["fetch"]) if frames.in_loader(facts.run.stack(d.stack))]
    spots = facts.spots(seen, seen_from=lambda stack: stack[frames.in_loaders(stack) :])
    return facts.label(spots[0]) if spots and spots[0].frame.function != "<module>" else ""


def _fix(facts: Facts, mine: Skipped) -> str:
    if not mine.in_first:
        return (
            "# if they are dropped: do so before they are made, in the sampler, or by an index of the data made once\n"
            "# if they validate: call model.eval() before, so that they count as validation"
        )
    source = _OF_INDICES
    if loaders.is_stream(mine.main):
        source = (
            f"# skip at the source: let {loaders.dataset_name(mine.main)}.__iter__ begin at sample n without making "
            "those before,\n# or torchdata's StatefulDataLoader and a dataset with state_dict()"
        )
    if _in_trainer(facts):
        return f"TrainingArguments(ignore_data_skip=True)  # if training may see the first batches again; or:\n{source}"
    return source


def _in_trainer(facts: Facts) -> bool:
    """Hugging Face's, with our callback or without."""
    return bool(trainer_words.arguments(facts.run.meta)) or any(
        _TRAINER.search(f.file) for d in facts.samples(phases=["fetch"]) for f in facts.run.stack(d.stack)
    )
