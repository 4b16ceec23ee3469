"""What all messages may use: words for a run that trains and for one that does not, what the engine adds, and the
verdict."""

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

_MARK: Final = "call trainperf.step() after each step"

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
    "windows_apart": "few of its steps were traced, or those differ much",
    "records_lost": "records were lost in {steps:step}",
    "idle_unseen": "it is idle {share} of the time for an unidentified reason",
    "slowed_by_profiler": "the profiler that made the trace slows the host down",
    # Lines of evidence that the engine adds.
    "once": "once in {run}: a longer run tells whether it repeats",
    "told_of_it": "{told} of its cost is reported by {by}",
    "of_runnable": "{share} of runnable time (CPU contention excluded)",
    "traced_in_windows": (
        "an estimate: {gpu} was traced in {steps} of {of:step}, and was idle {low} to {high} of the time (95% interval)"
    ),
    "traced_once": "an estimate: {gpu} was traced in {steps} of {of:step}, too few for an interval",
    "waits_apart": "its waits for a CPU are excluded: {share} of the run, reported separately",
    "clustered": "{share} of it is in steps {first} to {last} (of {steps})",
    "idled_for_it": "{gpu} was idle {each} a step because of it: {share} of its idle time",
    "idled_after_wait": "{gpu} was idle only {each} a step because of it alone; idle time after a wait of the host is "
    "reported with that wait",
    "idled_as_known": "{gpu} was idle {each} a step because of it; some of its idle time has no known cause",
    "had_work": "{gpu} had work meanwhile: it was idle only {each} a step because of it",
    # -- the verdict: its clauses, and what they are made of
    # No step.
    "nothing_yet": "no step has ended yet",
    "killed": "the run was killed, or still runs: nothing of its steps was written yet",
    "no_step": "no training step was seen: no backward, no optimizer step and no loop over a DataLoader ran in this "
    f"process: {_MARK}, or watch the process that trains",
    "no_torch": "no training step was seen: PyTorch was never imported in this process: watch the one that trains, "
    f"or {_MARK}",
    # About a finding.
    "top": "[[{idle}: ]][[{paid}; in addition, ]]{slug}[[, {cost}]]: {title}",
    "idle": "GPU idle {share}[[, {unseen} for an unidentified reason]]",
    "paid": "{title}: {share} of step time",
    "slow_part": "{part} is slow because of it",
    "more_untold": "in addition, {share} is {cause}: unexplained",
    "more_unseen": "in addition, {share} is {cause}: its cause was not seen",
    "larger": "in addition, {slug} costs {share}",
    "of_others": "in addition, {brief}: {share}",
    # What a finding costs.
    "costs_told": "costs {told} in all, reported by {by}",
    "other_findings": "other findings",
    "costs_in_few": "{affected} of {steps} steps, {each}[[several? each]] ({share} of the run)",
    "costs": "{each}/step ({share})",
    # Too few steps.
    "too_few": "only {steps:step} seen: too few for a verdict",
    "few_idle": "the GPU is idle {share} of it",
    "unsampled": "{share} of it unknown: {why}",
    "too_short": "too short for a sample of what ran",
    "run_more": "run more[[plain?, or call run.step() after each (without it the first begins at its backward)]]",
    "swallowed": "{steps} optimizer steps ran in [[alone?it]][[!alone?one of them]]: once run.step() is called, only "
    "run.step() ends a step",
    # About the device, without a finding.
    "gpu_bound": "GPU-bound: the GPU is busy {share} of the time",
    "idle_unclear": "{idle}: no clear verdict",
    "gpu_idle": "GPU idle {share}, busy {busy}: {rest}[[ (most: {most:,})]]",
    "info_on_device": "{title}, {share} of step time",
    "between": "gaps between kernels",
    # About the host, without a finding.
    "unclear": "no clear verdict: step time is {parts}, which is unexplained",
    "unclear_parts": "no clear verdict: step time is {share} {most}; {parts} [[several?are]][[!several?is]] "
    "unexplained",
    "info": "{title}: {share} of step time[[, most of it {cause}]]",
    "on_cpu": "on the CPU for {share} of step time; too few samples to tell Python from {native}",
    "bound": "{name}: {share} of step time is {cause}[[, most of it in {phase}]][[beyond?, most of it outside of "
    "forward, backward and optimizer]]",
    "compute": "compute-bound",
    "gpu_wait": "GPU-bound",
    "launch": "launch-bound",
    "mostly": "mostly {cause}",
    # The class of the task: which part of a step sets the pace.
    "paced": "{part} sets the pace ({share} of the time[[, then {second} {second_share}]])",
    "unpaced": "no single part sets the pace ({part} {share} of the time, {second} {second_share})",
    "part_gpu": "the GPU",
    "part_between": "the gap between kernels",
    "part_data_wait": "data loading",
    "part_h2d_copy": "copying batches to the GPU",
    "part_gpu_wait": "host-device sync",
    "part_launch": "launching operations",
    "part_cuda_alloc": "allocation of device memory",
    "part_module_load": "loading of kernels",
    "part_collective": "communication",
    "part_gil_wait": "waiting for the GIL",
    "part_stop_the_world": "a stop of all threads",
    "part_object_lock": "waiting for an object's lock",
    "part_gc": "garbage collection",
    "part_checkpoint": "saving of checkpoints",
    "part_descheduled": "waiting for a CPU",
    "part_throttled": "the CPU quota",
    "part_blocked_io": "blocking calls",
    "part_python": "Python",
    "part_compute": "computation",
    "part_python+compute": "work on the CPU",
    # That nothing was found, or what there is besides.
    "no_trouble": "no trouble found above {share}",
    "no_other_trouble": "no other trouble found above {share}",
    "no_warning": "no warning, but {costs: and } of step time",
    "info_costs": "{slug} takes {share}",
    "usual": "validation takes {share} of step time",
    "nobodys": "too few samples to attribute {shares}: run longer",
    "unclear_whose": "{share} is {whose}: it is unclear {unknown}",
    # What was not seen.
    "gpu_not_seen": "the GPU was not seen ({why})",
    "gil_unmeasured": "the GIL was not measured",
    "unknown": "for {share} of the time the cause is not known",
    "anomaly": "anomaly detection was on: how much of forward and backward it took is not known",
    "profiled": "PyTorch's profiler was on: how much of each operation it took is not known",
}

# Reasons to be unsure that several rules have.
UNSURE: Final[Mapping[str, str]] = {
    "probe_off": "{why}",
    "no_device": "{why}",
    "no_calls": "the host's calls to the device were not recorded",
    "no_steps": "no step was seen",
}
