"""The rules, in the order in which they may claim time: the specific before the general."""

from __future__ import annotations

from trainperf.findings.rule import Rule
from trainperf.findings.rules import chores, data, gil, gpu, host, loader_starts, machine, memory, run, trainer, workers
from trainperf.findings.rules.blocked import Blocked
from trainperf.findings.rules.host_compute import HostCompute
from trainperf.findings.rules.host_python import HostPython

ALL: tuple[Rule, ...] = (
    run.compile_warmup,
    run.growing_step,
    gpu.autotuning,
    gpu.gpu_warm_up,
    loader_starts.worker_startup,
    host.debug_mode,
    data.skipped_batches,
    machine.pinned_cpus,
    workers.ready_not_delivered,
    workers.workers_too_slow,
    workers.delivery_cost,
    data.slow_sampler,
    data.data_starved,
    gil.gil_hog,
    gil.gil_many,
    trainer.lightning_monitor,
    trainer.callback,
    trainer.lightning_progress_bar,
    trainer.lightning_sigterm,
    trainer.lightning_log,
    chores.checkpoint,
    Blocked(),
    machine.gc_pauses,
    trainer.trainer_logger,
    chores.logging,
    trainer.validation_workers,
    chores.validation,
    host.extra_forward,
    machine.cpu_oversubscription,
    machine.descheduled,
    machine.throttled,
    HostPython(),
    HostCompute(),
    memory.heap_churn,
    gpu.sync_in_loop,
    gpu.pageable_copies,
    gpu.allocator_churn,
    gpu.module_loading,
    gpu.exposed_communication,
    gpu.gpu_starved_by_data,
    gpu.gpu_gil_wait,
    gpu.launch_bound,
    host.optimizer_step,
    host.framework_python,
    gpu.gpu_idle,
    run.uneven,
    run.slower_than_before,
    gpu.no_tensor_cores,
    gpu.tiny_kernels,
    gpu.few_ops,
    gpu.gpu_bound,
    memory.memory_growth,
)
