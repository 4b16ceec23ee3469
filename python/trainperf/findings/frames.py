"""Which frames are the user's own code, what a stack of frames does, and how a place is written.

A stack has its innermost frame first. Of this one `user_frame` is `embed`, `below_users` are the two of torch, and
`is_the_loops` is false, since what runs is the framework's:

    torch/nn/functional.py:2200 embedding
    torch/nn/modules/sparse.py:190 Embedding.forward
    train.py:12 embed
    train.py:40 <module>
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from trainperf.runfile import Frame


class FrameLike(Protocol):
    @property
    def file(self) -> str: ...
    @property
    def function(self) -> str: ...
    @property
    def line(self) -> int: ...


Function = tuple[str, str]  # file, qualified name
NO_FUNCTION: Function = ("", "")

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# By shape, not by this interpreter's paths: a run may be read on another machine.
_INSTALLED = re.compile(r"[/\\](site-packages|dist-packages)[/\\]")
_STDLIB = re.compile(r"[/\\]lib(64)?[/\\]python3(\.\d+t?)?[/\\]|python3\d+\.zip[/\\]")
_OURS = re.compile(
    r"[/\\]trainperf[/\\]((hooks|keeping|watching|cli|integrations|notebook|prove|report|findings)[/\\]"
    r"|(watch|run|program|settings)\.py$)"
)
_TORCH_CHECKOUT = re.compile(
    r"[/\\]torch[/\\](utils|nn|optim|autograd|_dynamo|_inductor|fx|distributed|_[a-z]+)[/\\]|[/\\]torch[/\\][a-z_]+\.py$"
)
_AUTOGRAD = re.compile(r"[/\\]torch[/\\](autograd[/\\][^/\\]+|_tensor)\.py$")
_GRAPH = re.compile(r"[/\\]torch[/\\]autograd[/\\]graph\.py$")
# What PyTorch runs between autograd's engine and a hook: those of modules and of several tensors, `@torch.no_grad()`.
_AROUND_HOOKS = re.compile(r"[/\\]torch[/\\](utils[/\\](hooks|_contextlib)|autograd[/\\]graph)\.py$")
_DECORATOR = re.compile(r"[/\\]torch[/\\]utils[/\\]_contextlib\.py$")
_DISPATCHER = re.compile(r"[/\\]torch[/\\](utils[/\\]_contextlib|_jit_internal)\.py$")
# What the engine calls in the same way for the model: to give back what forward saved; a class of tensors.
_NO_HOOK = re.compile(r"unpack|__torch_(dispatch|function)__")
# What runs a training beside PyTorch itself. torchvision's transforms and its like prepare data: they are the loop's.
_FRAMEWORK = re.compile(
    r"(torch(?!(vision[/\\](transforms|datasets|io)|audio|text|data)[/\\])\w*|functorch|triton|lightning\w*|pytorch_lightning|transformers"
    r"|accelerate|deepspeed|apex|peft|trl|timm|diffusers|ignite|bitsandbytes|fairscale|xformers)[/\\]"
)
# What computes on arrays of its own: no gradient goes through it.
_ARRAYS = re.compile(r"(numpy|scipy|pandas|PIL|skimage|sklearn|librosa)[/\\]")
_AUTOGRAD_FUNCTION = re.compile(r"[/\\]torch[/\\]autograd[/\\]function\.py$")
_TRAININGS_OWN = re.compile(r"[/\\]torch[/\\](nn|optim|autograd)[/\\]")
# What shapes a batch, and is no loss and no layer.
_FUNCTIONAL = re.compile(r"[/\\]torch[/\\]nn[/\\]functional\.py$")
_LOSS = re.compile(r"_loss$|cross_entropy|kl_div")
_LOSSES = re.compile(r"[/\\]torch[/\\]nn[/\\]modules[/\\]loss\.py$")
_OF_BATCHES = {"affine_grid", "fold", "grid_sample", "interpolate", "one_hot", "pad", "unfold"}
# What print, repr and an f-string call for a tensor or a parameter.
_TEXT_MAKER = re.compile(r"[/\\]torch[/\\]_tensor_str\.py$")
_TENSOR = re.compile(r"[/\\]torch[/\\](_tensor|nn[/\\]parameter)\.py$")
_TO_TEXT = re.compile(r"(^|\.)(__repr__|__format__)$")
# What is written in Python of an operation on tensors: a norm, einsum, a loop over one, a copy or its conversion.
_TENSOR_OPERATION = re.compile(
    r"[/\\]torch[/\\](_tensor|nn[/\\]parameter|functional|storage|distributions[/\\]\w+)\.py$"
)
_OPTIMIZER = re.compile(r"[/\\]torch[/\\]optim[/\\](?!optimizer\.py$)\w+\.py$")
_AROUND_STEP = re.compile(r"[/\\]torch[/\\]optim[/\\]optimizer\.py$")
_OPTIMIZERS = re.compile(r"[/\\]torch[/\\]optim[/\\]")
_CLOSURE = re.compile(r"<locals>|<lambda>|(^|[._])closure$")  # what a step is given to call; of a named function
_CORE = re.compile(r"[/\\]torch[/\\](?!nn[/\\]utils[/\\])")
_MODULE = re.compile(r"[/\\]torch[/\\]nn[/\\]modules[/\\]module\.py$")
_LAYER = re.compile(
    r"[/\\]torch[/\\](nn[/\\]modules[/\\](?!(module|loss|activation)\.py$)\w+\.py$|_dynamo[/\\]|_inductor[/\\])"
)
# What a module is asked for what it keeps: state_dict(), parameters(), load_state_dict().
_OF_STATE = re.compile(r"state_dict|(^|\.)load$|(^|\.)_?(named_)?(parameters|buffers|modules|children|members)$")
_MODULE_CALL = re.compile(r"_call_impl|_slow_forward|(^|\.)(inner|__call__)$")  # not state_dict, to, parameters
# What the loop asks of a library and could ask less often: metrics that are modules, averages of the weights.
_METRIC = re.compile(r"[/\\]torchmetrics[/\\](metric|collections)\.py$")
_AVERAGE = re.compile(r"[/\\]torch[/\\]optim[/\\]swa_utils\.py$")
_PROFILER = re.compile(r"[/\\]torch[/\\](profiler[/\\]\w+|autograd[/\\]profiler)\.py$")
_ANOMALY = re.compile(r"[/\\]torch[/\\]fx[/\\]traceback\.py$")
_CLIENTS = {  # a database's before HTTP: some are asked over it
    "database": re.compile(
        r"[/\\](psycopg\w*|pymysql|MySQLdb|mysql|redis|pymongo|sqlalchemy|asyncpg|cassandra|clickhouse\w*|elasticsearch)[/\\]"
    ),
    "HTTP server": re.compile(
        r"[/\\](requests|urllib3|httpx|httpcore|aiohttp|botocore|boto3|s3transfer|grpc|huggingface_hub)[/\\]"
        r"|[/\\](http[/\\]client|urllib[/\\]request|xmlrpc[/\\]client)\.py$"
    ),
}
_UNNAMED = re.compile(r"\.<locals>\.<\w+>((\.<locals>)?\.<\w+>)*$")  # of one in another, 3.11 leaves out `<locals>`
_OF_LOADER = re.compile(r"[/\\](torch[/\\]utils[/\\]data|torchdata([/\\]\w+)?)[/\\]\w*(dataloader|sampler)\w*\.py$")
_FETCH = re.compile(r"[/\\]torch[/\\]utils[/\\]data[/\\]_utils[/\\]fetch\.py$")
_OF_SAMPLES = {"__getitem__", "__getitems__"}
_COLLECTIVES = re.compile(r"[/\\](torch[/\\]distributed|horovod|mpi4py|deepspeed[/\\]comm)[/\\]")
_WAITS = {"threading.py", "queue.py", "queues.py", "synchronize.py", "connection.py", "selectors.py"}
_TEXT = "<string>"  # `python -c`; and what dataclasses, named tuples and their like make of a text
_NOTEBOOK = re.compile(r"<ipython-input|[/\\]ipykernel_\d+[/\\]|<stdin>|<cell|^In \[")


@lru_cache(maxsize=4096)
def is_user_file(file: str) -> bool:
    """False for the standard library, installed packages, torch and trainperf itself."""
    if _NOTEBOOK.search(file):
        return True
    if not file or file.startswith("<"):
        return False
    return not (is_own_file(file) or _INSTALLED.search(file) or _STDLIB.search(file) or _TORCH_CHECKOUT.search(file))


def is_users(frame: FrameLike, frames: Sequence[FrameLike]) -> bool:
    """Whether a frame of a stack is the user's own. Code that was a text is so where no file of the user's is in the
    stack: what a library made of one has a caller."""
    if frame.file == _TEXT:
        return not any(is_user_file(f.file) for f in frames)
    return is_user_file(frame.file)


def below_users(frames: Sequence[FrameLike]) -> list[FrameLike]:
    """What the innermost function of the user's calls; all frames where there is none."""
    return list(itertools.takewhile(lambda f: not is_users(f, frames), frames))


def from_users(frames: Sequence[FrameLike]) -> list[FrameLike]:
    """The innermost frame of the user's, and all that called it."""
    return list(itertools.dropwhile(lambda f: not is_users(f, frames), frames))


def is_generated(file: str) -> bool:
    """Made while the program ran: it has no file, and is no module of Python's own (`<frozen runpy>`)."""
    return file.startswith("<") and not file.startswith("<frozen") and not is_user_file(file)


@lru_cache(maxsize=4096)
def is_own_file(file: str) -> bool:
    """True for trainperf's: a wrapper around what the user called."""
    return file.startswith(_PACKAGE) or _OURS.search(file) is not None


def is_trainings_own(frame: FrameLike) -> bool:
    """PyTorch's modules, losses, optimizers and what goes with them (clipping, averaging)."""
    if _TRAININGS_OWN.search(frame.file) is None or reads_module(frame):
        return False
    return frame.function not in _OF_BATCHES or not is_functional(frame)


def is_functional(frame: FrameLike) -> bool:
    return _FUNCTIONAL.search(frame.file) is not None


def in_loader(stack: Sequence[FrameLike]) -> bool:
    """Within PyTorch's DataLoader, or torchdata's."""
    return any("/torch/utils/data/" in f.file or "/torchdata/" in f.file for f in stack)


def collating(stack: Sequence[FrameLike]) -> FrameLike | None:
    """The user's function that makes a batch of samples, of a dataset with indices: what DataLoader's fetch calls, if
    that is not for a sample."""
    fetch = next((i for i, f in enumerate(stack) if _FETCH.search(f.file)), None)
    if fetch is None or "<listcomp>" in stack[fetch].function:
        return None
    called = stack[:fetch]
    if any(f.function.rpartition(".")[2] in _OF_SAMPLES for f in called):
        return None
    return next((f for f in reversed(called) if is_users(f, stack)), None)


def without_torch(stack: Sequence[FrameLike]) -> bool:
    return not any("/torch/" in f.file for f in stack)


@lru_cache(maxsize=4096)
def is_stdlib_file(file: str) -> bool:
    return bool(_STDLIB.search(file)) and not _INSTALLED.search(file)


@lru_cache(maxsize=4096)
def is_framework(file: str) -> bool:
    """PyTorch, its ecosystem, and what drives a training: Lightning, transformers, accelerate."""
    found = _INSTALLED.search(file)
    return bool(_FRAMEWORK.match(file, found.end()) if found is not None else _TORCH_CHECKOUT.search(file))


@lru_cache(maxsize=4096)
def is_decorator(file: str) -> bool:
    """PyTorch's, such as torch.no_grad's: it is between a function and its caller."""
    return _DECORATOR.search(file) is not None


@lru_cache(maxsize=4096)
def is_dispatcher(file: str) -> bool:
    """PyTorch's, between the name of a function and what it does: the function that it calls says more."""
    return _DISPATCHER.search(file) is not None


@lru_cache(maxsize=4096)
def is_other_library(file: str) -> bool:
    """An installed package that is none of the training's: NumPy, pandas, PIL."""
    return _INSTALLED.search(file) is not None and not is_framework(file) and not is_own_file(file)


@lru_cache(maxsize=4096)
def is_array_library(file: str) -> bool:
    """NumPy and what computes by it: a library that no gradient goes through."""
    found = _INSTALLED.search(file)
    return found is not None and _ARRAYS.match(file, found.end()) is not None


def is_the_loops(frames: Sequence[FrameLike]) -> bool:
    """The user's code, or what a library does on its behalf: no framework stands between the innermost frame and it,
    but an operation on a tensor or what makes its text, metrics, averages of the weights."""
    for f in frames[max(_in_text(frames), _asked(frames, _METRIC), _asked(frames, _AVERAGE)) :]:
        if is_users(f, frames):
            return True
        if _of_tensor(f):
            continue
        if is_framework(f.file) or is_own_file(f.file):
            return False
    return False


def _of_tensor(frame: FrameLike) -> bool:
    """An operation that was asked of a tensor, of a distribution of such, or of what a module keeps."""
    if reads_module(frame):
        return True
    return _TENSOR_OPERATION.search(frame.file) is not None and not frame.function.endswith("backward")


def reads_module(frame: FrameLike) -> bool:
    """PyTorch is asked for what a module keeps."""
    return _MODULE.search(frame.file) is not None and _OF_STATE.search(frame.function) is not None


def of_loss(frames: Sequence[FrameLike]) -> bool:
    """The user's code asks PyTorch for a loss."""
    return any(
        _LOSSES.search(f.file) or (_FUNCTIONAL.search(f.file) and _LOSS.search(f.function)) for f in below_users(frames)
    )


def in_closure(frames: Sequence[FrameLike]) -> bool:
    """The innermost frame of the user's is called by the step of an optimizer of torch's; an optimizer of the user's is
    called from elsewhere."""
    return any(_OPTIMIZER.search(f.file) and f.function.rpartition(".")[2] == "step" for f in from_users(frames))


def in_step_hook(frames: Sequence[FrameLike]) -> bool:
    """The innermost frame of the user's is a hook's that any optimizer calls before its step or after it. A step of the
    user's own is called from there, too."""
    called = _called_around_step(frames, len(below_users(frames)))
    return called is not None and frames[called].function.rpartition(".")[2] != "step"


def _called_around_step(frames: Sequence[FrameLike], at: int = 0) -> int | None:
    """Where the user's function stands that the wrapper of an optimizer's step calls, outside of the frame `at`."""
    around = next((i for i, f in enumerate(frames) if i > at and _AROUND_STEP.search(f.file)), 0)
    inner = called_by(frames, around)
    return inner if inner is not None and is_users(frames[inner], frames) else None


def called_by(frames: Sequence[FrameLike], caller: int) -> int | None:
    """Where in the stack stands what the frame `caller` called, and not what PyTorch puts around it: the decorator
    `torch.no_grad()`."""
    inner = caller - 1
    while inner > 0 and _AROUND_HOOKS.search(frames[inner].file):
        inner -= 1
    return inner if inner >= 0 else None


def in_own_optimizer(frames: Sequence[FrameLike]) -> bool:
    """The step of an optimizer that the user wrote, and what it calls but frameworks' code, a model, or a closure."""
    called = _called_around_step(frames)
    if called is None or not is_the_loops(frames):
        return False
    its_class, _, name = frames[called].function.rpartition(".")
    below = [f for f in frames[:called] if not f.function.startswith(f"{its_class or '?'}.")]
    return name == "step" and not in_module(below) and not any(_is_closure(f.function) for f in below)


def _is_closure(function: str) -> bool:
    """A comprehension is a part of the function that it is in."""
    return bool(_CLOSURE.search(named_function(function))) or function.endswith("<lambda>")


def in_optimizer(frames: Sequence[FrameLike]) -> bool:
    """An optimizer of PyTorch's at its own work: nothing else stands between, such as a hook or a closure."""
    inner = itertools.takewhile(lambda f: _CORE.search(f.file) is not None, frames)
    return any(_OPTIMIZERS.search(f.file) for f in inner)


def _in_text(frames: Sequence[FrameLike]) -> int:
    """How many of the innermost frames PyTorch needs for the text of a tensor that the user's code asked for."""
    inner = next((i for i, f in enumerate(frames) if is_users(f, frames)), 0)
    for i in range(inner, 0, -1):
        f = frames[i - 1]
        if _TEXT_MAKER.search(f.file) or (_TENSOR.search(f.file) and _TO_TEXT.search(f.function)):
            return i
    return 0


def makes_text(frames: Sequence[FrameLike]) -> bool:
    """The user's code prints a tensor, or makes its text: no framework stands between, as a logger of it would."""
    return _in_text(frames) > 0 and is_the_loops(frames)


def _asked(frames: Sequence[FrameLike], of: re.Pattern[str]) -> int:
    """How many of the innermost frames are of what the user's code asked such a library for, by a call of a module or
    of a method."""
    inner = next((i for i, f in enumerate(frames) if is_users(f, frames)), 0)
    asked = max((i for i, f in enumerate(frames[:inner], 1) if of.search(f.file)), default=0)
    while 0 < asked < inner and calls_module(frames[asked]):
        asked += 1
    return asked


def of_metric(frames: Sequence[FrameLike]) -> bool:
    """The user's code updates or computes a metric: no framework stands between, which would do so when it logs."""
    return _asked(frames, _METRIC) > 0 and is_the_loops(frames)


def of_average(frames: Sequence[FrameLike]) -> bool:
    """The user's code updates an average of the weights (AveragedModel)."""
    return _asked(frames, _AVERAGE) > 0 and is_the_loops(frames)


def in_profiler(frames: Sequence[FrameLike]) -> bool:
    """PyTorch's profiler starts, stops or writes its trace; `record_function` alone is called without one, too."""
    return any(_PROFILER.search(f.file) and not f.function.startswith("record_function") for f in frames)


def in_anomaly(frames: Sequence[FrameLike]) -> bool:
    """Autograd's anomaly detection formats the Python stack of an operation, to be shown when its gradient is NaN."""
    return any(_ANOMALY.search(f.file) and f.function == "format_stack" for f in frames)


def calls_module(frame: FrameLike) -> bool:
    """PyTorch's frame that runs a module's forward, and its hooks."""
    return _calls_module(frame.file, frame.function)


@lru_cache(maxsize=4096)
def _calls_module(file: str, function: str) -> bool:
    return _MODULE.search(file) is not None and _MODULE_CALL.search(function) is not None


def in_module(frames: Sequence[FrameLike]) -> bool:
    """Called by a module: a part of the model."""
    return any(calls_module(f) for f in frames)


def in_autograd_function(frames: Sequence[FrameLike]) -> bool:
    """Called by torch.autograd.Function.apply: an operation of the user's with a backward of its own."""
    return any(_AUTOGRAD_FUNCTION.search(f.file) for f in frames)


def runs_layer(frames: Sequence[FrameLike]) -> bool:
    """A module was called, and one of PyTorch's layers runs for it, or what compiling made of them: a model. A loss, or
    an activation in one, is a module, too."""
    inner = itertools.takewhile(lambda f: not calls_module(f), frames)
    return in_module(frames) and any(_LAYER.search(f.file) for f in inner)


def called_by_module(frames: Sequence[FrameLike]) -> tuple[FrameLike, FrameLike] | None:
    """What the innermost module called, and the frame that called it."""
    caller = next((i for i, f in enumerate(frames) if i > 0 and calls_module(f)), 0)
    called = called_by(frames, caller)
    return (frames[called], frames[caller]) if called is not None else None


def is_forward(frame: FrameLike) -> bool:
    return frame.function.rpartition(".")[2] == "forward"


def below_backward(frames: Sequence[FrameLike]) -> bool:
    """The innermost frame of the user's was called by autograd: a hook, a function of the user's own."""
    return any(_AUTOGRAD.search(f.file) for f in from_users(frames))


def in_backward_hook(frames: Sequence[FrameLike]) -> Sequence[FrameLike]:
    """The frames from the innermost to the hook of the user's that autograd's engine called with a gradient. Empty
    elsewhere, so for a torch.autograd.Function or a forward that is run again: these are called through more of
    PyTorch's own frames."""
    engine = next((i for i, f in enumerate(frames) if _runs_engine(f)), 0)
    hook = called_by(frames, engine)
    if hook is None or not is_users(frames[hook], frames) or _NO_HOOK.search(frames[hook].function):
        return []
    return [] if in_module(frames[:engine]) else frames[: hook + 1]


def in_own_operation(frames: Sequence[FrameLike]) -> Sequence[FrameLike]:
    """The frames from the innermost to the forward or backward of a torch.autograd.Function of the user's. Empty
    elsewhere, and where that calls a module: a part of the model that is computed again."""
    caller = next((i for i, f in enumerate(frames) if _AUTOGRAD_FUNCTION.search(f.file)), 0)
    called = called_by(frames, caller)
    if called is None or not is_users(frames[called], frames) or in_module(frames[:caller]):
        return []
    return frames[: called + 1]


def _runs_engine(frame: FrameLike) -> bool:
    return frame.function == "_engine_run_backward" and _GRAPH.search(frame.file) is not None


def in_sampler(frames: Sequence[FrameLike]) -> bool:
    """A DataLoader asks its sampler for indices: with workers too on the thread that fetches."""
    return any(f.function.rpartition(".")[2] == "_next_index" and not is_user_file(f.file) for f in frames)


def stops_workers(frames: Sequence[FrameLike]) -> bool:
    """A DataLoader stops its worker processes, and waits for their end."""
    return any(
        f.function.rpartition(".")[2] in ("_shutdown_workers", "__del__") and _OF_LOADER.search(f.file) for f in frames
    )


def gives_back(frames: Sequence[FrameLike]) -> bool:
    """Between two lines of the user's, nothing but a DataLoader's or its sampler's own code: outside of a fetch, an
    iterator that goes, with the indices that it did not use."""
    inner = below_users(frames)
    return bool(inner) and all(_OF_LOADER.search(f.file) for f in inner)


def begins_loader(frames: Sequence[FrameLike]) -> bool:
    """iter(loader), or a sampler that begins to draw."""
    return any(f.function.rpartition(".")[2] == "__iter__" and _OF_LOADER.search(f.file) for f in frames)


def in_loaders(frames: Sequence[FrameLike]) -> int:
    """How many of the innermost frames a DataLoader and what it calls have; all where none was called."""
    return max((i for i, f in enumerate(frames, 1) if _OF_LOADER.search(f.file)), default=len(frames))


def in_collective(frames: Sequence[FrameLike]) -> bool:
    """What the innermost function of the user's calls is an exchange between processes: of torch.distributed, Horovod,
    mpi4py or DeepSpeed."""
    return any(_COLLECTIVES.search(f.file) for f in below_users(frames))


def client_of(frames: Sequence[FrameLike]) -> str:
    """What kind of server the innermost function of the user's calls a client library of: "HTTP server", "database";
    "" for none."""
    called = below_users(frames)
    found = (kind for kind, files in _CLIENTS.items() if any(files.search(f.file) for f in called))
    return next(found, "")


def is_waiting(frames: Sequence[FrameLike]) -> bool:
    """In a lock, a queue or a selector of the standard library's."""
    return bool(frames) and is_stdlib_file(frames[0].file) and os.path.basename(frames[0].file) in _WAITS


def user_frame(frames: Sequence[FrameLike]) -> FrameLike | None:
    """The innermost frame (frames come innermost first) that is the user's own."""
    return next((f for f in frames if is_users(f, frames)), None)


def outermost_user_frame(frames: Sequence[FrameLike]) -> FrameLike | None:
    """Of a thread that is not the main one, mostly what it was started to run."""
    return next((f for f in reversed(frames) if is_users(f, frames)), None)


def shown_frame(frames: Sequence[FrameLike]) -> FrameLike | None:
    """The user's frame, else the innermost of any but trainperf's: a thread may run library code only."""
    found = user_frame(frames)
    if found is not None:
        return found
    return next((f for f in frames if not is_own_file(f.file)), None)


def short_path(file: str, base: str = "") -> str:
    """Below `base`: relative to it. A library's: from its package on. Else as it is."""
    installed = _INSTALLED.search(file)
    if installed:
        return file[installed.end() :]
    library = _STDLIB.search(file)
    if library:
        return file[library.end() :]
    if base and file.startswith(base.rstrip(os.sep) + os.sep):
        return file[len(base.rstrip(os.sep)) + 1 :]
    return file


@lru_cache(maxsize=4096)
def named_function(name: str) -> str:
    """co_qualname of the function that a person named: a comprehension or a lambda in it is a part of it."""
    return _UNNAMED.sub("", name)


def function_of(frame: FrameLike) -> Function:
    """The one that a person named."""
    return frame.file, named_function(frame.function)


def short_function(name: str) -> str:
    """co_qualname without the `<locals>` of enclosing functions, and without what has no name in them."""
    return named_function(name).rsplit("<locals>.", 1)[-1]


def place(frame: FrameLike, base: str = "") -> str:
    """ "train.py:41"."""
    return f"{short_path(frame.file, base)}:{frame.line}"


def label(frame: FrameLike, base: str = "") -> str:
    """ "Slow.__getitem__ (train.py:41)"."""
    return f"{short_function(frame.function)} ({place(frame, base)})"


@dataclass(frozen=True)
class Label:
    """Of one stack, innermost frame first."""

    stack: tuple[Frame, ...]

    @cached_property
    def users(self) -> tuple[Frame, ...]:
        return tuple(f for f in self.stack if is_users(f, self.stack))

    @property
    def at(self) -> Frame | None:
        """The innermost frame of the user's."""
        return self.users[0] if self.users else None

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """Those of the user's, innermost first."""
        return tuple(map(function_of, self.users))

    @property
    def function(self) -> Function:
        return self.functions[0] if self.functions else NO_FUNCTION

    @cached_property
    def below(self) -> Sequence[FrameLike]:
        """What the innermost function of the user's calls; all where there is none."""
        return below_users(self.stack)

    @cached_property
    def asks_for(self) -> str:
        """What the user's code asks a library for that is no training: "text" of a tensor, "metrics", an "average" of
        the weights; or ""."""
        if makes_text(self.stack):
            return "text"
        if of_metric(self.stack):
            return "metrics"
        return "average" if of_average(self.stack) else ""

    @cached_property
    def in_module(self) -> bool:
        return in_module(self.stack)

    @cached_property
    def in_autograd(self) -> bool:
        return in_autograd_function(self.stack)

    @property
    def in_model(self) -> bool:
        """A function with a backward of its own is a part of it."""
        return self.in_module or self.in_autograd

    @cached_property
    def runs_layer(self) -> bool:
        return runs_layer(self.stack)

    @cached_property
    def is_the_loops(self) -> bool:
        return is_the_loops(self.stack)

    @cached_property
    def of_training(self) -> tuple[FrameLike, ...]:
        """What the user's function calls of PyTorch's for training: clipping gradients, a loss, an optimizer."""
        return tuple(f for f in self.below if is_trainings_own(f))

    @property
    def beside_training(self) -> bool:
        """It is what the user's function calls that counts: Lightning calls all of a training_step within the
        optimizer's step."""
        return bool(self.asks_for) or not (self.in_model or self.of_training)

    @property
    def outside_training(self) -> bool:
        """Likewise between the phases: no backward goes through PyTorch's functions of layers there."""
        return bool(self.asks_for) or not (self.in_model or not all(map(is_functional, self.of_training)))
