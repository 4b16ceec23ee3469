"""What all messages may use: words for a run that trains and for one that does not, and what the engine adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Params of every message, besides `gpu`, the device's name: of a run that trains; of inference or evaluation.
TERMS: Final[Mapping[str, tuple[str, str]]] = {
    "thread": ("the training thread", "the loop's thread"),
    "process": ("the training process", "the process of the loop"),
    "loop": ("the training loop", "the loop"),
    "training": ("training", "the loop"),
    "epoch": ("epoch", "pass over the data"),
}

NOTHING: Final = "# no action needed: one-time cost"  # a fix that saves nothing: Saves(share=0.0)

TEXTS: Final[Mapping[str, str]] = {
    # Where something is.
    "in": "in {place}",
    "in_two": "for {share} of it in {place}, and for {second_share} in {second}",
    "unread": "in code that could not be read",
    # Who.
    "named_thread": "thread '{name}'",
    "worker_processes": "{workers:worker process|worker processes}",
    # Why the confidence is what it is.
    "few_steps": "only {steps} steps",
    "estimated": "estimated ({tier})",
    "no_place": "no sample says where",
    "few_samples": "the place rests on {samples} samples",
    "exact": "{steps} steps, exact times[[, {samples} samples]]",
    "records_lost": "records were lost in {steps:step}",
    "idle_unseen": "it is idle {share} of the time for an unidentified reason",
    "slowed_by_profiler": "the profiler that made the trace slows the host down",
    # Lines of evidence that the engine adds.
    "once": "once in {run}: a longer run tells whether it repeats",
    "told_of_it": "{told} of its cost is reported by {by}",
    "of_runnable": "{share} of runnable time (CPU contention excluded)",
    "waits_apart": "its own waits for a CPU are not in this: {share} of the run, reported separately",
    "clustered": "{share} of it is in steps {first} to {last} (of {steps})",
    "idled_for_it": "{gpu} was idle {each} a step because of it: {share} of its idle time",
    "idled_after_wait": "{gpu} was idle only {each} a step because of it alone; more of it after a wait of the host, "
    "reported as that",
    "idled_as_known": "{gpu} was idle only {each} a step because of it, as far as its idle time has a known cause",
    "had_work": "{gpu} had work meanwhile: it was idle only {each} a step because of it",
}

# Reasons to be unsure that several rules have.
UNSURE: Final[Mapping[str, str]] = {
    "probe_off": "{why}",
    "no_device": "{why}",
    "no_calls": "the host's calls to the device were not recorded",
    "no_steps": "no step was seen",
}
