"""Messages of the findings about the loop's own code: its Python, and its native code."""

from __future__ import annotations

from functools import partial
from typing import Final

from trainperf.findings.text import Doubt, Doubts, Message, Messages

_EACH: Final = "[[{few} of {steps} steps, {few_each} each:]][[!few?{each} of each step's {step}]]"
_SPOTS: Final = "{spots.share} of {samples:sample} of it in {spots.place}"
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
    "# by few operations on all parameters at once; or every N steps:\n"
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
        f"{_EACH} {{thread}} runs your Python, or a library's for it[[holds?, holding the GIL]]",
        _SPOTS,
        "by function: {functions.share} of {samples:sample} of it in {functions.place}",
        _UNREAD,
        _NATIVE,
        "tensor operations of {at} take {untold} more of each step: not told with it, as a loss would look the same",
        "{moving} of it in phase transfer (h2d_copy), where nothing is copied to a device",
        _EARLY,
    ),
    fix="{fix}",
    will_not_help="[[gil?threads: Python code in a thread takes the GIL from {training}]][[!gil?a faster GPU]]",
)
_OF_A_LOSS: Final = "# a loss: of the whole batch at once, without a Python loop over samples, classes or pairs\n"
_IF_LOSS: Final = f"[[loss?{_OF_A_LOSS}]]"
_OF_THE_BATCH: Final = "# make the batch in a DataLoader worker"
_IN_TENSORS: Final = "do it by a few tensor operations"

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
_IN_WORKERS: Final = "# make the batch in Dataset.__getitem__ or collate_fn, with DataLoader(..., num_workers=...)"
_AFTER_FIX: Final = _SELDOM_OR.format("use fewer operations, in tensors")
_WITHIN: Final = "the loop computes within the optimizer's step, beside forward and backward"
_BETWEEN: Final = "between the phases of {training}"
_in_hooks = partial(
    _native,
    fix="# in the hook: only every N calls; or take it off once it has seen enough:\nhandle.remove()",
    will_not_help="more DataLoader workers",
)
_saves = partial(_native, where="that writes files", does="saves", will_not_help=_ON_THE_CPU)
_FILES: Final = _native(
    "the loop works on files",
    "",
    "# less often, in larger pieces, or from a thread: while the kernel works, Python runs on",
    does="works on files",
    will_not_help="a faster disk: it is the kernel on the CPU; more DataLoader workers",
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

MESSAGES: Final[Messages] = {
    "TP302": {
        "runs": _PYTHON,
        "metrics": _PYTHON.but(why="{thread_name} computes metrics in {place}", fix=_METRICS),
        "average": _PYTHON.but(why=f"{{thread_name}} {_AVERAGES} in {{place}}", fix=_AVERAGE),
        "rewrites": _PYTHON.but(why="{thread_name} rewrites a whole file in {place}", fix=_APPEND),
        "text": _PYTHON.but(
            why="{thread_name} makes the text of tensors (print, repr) for {line}",
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
                f"{_EACH} {{thread}} [[gil?holds the GIL]][[!gil?runs]] on the CPU",
                *_PYTHON.evidence[1:3],
                "below that line no Python function runs: it is the line's own Python, or what it frees or calls in C; "
                "a batch that a worker made is unmapped where its last name goes",
                *_PYTHON.evidence[3:],
            ),
        ),
        "together": _PYTHON.but(
            title="functions that the loop calls take much of [[few?some steps]][[!few?the step]] together",
            why="{thread_name} runs {functions:function} that the loop calls: {first}, {first_share} of that time, "
            "{second}, {second_share}, and others",
            evidence=(
                f"{_EACH} {{thread}} runs {{functions:function}} of yours, with all that they call: none is "
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
            "around a file that is opened to be written anew",
            _APPEND,
            does="rewrites a whole file",
            will_not_help="a faster disk: most of it is on the CPU; more DataLoader workers",
        ),
        "saves": _saves(
            "the loop saves files",
            fix="# save less often, uncompressed where it compresses, or from a thread, of a copy",
        ),
        "saves_log": _saves(
            "the loop writes its log",
            fix="# write it every N steps, or append the new rows instead of rewriting all of it",
        ),
        "files": _FILES.but(
            evidence=(
                f"{_EACH}[[!few? is]] native code of system calls such as {{call}}: the kernel's",
                *_FILES.evidence[1:],
            )
        ),
        "metrics": _native("the loop computes metrics", "of metrics", _METRICS, "computes metrics"),
        "average": _native(f"the loop {_AVERAGES}", "of an average of the weights", _AVERAGE, _AVERAGES),
        "hooks": _in_hooks("the loop computes in forward hooks", "of hooks that modules call"),
        "backward_hooks": _in_hooks(
            "the loop computes in hooks of the backward", "of hooks that autograd calls with a gradient"
        ),
        "step_hooks": _in_hooks(
            "the loop computes in hooks of the optimizer's step", "of hooks that the optimizer calls"
        ),
        "closure": _native(
            _WITHIN,
            "in the closure that the optimizer's step calls",
            _SELDOM_OR.format("do it once, outside of the closure"),
        ),
        "lightnings_closure": _native(
            _WITHIN, "in what Lightning calls within the optimizer's step: hooks", _BETWEEN_FIX
        ),
        "after_the_model": _native(
            "the loop computes between the model and the backward",
            "between the model and the backward",
            _AFTER_FIX,
            will_not_help="a faster model; more DataLoader workers: it is of what the model has computed",
        ),
        "after_the_call": _native(_EXTRA, "after the model is called", _BETWEEN_FIX),
        "between_calls": _native(
            "the loop computes between its calls of the model",
            "between calls of the model",
            _AFTER_FIX,
            will_not_help="a faster model; more DataLoader workers, where it is of what the model has computed",
        ),
        "before_the_model": _beside_model(
            "the loop computes before it calls the model",
            "before the model is called",
            f"{_IN_WORKERS}; or once beforehand; or on the GPU\n"
            "# if it makes no part of the batch: do it every N steps, or in fewer operations",
        ),
        "around_the_model": _beside_model(
            "the loop computes before it calls the model, and after",
            "around the model, {after} of it after that",
            f"{_SELDOM}\n{_IN_WORKERS}",
        ),
        "between_phases": _native(_EXTRA, _BETWEEN, _BETWEEN_FIX).but(
            fix=f"[[{{fused}}]]{_OF_WEIGHTS}[[!fused?{_BETWEEN_FIX}]]"
        ),
        # What is done in few steps, such as once an epoch, is rare already.
        "rarely": _native(_EXTRA, _BETWEEN, "# do it faster, once before the loop, or in a thread or another process"),
        "in_the_model": Message(
            title="the model[[!inference? or its loss]] computes in NumPy or its like",
            why=_BESIDE.why,
            evidence=(f"{_EACH}[[!few? is]] in such libraries' code, which no gradient goes through by itself", _SPOTS),
            fix="[[{fused}]][[!fused?# by operations of PyTorch; or, where it needs the batch alone, in "
            "Dataset.__getitem__, by workers or once beforehand]]",
            will_not_help="a faster GPU: it runs on the CPU, in each call of the model",
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
                "backward takes {ratio:.1f} times as long as forward, of a model and its loss one to two: it goes back "
                "through each of these operations",
            ),
            fix="[[{fused}]][[!fused?# compute it of the whole batch at once: no Python loop over samples, classes or "
            "pairs\n# where no gradient is needed: with torch.no_grad(), every N steps]]",
            will_not_help="a faster model; DataLoader workers",
        ),
    },
}

_FUSED: Final = "# one fused operation for all weights: "
TEXTS: Final = {
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
    "in_hook": "# in the hook: by a few tensor operations and only every N calls; or take it off: handle.remove()",
    "in_model": f"# {_IN_TENSORS}, or once and not in each call of the model",
    "if_it_frees": "# if it frees a batch that a worker made (del, the next one takes its name): smaller samples, such "
    "as uint8\n# else do it in tensors, every N steps, or in a DataLoader worker",
    "now_and_then": f"{_IF_LOSS}# do it faster (in tensors, or NumPy), once before the loop, or in another process",
    "of_batch": f"{_IF_LOSS}{_OF_THE_BATCH}",
    "of_results": f"{_IF_LOSS}# vectorize it over the batch, in tensors (topk, gather; for boxes "
    "torchvision.ops.nms); or run it in other processes:\n"
    "pool = concurrent.futures.ProcessPoolExecutor()  # once\n"
    "pool.submit(postprocess, output.cpu().numpy())",
    "after_the_model": f"{_IF_LOSS}{_SELDOM_OR.format('vectorize it, in tensors; search by a set or dict')}",
    "before_the_model": f"{_IF_LOSS}{_OF_THE_BATCH}\n# if every step needs it: vectorize it, in tensor operations\n"
    f"{_SELDOM}",
    "anywhere": f"{_IF_LOSS}{_OF_WEIGHTS}# compute metrics every N steps; make the batch in a DataLoader worker; "
    f"vectorize the rest, in tensors\n{_IF_SELDOM}",
    # Why the confidence is what it is.
    "doubt_frees": "what C does [[gil?with the GIL held ]]looks like Python",
    "doubt_hooks": "a hook that changes what its module returns is a part of the model",
    "doubt_backward_hooks": "a hook that changes the gradient is a part of the training",
    "doubt_step_hooks": "a hook that changes the gradients is a part of the training",
    "doubt_files": "that it is the kernel's is inferred: it works that long for that thread",
    "doubt_tensors": "what it computes on lines of its own may be of tensors, and a part of the loss",
}

_FEW: Final = "only {few} of {samples:sample} in {place}: too few samples, run longer to tell"
_IN_FUNCTIONS: Final = "only {samples:sample} in {functions:function} of yours"
_MODEL_OR_BATCH: Final = "compute before backward"
UNSURE: Final[Doubts] = {
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
