"""The words of findings about what runs on the CPU besides the program's own code, and of settings."""

from __future__ import annotations

from typing import Final

from trainperf.findings.text import Doubt, Doubts, Message, Messages

# -- frameworks' Python, the optimizer, models, debug modes

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

# -- settings

_LOWER_BOUND: Final = "at least {each} of each step's {step} ({samples:sample})"


_NO_SAMPLE: Final = "no stack sample shows"
_NO_DEVICE: Final = "no work on a GPU was recorded"

# By setting: its name; `_why` it has no price, or what it risks; its `_fix`; why it was `_unseen`.

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
    "TP314": {
        "zero_grad": Message(
            title="zero_grad(set_to_none=False) fills all gradients with zeros",
            why="[[{place} keeps]][[!place?the loop keeps]] gradients: they are filled with zeros, then added to",
            evidence=(_LOWER_BOUND, "what backward takes to add to them is not in this cost"),
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
            evidence=(_LOWER_BOUND, "GIL contention of its threads, and its part of backward, are not in this cost"),
            fix="model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[local_rank])\n"
            "# torchrun --nproc-per-node=gpu train.py",
            will_not_help="more GPUs in one process; more DataLoader workers",
        ),
        "torch_logs": Message(
            title="PyTorch's compiler logs while steps run",
            why="{names} set: the compiler writes what it does",
            evidence=(_LOWER_BOUND, "what it takes to make the texts of graphs is not in this cost"),
            fix="unset TORCH_LOGS TORCH_TRACE TORCH_COMPILE_DEBUG",
            will_not_help="a faster disk",
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
    "setting_unseen": "the run file does not say: an older trainperf, or torch was not imported",
    "setting_unseen_in_traces": "a trace does not say",
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
    "setting_deterministic_why": "on for {percent}% of the time: how much faster the others are was not measured",
    "setting_deterministic_fix": "torch.use_deterministic_algorithms(False)  # unless results must repeat bit by bit",
    "setting_tracemalloc": "tracemalloc",
    "setting_tracemalloc_why": "on for {percent}% of the time: "
    f"{_NO_SAMPLE} what it adds to each allocation of a Python object",
    "setting_tracemalloc_fix": "tracemalloc.stop()  # or unset PYTHONTRACEMALLOC",
    "setting_launch_blocking": "CUDA_LAUNCH_BLOCKING",
    "setting_launch_blocking_why": "each launch waits for its kernel, and for how long was not measured",
    "setting_launch_blocking_fix": "unset CUDA_LAUNCH_BLOCKING",
    "setting_launch_blocking_unseen": _NO_DEVICE,
    "setting_malloc_debug": "Python's memory debug hooks (PYTHONMALLOC=debug, -X dev)",
    "setting_malloc_debug_why": f"{_NO_SAMPLE} what the hooks add to each allocation of a Python object",
    "setting_malloc_debug_fix": "unset PYTHONMALLOC and PYTHONDEVMODE, and run without -X dev",
    "setting_gc_debug": "gc debug flags",
    "setting_gc_debug_why": "how much longer collections take with them was not measured",
    "setting_gc_debug_fix": "gc.set_debug(0)",
    "setting_python_debug": "debug build of Python",
    "setting_python_debug_why": "how much faster a release build is was not measured",
    "setting_python_debug_fix": "use a release build of Python",
    "setting_torch_debug": "debug build of PyTorch",
    "setting_torch_debug_why": "how much faster a release build is was not measured",
    "setting_torch_debug_fix": "use a release build of PyTorch",
    "setting_torch_logs": "logs of PyTorch's compiler",
    "setting_torch_logs_why": "{names} set: too few samples for what the logs cost",
    "setting_torch_logs_fix": "unset TORCH_LOGS TORCH_TRACE TORCH_COMPILE_DEBUG",
    "setting_gradcheck": "torch.autograd.gradcheck in the loop",
    "setting_gradcheck_why": "too few samples for its cost",
    "setting_gradcheck_fix": "# call torch.autograd.gradcheck in a test, not in the loop",
    "setting_distributed_debug": "TORCH_DISTRIBUTED_DEBUG=DETAIL",
    "setting_distributed_debug_why": "each collective is checked on all ranks first, and for how long was not measured",
    "setting_distributed_debug_fix": "unset TORCH_DISTRIBUTED_DEBUG",
    "setting_threads": "threads against usable CPUs",
    "setting_affinity": "CPU affinity",
    "setting_instructions": "limits on the CPU's instructions",
    "setting_instructions_why": "{names}: how much faster vector instructions are here was not measured",
    "setting_instructions_fix": "unset ATEN_CPU_CAPABILITY ONEDNN_MAX_CPU_ISA DNNL_MAX_CPU_ISA MKL_ENABLE_INSTRUCTIONS",
    "setting_blas": "BLAS of PyTorch",
    "setting_blas_why": "this build has no optimized BLAS ({blas}): how much faster one is was not measured",
    "setting_blas_fix": "pip install torch  # the official wheels have MKL or OpenBLAS",
    "setting_governor": "CPU frequency governor",
    "setting_governor_why": "powersave holds the clock at its lowest: how much faster the CPUs are was not measured",
    "setting_governor_unseen": "this machine does not show it",
    "setting_governor_fix": "sudo cpupower frequency-set -g performance",
    "setting_workers": "DataLoader num_workers",
    "setting_workers_unseen": "no DataLoader was seen",
    "setting_persistent_workers": "DataLoader persistent_workers",
    "setting_persistent_workers_unseen": "no DataLoader was seen",
    "setting_malloc": "malloc's return of memory to the OS",
    "setting_malloc_unseen": "not looked at in training on a GPU",
    "setting_zero_grad": "zero_grad(set_to_none=False)",
    "setting_zero_grad_why": "too few samples for its cost",
    "setting_zero_grad_fix": "optimizer.zero_grad()",
    "setting_data_parallel": "DataParallel",
    "setting_data_parallel_why": "too few samples for its cost",
    "setting_data_parallel_fix": "torch.nn.parallel.DistributedDataParallel, one process for each GPU",
    "setting_optimizer": "fused and foreach optimizers on the CPU",
    "setting_optimizer_unseen": "no optimizer was seen",
    "setting_pin_memory": "pin_memory",
    "setting_pin_memory_unseen": _NO_DEVICE,
    "setting_tensor_cores": "TF32, bfloat16 or float16 for matrix products",
    "setting_tensor_cores_why": "how much faster they are here was not measured: trainperf lab does",
    "setting_tensor_cores_unseen": _NO_DEVICE,
    "setting_autotuning": "cudnn.benchmark and autotuning with changing shapes",
    "setting_autotuning_unseen": _NO_DEVICE,
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
