"""The words of findings about what the training thread runs on the CPU, and what it waits for."""

from __future__ import annotations

from typing import Final

from trainperf.findings.messages.catalogue import Doubt, Doubts, Message, Messages

_FRAMEWORK: Final = Message(
    title="Python overhead in PyTorch or its framework is much of the step",
    why="modules[[!inference?, optimizer]] and training framework run Python between operations[[, mostly in {place}]]",
    evidence=(
        "{each} of each step ({samples:sample})",
        "{place_share} of it in {place_and_caller}",
        "{profiler} of it is torch.profiler's",
    ),
    will_not_help="more DataLoader workers",
)
_NO_ANOMALY: Final = (
    "[[anomaly?torch.autograd.set_detect_anomaly(False)  # or no `with` of it: each operation keeps its stack\n]]"
)
_OPTIMIZER: Final = Message(
    title="the optimizer's step runs separate operations for each of "
    "[[one_by_one?{parameters:parameter}]][[!one_by_one?{groups:group}]]",
    why="{name} runs separate operations for each [[one_by_one?parameter]][[!one_by_one?param group]]",
    evidence=(
        "{each} of each step's {step} is optimizer time, on the CPU",
        "{name} has {parameters:parameter} in {groups:group}[[, {kind}]]",
    ),
    fix="torch.optim.{name}(..., fused=True)",
    will_not_help="foreach=True with many groups or large parameters; more DataLoader workers",
)
_FEWER_GROUPS: Final = "fewer groups: one for all parameters with equal settings, or per block of layers"
_NO_GRADIENT: Final = "with torch.inference_mode(): ..."
_FORWARD: Final = Message(
    title="a model runs outside of the training step: evaluation or extra forward passes",
    why="{place} runs a model that no backward goes through",
    evidence=(
        "{each} of each step's {step} is in modules called there: {reason}",
        "{spots.share} of {samples:sample} of it in {spots.place}",
    ),
    fix="# run it less often (evaluation, a memory bank), on a part of the data, in large batches, without gradients:\n"
    f"{_NO_GRADIENT}",
    will_not_help="anything that makes training steps faster; DataLoader workers",
)
_ANOMALY: Final = Message(
    title="autograd anomaly detection is on (lower bound: NaN checks are not counted)",
    why="autograd stores the Python stack of every operation, and checks every gradient for NaN",
    evidence=(
        "at least {each}/step formats Python stacks ({samples:sample})",
        "it was on for {percent}% of the time",
        "its NaN checks in backward also cost time, which this number excludes",
        "{modes.said}",
    ),
    fix="torch.autograd.set_detect_anomaly(False)  # and no `with torch.autograd.detect_anomaly()`",
    will_not_help="torch.compile, a faster model, more DataLoader workers",
)

MESSAGES: Final[Messages] = {
    "TP309": {
        "profiler": _FRAMEWORK.but(
            title="PyTorch's profiler is much of the step",
            why="torch.profiler starts, stops and writes its trace on {thread}[[: most of it in {place}]]",
            fix="# profile fewer steps, and without with_stack; or take the profiler out:\n"
            "profile(schedule=schedule(wait=10, warmup=2, active=5, repeat=1))",
        ),
        "model": _FRAMEWORK.but(fix=f"{_NO_ANOMALY}model = torch.compile(model)  # or a larger batch"),
        "networks": _FRAMEWORK.but(
            fix=f"{_NO_ANOMALY}self.model = torch.compile(self.model)  # its networks only: logging can't compile; or "
            "a larger batch"
        ),
        "optimizer": _FRAMEWORK.but(fix=f"{_NO_ANOMALY}{{optimizer}}"),
        "log": _FRAMEWORK.but(
            fix=f"{_NO_ANOMALY}# log fewer metrics, or every N steps\nif batch_idx % 50 == 0: self.log(...)"
        ),
        "calls": _FRAMEWORK.but(fix=f"{_NO_ANOMALY}# call it less often, or on more data at once: {{where}}"),
        "few_samples": _FRAMEWORK.but(
            fix=f"{_NO_ANOMALY}# run longer: too few samples to tell whether the model, [[!inference?the optimizer "
            f"]]or "
            "logging has most of it"
        ),
    },
    "TP311": {
        "fused": _OPTIMIZER,
        "fewer_groups": _OPTIMIZER.but(fix=f"# {_FEWER_GROUPS}"),
        "fused_and_fewer_groups": _OPTIMIZER.but(fix=f"{_OPTIMIZER.fix}\n# and {_FEWER_GROUPS}"),
        "own_code": Message(
            title="the optimizer's step is the program's own code",
            why="{thread_name} updates the weights in {place}",
            evidence=("{each} of each step's {step} is in an optimizer not from torch.optim, on the CPU",),
            fix="# use torch.optim's equivalent: Adam, AdamW and SGD have fused=True\n"
            "# else update in place (mul_, addcmul_, addcdiv_: no temporary tensors), or all parameters at once",
            will_not_help="more DataLoader workers; a faster model",
        ),
    },
    "TP312": {
        "outside": _FORWARD,
        "hardly_trained": _FORWARD.but(
            title="a model runs with hardly any backward: a frozen one, rollouts, or evaluation",
            why="{place} runs a model that little backward goes through",
            fix="# frozen model: run it once per sample before training; rollouts: batch them; evaluation: less "
            f"often\n{_NO_GRADIENT}",
            will_not_help="a faster backward or optimizer; DataLoader workers",
        ),
        "frozen_layers": _FORWARD.but(
            title="most of the model's forward is in frozen layers",
            why="{place} runs a model with frozen layers[[: {layers:,}]]",
            fix="# compute the frozen layers' outputs once per sample, before training, and train on those:\n"
            f"{_NO_GRADIENT}",
            will_not_help="a faster backward or optimizer; DataLoader workers",
        ),
    },
    "TP313": {
        "anomaly": _ANOMALY,
        "anomaly_in_lightning": _ANOMALY.but(fix="Trainer(..., detect_anomaly=False)"),
        "tracer": Message(
            title="a trace function is set ({how})",
            why="Python calls the trace function at every call and return, with sys.settrace also at every line",
            evidence=(
                "[[named?{name}]][[!named?a function in C]] was set for {percent}% of the time",
                "at least {each}/step runs in it ({samples:sample})",
                "!each?how much of the {python} Python time it costs was not measured",
                "{modes.said}",
            ),
            fix="{fix}",
            will_not_help="optimizing single functions",
        ),
    },
}

TEXTS: Final = {
    "optimizer_fused": "torch.optim.{name}(..., fused=True)  # or a larger batch",
    "optimizer_foreach": "torch.optim.{name}(..., foreach=True)  # or a larger batch",
    "optimizer_as_it_is": "# a larger batch, or gradient accumulation: fewer optimizer steps",
    "optimizer_unknown": "# pass fused=True (Adam, AdamW, SGD) or foreach=True to the optimizer; or use a larger batch",
    "forward_outside": "no backward follows it",
    "forward_untrained": "counted as forward, {times:.1f} times as long as all of backward, which covers little of it",
    "forward_in_few": "in {few} of {steps} steps, {longer} each, forward is longer by so much than in most, and "
    "backward is not",
    "later_backward": "a forward whose backward comes after the next fetch of a batch would look the same",
    "off_settrace": "sys.settrace(None)  # run without the debugger or coverage that set it",
    "off_monitoring": "sys.monitoring.free_tool_id(id)  # run without the tool that registered",
    "off_setprofile": "sys.setprofile(None)  # run without the profiler that set it",
    "anomaly_was_on": "anomaly detection was on for {percent}% of the time: too few samples for its cost",
    "tracer_was_on": "a trace function ({how}) was on for {percent}% of the time: too few samples for its cost",
    "profiler_was_on": "PyTorch's profiler was on for {percent}% of the time: its cost in each operation was not "
    "measured",
    "blocking_was_on": "CUDA_LAUNCH_BLOCKING=1 was set: each launch waited for its kernel, and for how long was not "
    "measured; unset it",
    "deterministic_was_on": "deterministic algorithms were on for {percent}% of the time: how much faster the others "
    "are was not measured",
}

UNSURE: Final[Doubts] = {
    "may_train": Doubt(
        why="{place} may evaluate a model or train it: {each} of each step's {step} is there, and backward is long "
        "enough to cover that too",
        whose="compute in modules between the phases",
        unknown="whether it is trained",
    ),
    "modes_without_price": "{modes}",
}
