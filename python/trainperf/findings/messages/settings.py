"""Words of settings, as `trainperf check` lists them."""

from __future__ import annotations

from typing import Final

from trainperf.findings.messages.catalogue import Doubts, Message, Messages

_LOWER_BOUND: Final = "at least {each} of each step's {step} ({samples:sample})"

MESSAGES: Final[Messages] = {
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

_NO_SAMPLE: Final = "no stack sample shows"
_NO_DEVICE: Final = "no work on a GPU was recorded"

# By setting: its name; `_why` it has no price, or what it risks; its `_fix`; why it was `_unseen`.
TEXTS: Final = {
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

UNSURE: Final[Doubts] = {}
