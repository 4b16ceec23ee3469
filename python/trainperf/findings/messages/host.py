"""The words of findings about what runs on the CPU: the loop's own code, frameworks', the optimizer; of settings."""

from __future__ import annotations

from functools import partial
from typing import Final

from trainperf.findings.text import Doubt, Doubts, Message, Messages

# -- frameworks' Python, the optimizer, models, debug modes

_FRAMEWORK: Final = Message(
    title="Python overhead in PyTorch or the training framework is much of the step",
    why="modules[[!inference?, optimizer]] and training framework run Python between operations[[, mostly in {place}]]",
    evidence=(
        "{each} of each step is such Python ({samples:sample})",
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
        "{spots.share} of its {samples:sample} in {spots.place}",
    ),
    fix="# run it less often (evaluation, a memory bank), on a part of the data, in large batches, without gradients:\n"
    f"{_NO_GRADIENT}",
    will_not_help="anything that makes training steps faster; DataLoader workers",
)
_ANOMALY: Final = Message(
    title="autograd anomaly detection is on (lower bound: NaN checks are not counted)",
    why="autograd stores the Python stack of every operation, and checks every gradient for NaN",
    evidence=(
        "formatting Python stacks takes at least {each} a step ({samples:sample})",
        "it was on for {percent}% of the time",
        "its NaN checks in backward also cost time, which this number excludes",
        "{modes.said}",
    ),
    fix="torch.autograd.set_detect_anomaly(False)  # and no `with torch.autograd.detect_anomaly()`",
    will_not_help="torch.compile, a faster model, more DataLoader workers",
)

# -- settings

_LOWER_BOUND: Final = "at least {each} of each step's {step} ({samples:sample})"


_NO_SAMPLE: Final = "no stack sample shows"
_NO_DEVICE: Final = "no work on a GPU was recorded"

# By setting: its name; `_why` it has no price, or what it risks; its `_fix`; why it was `_unseen`.

# -- the loop's own code: its Python, and its native code

_EACH: Final = "[[{few} of {steps} steps, {few_each} each:]][[!few?{each} of each step's {step}]]"
_FOR: Final = _EACH.replace("[[!few?", "[[!few?for ")  # a sentence follows
_SPOTS: Final = "{spots.share} of its {samples:sample} in {spots.place}"
_IF_SELDOM: Final = "if step % 50 == 0: ..."
# What training needs in each step is no better for being done seldom: clipping, a part of the loss.
_SELDOM_OR: Final = f"# compute metrics every N steps; if every step needs it, {{}}\n{_IF_SELDOM}"
_SELDOM: Final = f"# compute metrics, statistics and plots every N steps: {_IF_SELDOM}"
_OF_WEIGHTS: Final = (
    "[[weights?# it works on one weight or gradient at a time: do all at once (clip_grad_norm_, torch._foreach_lerp_); "
    "copy them more rarely\n]]"
)
_APPEND: Final = (
    "# append the new row instead of rewriting the whole file each time; or write every N steps:\n"
    'with open(path, "a") as file: file.write(json.dumps(row) + "\\n")  # a row: csv.writer(file).writerow(row)'
)
_METRICS: Final = (
    "# update it in each step, and compute it every N steps or at the end:\n"
    "metric.update(preds, target)  # metric(preds, target) computes it as well"
)
_AVERAGES: Final = "computes an average of the weights"
_AVERAGE: Final = (
    "# use few operations on all parameters at once; or update it every N steps:\n"
    "AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))  # both of torch.optim.swa_utils"
)

# -- Python

_NATIVE: Final = (
    "{native} of it is native code (NumPy, pandas, tensors) of these functions; the rest "
    "[[gil?holds the GIL]][[!gil?is Python]]"
)
_UNREAD: Final = "{unread} of the samples could not be read: functions called each other too fast"
_EARLY: Final = (
    "early? it runs before the model is called, but counts in the forward phase, which lasts until backward starts"
)
_PYTHON: Final = Message(
    title="the loop's own Python code takes much of [[few?some steps]][[!few?the step]]",
    why="{thread_name} runs [[!second?{place}]]"
    "[[{first}, {first_share} of that time, and {second}, {second_share}]][[called?, and what is called there]]",
    evidence=(
        f"{_FOR} {{thread}} runs your Python, or a library's that it calls[[holds?, holding the GIL]]",
        _SPOTS,
        "by function: {functions.share} of its {samples:sample} in {functions.place}",
        _UNREAD,
        _NATIVE,
        "tensor operations of {at} take {untold} more of each step: not counted here, as a loss would look the same",
        "{moving} of it in phase transfer (h2d_copy), where nothing is copied to a device",
        _EARLY,
    ),
    fix="{fix}",
    will_not_help="[[gil?running it in a thread: its Python takes the GIL from {training}]][[!gil?a faster GPU]]",
)
_OF_A_LOSS: Final = (
    "# a loss: compute it on the whole batch at once, without a Python loop over samples, classes or pairs\n"
)
_IF_LOSS: Final = f"[[loss?{_OF_A_LOSS}]]"
_CONVERT: Final = "batch = torch.from_numpy(np.stack(rows))  # convert all rows at once, not one tensor per item\n"
_IN_TENSORS: Final = "use a few tensor operations"

# -- native code

_IN: Final = "in [[!second?{place}]][[{first}, {first_share} of that time, and in {second}, {second_share}]]"
_NOT_TRAINING: Final = "a faster model or more DataLoader workers: it is neither the model nor the data"
_ON_THE_CPU: Final = "a faster disk: it is on the CPU; more DataLoader workers"


def _native(title: str, where: str, fix: str, does: str = "computes", will_not_help: str = _NOT_TRAINING) -> Message:
    """`where` the code is."""
    return Message(
        title=title,
        why=f"{{thread_name}} {does} {_IN}",
        fix=f"[[{{fused}}]][[!fused?{fix}]]",
        will_not_help=will_not_help,
        evidence=(
            f"{_EACH}[[!few? is]] [[python?code {where}, most of it native (NumPy, pandas, tensors)]]"
            f"[[!python?native code (NumPy, pandas, tensors) {where}]]",
            "{python} of it is Python in the same functions",
            _SPOTS,
        ),
    )


_EXTRA: Final = "extra computation outside forward[[!inference?, backward and optimizer]]"
_BETWEEN_FIX: Final = (
    _SELDOM_OR.format("use one fused operation for all weights (torch._foreach_*)")
    + "\n# for all weights: clip_grad_norm_, torch._foreach_lerp_ for an average of them"
)
_AFTER_FIX: Final = _SELDOM_OR.format("use fewer operations, in tensors")
_WITHIN: Final = "the loop computes within the optimizer's step, besides forward and backward"
_BETWEEN: Final = "between the phases of {training}"
_in_hooks = partial(
    _native,
    fix="# compute only every N calls in the hook; or remove it once it has seen enough:\nhandle.remove()",
    will_not_help="more DataLoader workers",
)
_saves = partial(_native, where="that writes files", does="saves", will_not_help=_ON_THE_CPU)
_FILES: Final = _native(
    "the loop works on files",
    "",
    "# do it less often, in larger pieces, or from a thread: the kernel works without the GIL",
    does="works on files",
    will_not_help="a faster disk: the time is the kernel's on the CPU; more DataLoader workers",
)
_beside_model = partial(_native, will_not_help="a faster model")
_BESIDE_EVIDENCE: Final = f"{_EACH}[[!few? is]] in your functions that no module calls"
_BESIDE: Final = Message(
    title="the loop computes outside of any module",
    why=f"{{thread_name}} computes {_IN}",
    evidence=(
        f"{_BESIDE_EVIDENCE}, most of it in the forward phase, which lasts until backward starts",
        _SPOTS,
        "a loss, or a part of the model that is a plain function, must run in every step; a metric or an average of "
        "the weights need not, and a batch can be made in a DataLoader worker",
    ),
    fix="[[{fused}]][[!fused?# a loss, a model, an average of the weights: vectorize it (batched or "
    f"torch._foreach operations)\n{_SELDOM}\n# the batch: in Dataset.__getitem__, by workers]]",
    will_not_help="a faster model",
)


_FUSED: Final = "# one fused operation for all weights: "

_FEW: Final = "only {few} of {samples:sample} in {place}: too few samples, run longer to tell"
_IN_FUNCTIONS: Final = "only {samples:sample} in {functions:function} of yours"
_MODEL_OR_BATCH: Final = "compute before backward"

_FLUSH: Final = "torch.set_flush_denormal(True)  # right after import torch: threads that run already are not set"
_DENORMALS: Final = Message(
    title="denormal floats slow down the CPU",
    why="numbers below 1.2e-38 (denormals) are in the {most}: the CPU computes with them many times slower",
    evidence=(
        "{seen.what}: up to {seen.share} of the elements were denormal",
        "about {model} of each step's {step} in the model's forward and backward",
        "about {optimizer} of each step's {step} in the optimizer",
    ),
    fix=f"{_FLUSH}\n# or scale the data: numbers this small rarely matter",
    will_not_help="more threads; a fused optimizer; DataLoader workers",
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
        "foreach": _OPTIMIZER.but(
            fix="torch.optim.{name}(..., foreach=True)",
            will_not_help="fused=True: {name} has none; more DataLoader workers",
        ),
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
    "TP314": {
        "zero_grad": Message(
            title="zero_grad(set_to_none=False) fills all gradients with zeros",
            why="[[{place} keeps]][[!place?the loop keeps]] gradients: they are filled with zeros, then added to",
            evidence=(_LOWER_BOUND, "the time that backward takes to add to them is not included"),
            fix="optimizer.zero_grad()  # set_to_none=True: gradients are None until the next backward",
            will_not_help="more DataLoader workers; a fused optimizer",
        ),
        "gradcheck": Message(
            title="torch.autograd.gradcheck runs in the loop",
            why="[[{place} compares]][[!place?the loop compares]] gradients with numerical ones: a forward for each "
            "element of each input",
            evidence=(_LOWER_BOUND,),
            fix="# call torch.autograd.gradcheck in a test, not in the loop",
            will_not_help="a faster model",
        ),
        "data_parallel": Message(
            title="DataParallel copies the model and scatters the batch in each step",
            why="[[{place} calls]][[!place?the loop calls]] DataParallel, which drives all GPUs from one process",
            evidence=(_LOWER_BOUND, "GIL contention of its threads, and its part of backward, are not included"),
            fix="model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[local_rank])\n"
            "# torchrun --nproc-per-node=gpu train.py",
            will_not_help="more GPUs in one process; more DataLoader workers",
        ),
        "torch_logs": Message(
            title="PyTorch's compiler logs while steps run",
            why="{names} set: the compiler writes what it does",
            evidence=(_LOWER_BOUND, "formatting graphs as text is not included"),
            fix="unset TORCH_LOGS TORCH_TRACE TORCH_COMPILE_DEBUG",
            will_not_help="a faster disk",
        ),
    },
    "TP315": {"in_model": _DENORMALS, "in_optimizer": _DENORMALS},
    "TP302": {
        "runs": _PYTHON,
        "metrics": _PYTHON.but(why="{thread_name} computes metrics in {place}", fix=_METRICS),
        "average": _PYTHON.but(why=f"{{thread_name}} {_AVERAGES} in {{place}}", fix=_AVERAGE),
        "rewrites": _PYTHON.but(why="{thread_name} rewrites a whole file in {place}", fix=_APPEND),
        "text": _PYTHON.but(
            why="{thread_name} formats tensors as text (print, repr) for {line}",
            fix="# print [[!rare?every N steps, or ]]less than the tensor: loss.item(), x.shape"
            "[[!rare?\nif step % 50 == 0: print(...)]]",
        ),
        "loss_in_pieces": _PYTHON.but(
            evidence=(
                *_PYTHON.evidence,
                "backward takes {backward} a step, longer than a model and its loss need: it goes back through each of "
                "these operations",
            ),
            fix=f"{_OF_A_LOSS}# where no gradient is needed: with torch.no_grad(), every N steps",
        ),
        "frees": _PYTHON.but(
            title="a line of the loop that [[gil?holds the GIL]][[!gil?is on the CPU]] takes much of "
            "[[few?some steps]][[!few?the step]]",
            why="{thread_name} is on the CPU[[gil?, holding the GIL,]] in {line}",
            evidence=(
                f"{_FOR} {{thread}} [[gil?holds the GIL]][[!gil?runs]] on the CPU",
                *_PYTHON.evidence[1:3],
                "that line calls no Python function: the time is its own Python's, or of what it frees or calls in C; "
                "a worker's batch is unmapped where its last reference goes",
                *_PYTHON.evidence[3:],
            ),
        ),
        "together": _PYTHON.but(
            title="functions that the loop calls take much of [[few?some steps]][[!few?the step]] together",
            why="{thread_name} runs {functions:function} that the loop calls: {first}, {first_share} of that time, "
            "{second}, {second_share}, and others",
            evidence=(
                f"{_FOR} {{thread}} runs {{functions:function}} of yours, with all that they call: none is "
                "notable by itself",
                _SPOTS,
                _UNREAD,
                _NATIVE,
                _EARLY,
            ),
        ),
    },
    "TP310": {
        "rewrites": _native(
            "the loop rewrites a whole file each time",
            "around a file that is opened to rewrite it",
            _APPEND,
            does="rewrites a whole file",
            will_not_help="a faster disk: most of it is on the CPU; more DataLoader workers",
        ),
        "saves": _saves(
            "the loop saves files",
            fix="# save less often, without compression, or from a thread, of a copy",
        ),
        "saves_log": _saves(
            "the loop writes its log",
            fix="# write it every N steps, or append the new rows instead of rewriting all of it",
        ),
        "files": _FILES.but(
            evidence=(
                f"{_EACH}[[!few? is]] the kernel's, in system calls such as {{call}}",
                *_FILES.evidence[1:],
            )
        ),
        "metrics": _native("the loop computes metrics", "of metrics", _METRICS, "computes metrics"),
        "average": _native(f"the loop {_AVERAGES}", "of an average of the weights", _AVERAGE, _AVERAGES),
        "hooks": _in_hooks("the loop computes in forward hooks", "of hooks that modules call"),
        "backward_hooks": _in_hooks(
            "the loop computes in backward hooks", "of hooks that autograd calls with a gradient"
        ),
        "step_hooks": _in_hooks("the loop computes in optimizer step hooks", "of hooks that the optimizer calls"),
        "closure": _native(
            _WITHIN,
            "in the closure that the optimizer's step calls",
            _SELDOM_OR.format("do it once, outside of the closure"),
        ),
        "lightnings_closure": _native(
            _WITHIN, "in hooks that Lightning calls within the optimizer's step", _BETWEEN_FIX
        ),
        "after_the_model": _native(
            "the loop computes between the model and the backward",
            "between the model and the backward",
            _AFTER_FIX,
            will_not_help="a faster model; more DataLoader workers: it needs the model's output",
        ),
        "after_the_call": _native(_EXTRA, "after the model is called", _BETWEEN_FIX),
        "between_calls": _native(
            "the loop computes between its calls of the model",
            "between calls of the model",
            _AFTER_FIX,
            will_not_help="a faster model; more DataLoader workers, where it needs the model's output",
        ),
        "before_the_model": _beside_model(
            "the loop computes before it calls the model",
            "before the model is called",
            "{batch}\n# or once beforehand; or on the GPU\n"
            "# if it makes no part of the batch: do it every N steps, or in fewer operations",
        ),
        "around_the_model": _beside_model(
            "the loop computes before it calls the model, and after",
            "around the model, {after} of it after that",
            f"{_SELDOM}\n{{batch}}",
        ),
        "between_phases": _native(_EXTRA, _BETWEEN, _BETWEEN_FIX).but(
            fix=f"[[{{fused}}]]{_OF_WEIGHTS}[[!fused?{_BETWEEN_FIX}]]"
        ),
        # What is done in few steps, such as once an epoch, is rare already.
        "rarely": _native(_EXTRA, _BETWEEN, "# do it faster, once before the loop, or in a thread or another process"),
        "in_the_model": Message(
            title="the model[[!inference? or its loss]] computes in NumPy or a similar library",
            why=_BESIDE.why,
            evidence=(f"{_EACH}[[!few? is]] in such a library, which no gradient goes through by itself", _SPOTS),
            fix="[[{fused}]][[!fused?# use PyTorch operations; or, if it needs the batch alone, compute it in "
            "Dataset.__getitem__, by workers or once beforehand]]",
            will_not_help="a faster GPU: it runs on the CPU, in each call of the model",
        ),
        "own_operation": Message(
            title="your own torch.autograd.Function takes much of the step",
            why=_BESIDE.why,
            evidence=(
                f"{_EACH}[[!few? is]] native code in the forward or backward of a torch.autograd.Function",
                "{python} of it is Python in the same functions",
                _SPOTS,
                "NumPy and loops over parts of a tensor can be replaced; a few operations on whole tensors may be what "
                "the model needs",
            ),
            fix="[[{fused}]][[!fused?# use a few PyTorch operations on whole tensors instead of NumPy or a loop\n"
            "# if it is that already: torch.compile, without the Function]]",
            will_not_help="more DataLoader workers; a thread: backward waits for it",
        ),
        "may_be_a_loss": _BESIDE,
        "without_training": _BESIDE.but(
            evidence=(
                _BESIDE_EVIDENCE,
                _SPOTS,
                "a part of the model that is a plain function must run for every batch",
            ),
            fix="[[{fused}]][[!fused?# the batch: in Dataset.__getitem__, by workers; results: vectorize over "
            "the batch]]",
        ),
        "loss_in_pieces": _BESIDE.but(
            title="the loop computes outside of any module, in operations that make backward long",
            evidence=(
                *_BESIDE.evidence[:2],
                "backward takes {ratio:.1f} times as long as forward (usual: 1 to 2 times): it goes back through each "
                "of these operations",
            ),
            fix="[[{fused}]][[!fused?# compute it on the whole batch at once: no Python loop over samples, classes or "
            "pairs\n# where no gradient is needed: with torch.no_grad(), every N steps]]",
            will_not_help="a faster model; DataLoader workers",
        ),
    },
}

TEXTS: Final = {
    "timed_in_model": "running layers again with zeros for denormals",
    "timed_in_optimizer": "multiplying the optimizer's tensors with and without denormals",
    "timed_in_both": "running layers again, and multiplying the optimizer's tensors, with zeros for denormals",
    "optimizer_fused": "torch.optim.{name}(..., fused=True)  # or a larger batch",
    "optimizer_foreach": "torch.optim.{name}(..., foreach=True)  # or a larger batch",
    "optimizer_as_it_is": "# a larger batch, or gradient accumulation: fewer optimizer steps",
    "optimizer_unknown": "# pass fused=True (Adam, AdamW, SGD) or foreach=True to the optimizer; or use a larger batch",
    "forward_outside": "no backward follows it",
    "forward_untrained": "they count as forward, which takes {times:.1f} times as long as backward: little of it is "
    "trained",
    "forward_in_few": "in {few} of {steps} steps forward takes {longer} more than in most steps, and backward does not",
    "later_backward": "a forward whose backward comes after the next fetch of a batch would look the same",
    "off_settrace": "sys.settrace(None)  # run without the debugger or coverage that set it",
    "off_monitoring": "sys.monitoring.free_tool_id(id)  # run without the tool that registered",
    "off_setprofile": "sys.setprofile(None)  # run without the profiler that set it",
    "anomaly_was_on": "anomaly detection was on for {percent}% of the time: too few samples for its cost",
    "tracer_was_on": "a trace function ({how}) was on for {percent}% of the time: too few samples for its cost",
    "profiler_was_on": "PyTorch's profiler was on for {percent}% of the time: its cost in each operation was not "
    "measured",
    "blocking_was_on": "CUDA_LAUNCH_BLOCKING=1 was set: each launch waited for its kernel; what that cost was not "
    "measured; unset it",
    "deterministic_was_on": "deterministic algorithms were on for {percent}% of the time: what they cost was not "
    "measured",
    "setting_unseen": "the run file does not say: an older trainperf, or torch was not imported",
    "setting_unseen_in_traces": "a trace does not say",
    "setting_try": "trainperf try --change {change} --",
    "setting_slows_python": "an upper bound: all the time of Python code, which it slows down",
    "setting_slows_collections": "an upper bound: all the time of garbage collections, which it slows down",
    "setting_slows_kernels": "an upper bound: memory-bound kernels lose less at a lower clock",
    "setting_slows_pages": "the OS takes its memory back in each step, from code that another finding names",
    "setting_anomaly": "autograd anomaly detection",
    "setting_anomaly_why": "on for {percent}% of the time: too few samples for its cost",
    "setting_anomaly_fix": "torch.autograd.set_detect_anomaly(False)",
    "setting_tracer": "trace function (debugger, coverage, cProfile)",
    "setting_tracer_why": "on for {percent}% of the time: no sample shows what it costs",
    "setting_tracer_fix": "run without the tool that set it",
    "setting_profiler": "PyTorch profiler",
    "setting_profiler_why": "on for {percent}% of the time: what it adds to each operation was not measured",
    "setting_profiler_fix": "profile a few steps: torch.profiler.schedule(wait=10, warmup=1, active=3, repeat=1)",
    "setting_deterministic": "deterministic algorithms",
    "setting_deterministic_why": "on for {percent}% of the time: what they cost was not measured",
    "setting_deterministic_fix": "torch.use_deterministic_algorithms(False)  # unless results must repeat bit by bit",
    "setting_tracemalloc": "tracemalloc",
    "setting_tracemalloc_why": "on for {percent}% of the time: "
    f"{_NO_SAMPLE} what it adds to each allocation of a Python object",
    "setting_tracemalloc_fix": "tracemalloc.stop()  # or unset PYTHONTRACEMALLOC",
    "setting_launch_blocking": "CUDA_LAUNCH_BLOCKING",
    "setting_launch_blocking_why": "each launch waits for its kernel: what that costs was not measured",
    "setting_launch_blocking_fix": "unset CUDA_LAUNCH_BLOCKING",
    "setting_launch_blocking_unseen": _NO_DEVICE,
    "setting_malloc_debug": "Python's memory debug hooks (PYTHONMALLOC=debug, -X dev)",
    "setting_malloc_debug_why": f"{_NO_SAMPLE} what the hooks add to each allocation of a Python object",
    "setting_malloc_debug_fix": "unset PYTHONMALLOC and PYTHONDEVMODE, and run without -X dev",
    "setting_gc_debug": "gc debug flags",
    "setting_gc_debug_why": "what they cost in each collection was not measured",
    "setting_gc_debug_fix": "gc.set_debug(0)",
    "setting_python_debug": "debug build of Python",
    "setting_python_debug_why": "what it costs against a release build was not measured",
    "setting_python_debug_fix": "use a release build of Python",
    "setting_torch_debug": "debug build of PyTorch",
    "setting_torch_debug_why": "what it costs against a release build was not measured",
    "setting_torch_debug_fix": "use a release build of PyTorch",
    "setting_torch_logs": "logs of PyTorch's compiler",
    "setting_torch_logs_why": "{names} set: too few samples for what the logs cost",
    "setting_torch_logs_fix": "unset TORCH_LOGS TORCH_TRACE TORCH_COMPILE_DEBUG",
    "setting_gradcheck": "torch.autograd.gradcheck in the loop",
    "setting_gradcheck_why": "too few samples for its cost",
    "setting_gradcheck_fix": "# call torch.autograd.gradcheck in a test, not in the loop",
    "setting_distributed_debug": "TORCH_DISTRIBUTED_DEBUG=DETAIL",
    "setting_distributed_debug_why": "each collective is first checked on all ranks: what that costs was not measured",
    "setting_distributed_debug_fix": "unset TORCH_DISTRIBUTED_DEBUG",
    "setting_threads": "number of threads and usable CPUs",
    "setting_threads_why": "on as many threads as CPUs its layers are no faster",
    "setting_affinity": "CPU affinity",
    "setting_instructions": "limits on the CPU's instructions",
    "setting_instructions_why": "{names} set: what doing without vector instructions costs here was not measured",
    "setting_instructions_fix": "unset ATEN_CPU_CAPABILITY ONEDNN_MAX_CPU_ISA DNNL_MAX_CPU_ISA MKL_ENABLE_INSTRUCTIONS",
    "setting_blas": "BLAS of PyTorch",
    "setting_blas_why": "this build has no optimized BLAS ({blas}): what that costs was not measured",
    "setting_blas_fix": "pip install torch  # the official wheels have MKL or OpenBLAS",
    "setting_governor": "CPU frequency governor",
    "setting_governor_why": "powersave keeps the clock at its lowest: what that costs was not measured",
    "setting_governor_unseen": "this machine does not show it",
    "setting_governor_fix": "sudo cpupower frequency-set -g performance",
    "setting_denormals": "denormal floats in layers and optimizers on the CPU",
    "setting_denormals_why": "operations with them are slower here, and take too little of this run to matter",
    "setting_denormals_fix": _FLUSH,
    "setting_denormals_unseen": "no CPU tensors of the training were looked at",
    "setting_workers": "DataLoader num_workers",
    "setting_workers_unseen": "no DataLoader was seen",
    "setting_persistent_workers": "DataLoader persistent_workers",
    "setting_persistent_workers_unseen": "no DataLoader was seen",
    "setting_malloc": "malloc's return of memory to the OS",
    "setting_malloc_fix": "{command}",
    "setting_malloc_unseen": "not looked at in training on a GPU",
    "setting_zero_grad": "zero_grad(set_to_none=False)",
    "setting_zero_grad_why": "too few samples for its cost",
    "setting_zero_grad_fix": "optimizer.zero_grad()",
    "setting_data_parallel": "DataParallel",
    "setting_data_parallel_why": "too few samples for its cost",
    "setting_data_parallel_fix": "torch.nn.parallel.DistributedDataParallel, one process for each GPU",
    "setting_optimizer": "fused and foreach optimizers on the CPU",
    "setting_optimizer_unseen": "no optimizer of torch.optim was seen",
    "setting_pin_memory": "pin_memory",
    "setting_pin_memory_unseen": _NO_DEVICE,
    "setting_tensor_cores": "TF32, bfloat16 or float16 for matrix products",
    "setting_tensor_cores_why": "what they would gain here was not measured: trainperf lab measures it",
    "setting_tensor_cores_unseen": _NO_DEVICE,
    "setting_autotuning": "cudnn.benchmark and autotuning with changing shapes",
    "setting_autotuning_unseen": _NO_DEVICE,
    "setting_gpu_clocks": "GPU clocks (heat, power)",
    "setting_gpu_clocks_unseen": "no GPU's clocks were read, or for too short a time",
    "setting_shared_memory": "/dev/shm",
    "setting_shared_memory_why": "{free} of {size} free: workers that fill it die with a bus error",
    "setting_shared_memory_fix": "docker run --shm-size=8g  # Kubernetes: an emptyDir of medium Memory",
    "setting_descriptors": "open files (ulimit -n)",
    "setting_descriptors_why": "{opened} of {most} file descriptors were open[[by_descriptor?, and each tensor from a "
    "worker takes one]]: at the limit opening fails",
    "setting_descriptors_fix": "ulimit -n 65536  # or torch.multiprocessing.set_sharing_strategy('file_system')",
    "setting_tokenizers": "TOKENIZERS_PARALLELISM",
    "setting_tokenizers_why": "not set, and workers are forked: a tokenizer that was used before switches its threads "
    "off in them, with a warning, or may deadlock",
    "setting_tokenizers_unseen": "the library tokenizers was not imported",
    "setting_tokenizers_fix": "TOKENIZERS_PARALLELISM=false  # the workers are parallel already",
    "fused_lerp": f"{_FUSED}torch._foreach_lerp_(averages, weights, 1 - momentum), on lists of all weights, under "
    "no_grad",
    "fused_copy": f"{_FUSED}torch._foreach_copy_(targets, sources), on lists of all weights, under no_grad",
    "fused_clip": f"{_FUSED}torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm), which returns the norm, too",
    "fused_clip_value": f"{_FUSED}torch.nn.utils.clip_grad_value_(model.parameters(), limit)",
    "fused_decay": f"{_FUSED}torch._foreach_mul_(weights, factor), or the optimizer's weight_decay=",
    "fused_scale": f"{_FUSED}torch._foreach_mul_(gradients, factor), or torch.nn.utils.clip_grad_norm_(...) where it "
    "clips",
    "fused_update": f"{_FUSED}torch._foreach_add_(weights, gradients, alpha=-lr), or one of torch.optim with "
    "foreach=True",
    "fused_statistics": f"{_FUSED}torch._foreach_norm(weights), and one .tolist() of them all, stacked; or every N "
    "steps",
    "fewer_copies": "# copy [[!rare?every N steps, or ]]only what is to be kept[[!rare?:\nif step % 50 == 0: ...]]",
    "in_optimizer": "# update all parameters by a few tensor operations (torch._foreach_add_), or by torch.optim",
    "in_backward": f"# {_IN_TENSORS}: it is a part of every backward",
    "in_hook": "# in the hook, use a few tensor operations, only every N calls; or remove it: handle.remove()",
    "in_model": f"# {_IN_TENSORS}, or compute it once instead of in each call of the model",
    "if_it_frees": "# if it frees a worker's batch (del, or the next one takes its name): make samples smaller, such "
    "as uint8\n# else do it in tensors, every N steps, or in a DataLoader worker",
    "now_and_then": f"{_IF_LOSS}# do it faster (in tensors, or NumPy), once before the loop, or in another process",
    "of_batch": f"{_IF_LOSS}{{batch}}\n# what has to be done here: on the whole batch at once, in tensors",
    "of_results": f"{_IF_LOSS}# vectorize it over the batch, in tensors (topk, gather; for boxes "
    "torchvision.ops.nms); or run it in other processes:\n"
    "pool = concurrent.futures.ProcessPoolExecutor()  # once\n"
    "pool.submit(postprocess, output.cpu().numpy())",
    "after_the_model": f"{_IF_LOSS}{_SELDOM_OR.format('vectorize it, in tensors; search by a set or dict')}",
    "before_the_model": f"{_IF_LOSS}{{batch}}\n# if every step needs it: vectorize it, in tensor operations\n{_SELDOM}",
    "anywhere": f"{_IF_LOSS}[[converts?{_CONVERT}]]{_OF_WEIGHTS}# compute metrics every N steps; make the batch in a "
    f"DataLoader worker; vectorize the rest, in tensors\n{_IF_SELDOM}",
    "in_workers": "# make the batch in Dataset.__getitem__ or collate_fn, with DataLoader(..., num_workers=...)",
    # Without a DataLoader, as where a replay buffer is sampled, there is no worker to do it.
    "by_indexing": "# compute what stays the same once, before the loop; the rest without a loop over samples: "
    "keep the data in tensors or arrays, and index them once:\n"
    "batch = {{name: kept[indices] for name, kept in data.items()}}",
    # Why the confidence is what it is.
    "doubt_frees": "what C does [[gil?with the GIL held ]]looks like Python",
    "doubt_hooks": "a hook that changes what its module returns is a part of the model",
    "doubt_backward_hooks": "a hook that changes the gradient is a part of the training",
    "doubt_step_hooks": "a hook that changes the gradients is a part of the training",
    "doubt_files": "that it is the kernel's is inferred: it works that long for that thread",
    "doubt_tensors": "what it computes on lines of its own may be of tensors, and a part of the loss",
}

UNSURE: Final[Doubts] = {
    "may_train": Doubt(
        why="{place} may evaluate a model or train it: {each} of each step's {step} is there, and backward is long "
        "enough to cover that too",
        whose="compute in modules between the phases",
        unknown="whether it is trained",
    ),
    "modes_without_price": "{modes}",
    "python_unseen": Doubt(why="only {samples:sample} of Python on {thread}: run longer to tell", whose="python"),
    "python_of_few": Doubt(why=_FEW, whose="python"),
    "python_in_few": Doubt(why=f"{_IN_FUNCTIONS}: too few samples, run longer to tell", whose="python"),
    "python_unread": Doubt(why=f"{_IN_FUNCTIONS}: {_UNREAD}", whose="python", unknown="whose it is"),
    "native_may_wait": "with a device, native code may be waiting for it",
    "native_unseen": Doubt(
        why="only {samples:sample} of native code on {thread}: run longer", whose="compute beside the model"
    ),
    "native_of_few": Doubt(why=_FEW, whose="compute beside the model"),
    "model_or_batch": Doubt(
        why="[[layers?outside of any module]][[!layers?no layer of torch.nn was seen]]: whether {place} is the model "
        "or works on its batch is unclear; forward takes {ratio:.1f} times as long as backward, too long for a model "
        "alone",
        whose=_MODEL_OR_BATCH,
        unknown="which part is the model; {share} of it runs in {place}",
    ),
    "functions_before_layers": Doubt(
        why="whether PyTorch's functions before the first layer are the model or work on its batch is unclear: "
        "backward is long enough to go through them",
        whose=_MODEL_OR_BATCH,
        unknown="which part is the model, and which works on its batch",
    ),
}
